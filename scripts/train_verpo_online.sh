#!/usr/bin/env bash
# Online multi-turn VeRPO, a baseline: trajectories as in train_grpo_online.sh, learned from by dense rewards of turns and
# the trajectory's outcome (docs/training.md). Knobs, defaults and exit codes: scripts/lib/train_grpo.sh.
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_verpo_online.sh
set -euo pipefail
RECIPE=verpo_online
: "${TRAIN_FILE:=data/verl_single_turn/train.parquet}" "${VAL_FILE:=data/verl_single_turn/test.parquet}"
# shellcheck source=scripts/lib/train_grpo.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
