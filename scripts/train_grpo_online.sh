#!/usr/bin/env bash
# Online multi-turn GRPO, a baseline: the policy plays trajectories of up to cobalt.online.turns programs on problems, from
# preproc/verl_preproc_single_turn.py, and learns from one score for each (docs/training.md). Knobs, defaults and exit
# codes: scripts/lib/train_grpo.sh.
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_grpo_online.sh
set -euo pipefail
RECIPE=grpo_online
: "${TRAIN_FILE:=data/verl_single_turn/train.parquet}" "${VAL_FILE:=data/verl_single_turn/test.parquet}"
# shellcheck source=scripts/lib/train_grpo.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
