#!/usr/bin/env bash
# Which wrong feedback, and how much of it, keeps a policy from hacking? A cell for each kind of perturbation and share of
# perturbed contexts, one training seed each, beside Cobalt without any: scripts/study_hacking.sh with these arms, all
# measured under feedback of the same kind (KIND). Beside that study's report: RUN/sweeps/clean and RUN/sweeps/perturbed,
# Pass@1 at the last turn over the share, a line for each kind.
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

: "${KINDS:=swapped off_by_one other_problem truncated inconsistent}" "${RATIOS:=0.1 0.3 0.5}"
: "${SEEDS:=0}" "${RUN:=runs/sweep_perturbation}"
ARMS=cobalt
for kind in $KINDS; do
  for ratio in $RATIOS; do ARMS+=" $kind+$ratio"; done
done
# shellcheck source=scripts/study_hacking.sh
source scripts/study_hacking.sh "$@"

point() { # NAME ARM: the arm's files, as a point
  local seed
  for seed in $SEEDS; do points+=("$1=$RUN/$2-$seed$ending.jsonl"); done
}

for feedback in clean perturbed; do
  points=() ending=""
  [[ $feedback == clean ]] || ending=-ptb
  for kind in $KINDS; do
    point "$kind:0" cobalt
    for ratio in $RATIOS; do point "$kind:$ratio" "$kind+$ratio"; done
  done
  "$PYTHON" -m cobalt report sweep --feedback "$feedback" --points "${points[@]}" --setting "share of perturbed contexts" \
    --output_dir "$RUN/sweeps/$feedback"
done
echo "sweep_perturbation.sh: done; $RUN/sweeps"
