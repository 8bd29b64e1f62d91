#!/usr/bin/env bash
# Contextual bandit learning: GRPO on partial trajectories (one program per context), from
# preproc/verl_preproc_multi_turn.py. Knobs, defaults and exit codes: scripts/lib/train_grpo.sh.
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_grpo_multi_turn.sh
set -euo pipefail
RECIPE=multi_turn
# shellcheck source=scripts/lib/train_grpo.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
