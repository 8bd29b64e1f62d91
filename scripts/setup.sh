#!/usr/bin/env bash
# Make .venv with the pinned CPU environment (constraints/cpu.txt) and check that this machine can sandbox
# programs. `bash scripts/setup.sh dev` adds what the tests and the site of these pages need. Knobs:
#   PYTHON=python3                                          interpreter, 3.11 or 3.12
#   VENV=.venv                                              the environment's folder
#   CHECK_MACHINE=1                                         0: without the check, for images
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu    of torch for CPUs, if pip's own index has none
# Exit codes: 0 ready, 1 a package cannot be installed (uv says why), 2 an argument or knob that is not known, 3 this
# machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${TORCH_INDEX_URL:=https://download.pytorch.org/whl/cpu}" "${VENV:=.venv}" "${CHECK_MACHINE:=1}"
source scripts/lib/environment.sh
[[ $STACK == @(|dev) ]] || refuse "no argument '$STACK': dev or none; see --help"
CONSTRAINTS=constraints/cpu.txt

# Before anything is installed: no sandbox, no Cobalt. The check prints what is missing and how to get it.
[[ $CHECK_MACHINE == [01] ]] || refuse "CHECK_MACHINE is 0 or 1, not '$CHECK_MACHINE'"
[[ $CHECK_MACHINE == 0 ]] || "$PYTHON" -m cobalt sandbox check --quiet || exit 3

if ! is_finished "$VENV" "$CONSTRAINTS" pyproject.toml; then
  echo "setup.sh: installing into $VENV (2 GB)"
  make_venv "$VENV"
  torch=$(grep '^torch==' "$CONSTRAINTS")
  # pip's own index first, if what it offers is a CPU build; the default one on PyPI brings gigabytes of CUDA.
  offered=$(pip install --quiet --dry-run --no-deps --ignore-installed --report - "$torch" 2> /dev/null || true)
  if grep -q '"version": *"[^"]*+cpu"' <<< "$offered"; then
    shown pip install --progress-bar off --no-compile --no-deps "$torch" # uv reads no other settings of pip's
  else
    install --no-deps --default-index "$TORCH_INDEX_URL" "$torch"
  fi
  install --constraint "$CONSTRAINTS" --editable '.[train,dpo,hf,api]'
  uv check
  [[ $STACK == dev ]] || compile_all # tests need few of the modules
  mark_finished "$VENV" "$CONSTRAINTS" pyproject.toml
fi
if [[ $STACK == dev && ! -f $VENV/.cobalt-dev ]]; then
  echo "setup.sh: installing what tests and pages need"
  venv=$VENV
  install --constraint "$CONSTRAINTS" --editable '.[dev]'
  uv check
  touch "$VENV/.cobalt-dev"
fi
