#!/usr/bin/env bash
# Single-turn fine-tuning: GRPO on problems (one program per problem), from preproc/verl_preproc_single_turn.py.
# Knobs, defaults and exit codes: scripts/lib/train_grpo.sh.
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_grpo_single_turn.sh
set -euo pipefail
RECIPE=single_turn
# shellcheck source=scripts/lib/train_grpo.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
