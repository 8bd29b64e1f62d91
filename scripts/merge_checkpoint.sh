#!/usr/bin/env bash
# A training run's checkpoint as a Hugging Face model with a model card.
#
#   scripts/merge_checkpoint.sh RUN_DIR MODEL_DIR [--step N] [--push_to_hub NAME]
#
# RUN_DIR is the OUTPUT_DIR of a training recipe; the latest checkpoint is taken unless --step names another. Further
# arguments are those of cobalt merge. Knob: PYTHON=python
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/arguments.sh"
(($# >= 2)) || refuse "RUN_DIR and MODEL_DIR are wanted; see --help"
"${PYTHON:-python}" -m cobalt merge --checkpoint_dir "$1" --output_dir "$2" "${@:3}"
