#!/usr/bin/env bash
# The questions that the paper leaves open, a figure for each: Pass@1 on the dev set and on the shifted set, first program
# and last turn, over the values of one setting of Cobalt, all else as in scripts/study_paper.sh. In its folder, the
# default, what the study has made is not made again.
#
#   bash scripts/sweep_paper.sh                      all questions
#   QUESTIONS="horizon kl" bash scripts/sweep_paper.sh
#   GPUS="0 0 0" SEEDS="0 1 2" bash scripts/sweep_paper.sh --plan
#
# Questions, of which docs/paper.md says more:
#   horizon      turns of the trajectories that are learned from: 1, 2, 3, 5
#   cap          trajectories per problem, m: 1, 2, 4, 8, all (those below TRAIN_SAMPLES, and all)
#   selection    which m: largest variance, at random, smallest variance
#   kl           coefficient of the KL term: 0, 1e-4, 1e-3, 1e-2, 1e-1
#   reference    who wrote the trajectories: MODEL, MODEL at temperatures 1.0 and 1.4, REFERENCE, a trained policy
#   refresh      steps after which the policy collects anew: never, STEPS/2, STEPS/4
#   stop         stop rule: released, solved, none
# The kind and share of wrong feedback: scripts/sweep_perturbation.sh. Knobs, and those below:
#   QUESTIONS="horizon cap selection kl reference refresh stop"
#   RUN=runs/study_paper      where everything is written; one set of knobs per folder, but for ARMS, SEEDS and GPUS
#   SEEDS=0
# ARMS follow from the questions.
#
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/arms.sh
if asks_for_help "$@"; then
  show_help lib/arms.sh
  exit 0
fi
: "${RUN:=runs/study_paper}" "${QUESTIONS:=horizon cap selection kl reference refresh stop}" "${SEEDS:=0}"

cells_of() { # QUESTION: sets title and cells, each VALUE=ARM
  local m steps
  case $1 in
    horizon) title="turns learned from" cells=(1=turns+1 2=turns+2 3=cobalt 5=turns+5) ;;
    cap)
      title="trajectories per problem (m)" cells=()
      for m in 1 2 4 8; do
        ((m >= TRAIN_SAMPLES)) || cells+=("$m=cap+$m")
      done
      cells+=(all=cap+all)
      ;;
    selection)
      title="trajectories selected"
      cells=("largest variance=cobalt" "at random=selection+random" "smallest variance=selection+min_variance")
      ;;
    kl) title="KL coefficient" cells=(0=kl+0 1e-4=kl+1e-4 1e-3=kl+1e-3 1e-2=kl+1e-2 1e-1=kl+1e-1) ;;
    reference)
      title="reference model" cells=("own=cobalt" "own, T 1.0=temperature+1.0" "own, T 1.4=temperature+1.4")
      cells+=("other=other_reference" "trained=trained_reference")
      ;;
    refresh)
      title="steps between collections" cells=(never=cobalt)
      for steps in $((STEPS / 2)) $((STEPS / 4)); do ((steps == 0)) || cells+=("$steps=refreshed+$steps"); done
      ;;
    stop) title="stop rule" cells=(released=cobalt solved=stop+solved none=stop+none) ;;
    *) refuse "no question '$1'; see --help" ;;
  esac
}

set_knobs "" "" "$@"
ARMS=""
for question in $QUESTIONS; do
  cells_of "$question"
  for cell in "${cells[@]}"; do
    [[ " $ARMS " == *" ${cell#*=} "* ]] || ARMS+=" ${cell#*=}"
  done
done
first=(problems/minicode problems/shifted)
plan_work

measure() { # NAME POLICY: on both sets
  roll_out "$1" minicode_dev "$2" "$DEV_SAMPLES" "$DEV_SAMPLES" "$TURNS"
  measure_shifted "$1" "$2"
}

draw() { # QUESTION: its figure and table
  local cell name seed dev=() shifted=() logs=()
  cells_of "$1"
  for cell in "${cells[@]}"; do
    for seed in $SEEDS; do
      name=$RUN/${cell#*=}-$seed
      dev+=("dev:${cell%%=*}=$name.jsonl")
      shifted+=("shifted:${cell%%=*}=$name-shifted.jsonl")
      logs+=("dev:${cell%%=*}=$name/metrics.jsonl")
    done
  done
  "$PYTHON" -m cobalt report sweep --points "${dev[@]}" "${shifted[@]}" --logs "${logs[@]}" --turns 0 "$TURNS" \
    --setting "$title" --output_dir "$RUN/sweeps/$1"
}

enter_study
side_by_side "${items[@]}"
for question in $QUESTIONS; do draw "$question"; done
echo "sweep_paper.sh: done; $RUN/sweeps"
