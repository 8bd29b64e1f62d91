#!/usr/bin/env bash
# Set up .venv if need be, then lint, type-check and run the tests. Arguments go to pytest.
#
#   bash scripts/test.sh              everything but the tests marked slow
#   bash scripts/test.sh -m slow      the slow ones only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
bash scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
pyright
python -m pytest "$@"
