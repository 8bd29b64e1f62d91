#!/usr/bin/env bash
# Make .venv-gpu with the GPU environment (constraints/gpu.txt: veRL 0.9.1, vLLM 0.24), then check that it
# imports, sees a GPU and can sandbox programs. For training with vLLM rollouts, serving with vLLM, data, reports.
#
#   bash scripts/setup_gpu.sh && source .venv-gpu/bin/activate
#   bash scripts/setup_gpu.sh sglang && source .venv-sglang/bin/activate  # SGLang 0.5.12 instead of vLLM
#   bash scripts/setup_gpu.sh paper && source .venv-paper/bin/activate    # the paper's: veRL 0.5.0, vLLM 0.8.5, flash-attn
#
# Needs Linux x86-64 with glibc 2.31 or later (sglang: 2.34), an NVIDIA driver for CUDA 13 (paper: 12), a C compiler and
# Python's headers (Triton compiles kernels when they are first used). CUDA itself comes with the packages: gigabytes to
# download. SGLang compiles kernels, too: it needs g++ 13 or later, and the compiler of CUDA 13 (nvcc).
#
# Knobs (environment), with their defaults:
#   PYTHON=python3      interpreter, 3.11 or 3.12
#   VENV=.venv-gpu      the environment's folder; .venv-sglang, .venv-paper
#   FLASH_ATTN=         paper: file or address of a wheel of flash-attn; default: the one on its release page for this
#                       Python. source: built here, with the CUDA 12 compiler (nvcc), by MAX_JOBS processes at once
#   CHECK_MACHINE=1     0: install without any check of the machine, for images that are built elsewhere than they run
# Exit codes: 0 ready, 1 a package cannot be installed (uv says why), 2 an argument or knob that is not known, 3 this
# machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${FLASH_ATTN:=}" "${CHECK_MACHINE:=1}"
FLASH_ATTN_VERSION=2.7.4.post1
RELEASE=https://github.com/Dao-AILab/flash-attention/releases/download/v$FLASH_ATTN_VERSION
source scripts/lib/environment.sh
case $STACK in
  "") LOCK=constraints/gpu.txt VENV=${VENV:-.venv-gpu} ENGINE=vllm ;;
  sglang) LOCK=constraints/sglang.txt VENV=${VENV:-.venv-sglang} ENGINE=sglang ;;
  paper) LOCK=constraints/paper.txt VENV=${VENV:-.venv-paper} ENGINE=vllm ;;
  *) refuse "no argument '$STACK': sglang, paper or none; see --help" ;;
esac
[[ $CHECK_MACHINE == [01] ]] || refuse "CHECK_MACHINE is 0 or 1, not '$CHECK_MACHINE'"
[[ $(uname -sm) == "Linux x86_64" ]] || fail "the packages are for Linux on x86-64, not for $(uname -sm)"
[[ $FLASH_ATTN != source ]] || nvcc --version 2>/dev/null | grep -q 'release 12\.' \
  || fail "FLASH_ATTN=source needs the compiler of CUDA 12: 'nvcc --version' does not say 'release 12'"
if [[ $STACK == sglang && $CHECK_MACHINE == 1 ]]; then
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -z ${CUDA_HOME:-} ]] || nvcc=$CUDA_HOME/bin/nvcc
  "$nvcc" --version 2>/dev/null | grep -q 'release 13\.' \
    || fail "SGLang needs the compiler of CUDA 13: '$nvcc --version' does not say 'release 13'"
  # with 12 one of its kernels does not compile (github.com/sgl-project/sglang/issues/25487)
  [[ $(g++ -dumpversion 2>/dev/null) =~ ^(1[3-9]|[2-9][0-9]) ]] || fail "SGLang needs g++ 13 or later"
fi
[[ $CHECK_MACHINE == 0 ]] || nvidia-smi --list-gpus >/dev/null 2>&1 \
  || fail "no NVIDIA GPU: 'nvidia-smi --list-gpus' fails; is the driver installed?"

if ! is_finished "$VENV" "$LOCK" pyproject.toml; then
  echo "setup_gpu.sh: installing into $VENV"
  rm -f "$VENV/.cobalt-setup" # of another lock: all is cleared, else what it held would stay beside this one's
  make_venv "$VENV"
  if [[ $STACK == paper && $FLASH_ATTN != source ]]; then # first: without its wheel, nothing else is downloaded
    # cxx11abiFALSE: torch 2.6.0 on PyPI is compiled with the old C++ ABI
    tag=$("$VENV/bin/python" -c 'import sys; print("cp{}{}".format(*sys.version_info))')
    wheel=$RELEASE/flash_attn-$FLASH_ATTN_VERSION%2Bcu12torch2.6cxx11abiFALSE-$tag-$tag-linux_x86_64.whl
    pip install --quiet --no-deps "${FLASH_ATTN:-$wheel}" \
      || fail "no wheel of flash-attn: set FLASH_ATTN to a copy of $wheel, or to source"
  fi
  # Without dependencies: the lock is complete, and uv would refuse its exceptions. Without build isolation: what has no
  # wheel is built with the locked setuptools.
  builders=$(grep -E '^(setuptools|wheel)==' "$LOCK")
  # shellcheck disable=SC2086 # two requirements
  install --no-deps $builders
  install --no-deps --no-build-isolation --requirement "$LOCK"
  install --no-deps --no-build-isolation --editable .
  if [[ $STACK == paper && $FLASH_ATTN == source ]]; then
    FLASH_ATTENTION_FORCE_BUILD=TRUE install --no-deps --no-build-isolation --no-binary flash-attn \
      "flash-attn==$FLASH_ATTN_VERSION"
  fi
  compile_all
  mark_finished "$VENV" "$LOCK" pyproject.toml
fi
[[ $CHECK_MACHINE == 1 ]] || exit 0
"$VENV/bin/python" - $ENGINE <<'PYTHON_END' || fail "the environment in $VENV does not work: see above"
import importlib, sys, ray, torch, transformers, verl.trainer.main_ppo
engine = importlib.import_module(sys.argv[1])
if torch.version.cuda.startswith("12"):
    import flash_attn
for module in (torch, engine, ray, transformers):
    print(f"{module.__name__} {module.__version__}")
print(f"CUDA {torch.version.cuda}, GPUs: {torch.cuda.device_count()}")
sys.exit(not torch.cuda.is_available())
PYTHON_END
"$VENV/bin/python" -m cobalt sandbox check --quiet || exit 3
