#!/usr/bin/env bash
# Contextual bandit learning: GRPO on partial trajectories (one program per context), from
# preproc/verl_preproc_multi_turn.py. Knobs, defaults and exit codes: scripts/lib/train_grpo.sh.
RECIPE=multi_turn source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
