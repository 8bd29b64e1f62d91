#!/usr/bin/env bash
# A training run's checkpoint as a Hugging Face model with a model card.
#
#   scripts/merge_checkpoint.sh RUN_DIR MODEL_DIR [--step N]
#
# RUN_DIR is the OUTPUT_DIR of a training recipe; the latest checkpoint is taken unless --step names another.
# PYTHON=python
set -euo pipefail
if (($# < 2)); then
  echo "usage: scripts/merge_checkpoint.sh RUN_DIR MODEL_DIR [--step N]" >&2
  exit 2
fi
"${PYTHON:-python}" -m cobalt merge --checkpoint_dir "$1" --output_dir "$2" "${@:3}"
