#!/usr/bin/env bash
# Set up .venv if need be, then lint, type-check and run the tests, ours and those of research/. Arguments go to pytest.
#
#   bash scripts/test.sh              everything but the tests marked slow
#   bash scripts/test.sh -m slow      the slow ones only
#   bash scripts/test.sh -n 0 --pdb   in one process
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
VENV=.venv bash scripts/setup.sh dev
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
pyright
# Each file in one of two processes. Slow ones come first (tests/conftest.py).
TWO=(-n 2 --dist loadfile --no-loadscope-reorder)
status=0
python -m pytest "${TWO[@]}" "$@" || status=$?
python -m pytest -c research/pyproject.toml "${TWO[@]}" "$@" research/tests || status=$?
exit $status
