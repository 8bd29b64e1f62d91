#!/usr/bin/env bash
# Online multi-turn VeRPO, a baseline: trajectories as in train_grpo_online.sh, learned from by dense rewards of turns and
# the trajectory's outcome (docs/training.md, scripts/lib/train_grpo.sh).
RECIPE=verpo_online source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
