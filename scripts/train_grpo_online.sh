#!/usr/bin/env bash
# Online multi-turn GRPO, a baseline: the policy plays trajectories of up to cobalt.online.turns programs on problems, from
# preproc/verl_preproc_single_turn.py, and learns from one score for each (docs/training.md, scripts/lib/train_grpo.sh).
RECIPE=grpo_online source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
