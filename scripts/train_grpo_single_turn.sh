#!/usr/bin/env bash
# Single-turn fine-tuning: GRPO on problems (one program per problem), from preproc/verl_preproc_single_turn.py.
# Knobs, defaults and exit codes: scripts/lib/train_grpo.sh.
RECIPE=single_turn source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
