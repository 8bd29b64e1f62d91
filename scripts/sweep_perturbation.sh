#!/usr/bin/env bash
# Which wrong feedback, and how much of it, keeps a policy from hacking? A cell for each kind of perturbation and share of
# perturbed contexts, one training seed each, beside Cobalt without any: scripts/study_hacking.sh with these arms, all
# measured under feedback of the same kind (KIND).
#
#   bash scripts/sweep_perturbation.sh
#   RATIOS="0.1 0.3 0.5 0.7" KINDS=swapped GPUS="0 0 0" bash scripts/sweep_perturbation.sh
#
# Knobs (environment), and those of study_hacking.sh but ARMS:
#   KINDS="swapped off_by_one other_problem truncated inconsistent"
#   RATIOS="0.1 0.3 0.5"
#   SEEDS=0
#   RUN=runs/sweep_perturbation
# Arguments are hydra overrides. Exit codes: those of study_hacking.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi

: "${KINDS:=swapped off_by_one other_problem truncated inconsistent}"
: "${RATIOS:=0.1 0.3 0.5}"
export SEEDS=${SEEDS:-0}
export RUN=${RUN:-runs/sweep_perturbation}
ARMS=cobalt
for kind in $KINDS; do
  for ratio in $RATIOS; do ARMS+=" $kind+$ratio"; done
done
export ARMS
exec bash scripts/study_hacking.sh "$@"
