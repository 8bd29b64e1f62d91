#!/usr/bin/env bash
# The paper in miniature: from nothing to one report. MiniCoder on MiniCode, trained in every way that the paper compares,
# three seeds each, measured at turns 0 to 8 after training on turns 0 to 2: on the dev set; on the shifted set, whose
# kinds of problems no training problem has; under another problem's feedback (control); and, for those in HACKED, under
# wrong feedback. docs/paper.md says what each arm is.
#
#   bash scripts/study_paper.sh                one GPU, one policy after the other
#   GPUS="0 0 0" bash scripts/study_paper.sh   three policies at a time on that GPU
#   bash scripts/study_paper.sh --plan         what is left to do, and about how long it takes
#   SIZE=cpu bash scripts/study_paper.sh       two CPU cores, four ways of training, one seed
#
# Killed and run again it continues: a finished policy is not trained or measured again, a training goes on from its last
# checkpoint. Knobs, and those below:
#   RUN=runs/study_paper      where everything is written; one set of knobs per folder, but for ARMS, SEEDS and GPUS
#   ARMS="cobalt single_turn ft_cobalt grpo_online verpo_online augmented other_reference"
#        | "cobalt single_turn ft_cobalt grpo_online"
#   HACKED="cobalt augmented" | ""    arms that are measured under wrong feedback, the base with them
#   GPUS= | "0 0"                     as below; without a GPU it says how many policies at a time
#
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/arms.sh
if asks_for_help "$@"; then
  show_help lib/arms.sh
  exit 0
fi
: "${RUN:=runs/study_paper}"
if [[ ${SIZE:-gpu} == gpu ]]; then
  : "${HACKED=cobalt augmented}"
else
  : "${HACKED=}" "${GPUS=0 0}"
fi
set_knobs "cobalt single_turn ft_cobalt grpo_online verpo_online augmented other_reference" \
  "cobalt single_turn ft_cobalt grpo_online" "$@"
first=(problems/minicode problems/shifted offline/base)
plan_work

is_hacked() { [[ -n $HACKED && " base $HACKED " == *" $1 "* ]]; } # ARM

measure() { # NAME POLICY: everything that the report shows of it
  local control_turns=$((TURNS < CONTROL_TURNS ? TURNS : CONTROL_TURNS))
  roll_out "$1" minicode_dev "$2" "$DEV_SAMPLES" "$DEV_SAMPLES" "$TURNS"
  measure_shifted "$1" "$2"
  repair_and_evaluate "$1-control" "$1.turn0" "$2" 1 "$control_turns" --feedback_from other_problem
  ! is_hacked "${1%-*}" || measure_hacking "$1" "$2"
}

files=()
show() { # LABEL NAME: what the report reads
  files+=("$1:clean=$RUN/$2.jsonl" "$1:shifted=$RUN/$2-shifted.jsonl" "$1:control=$RUN/$2-control.jsonl")
  ! is_hacked "${2%-*}" || files+=("$1:perturbed=$RUN/$2-ptb.jsonl" "$1:hacking=$RUN/$2.cases.jsonl")
  [[ $2 == base ]] || files+=("$1:cost=$RUN/$2.cost.json" "$1:log=$RUN/$2/metrics.jsonl")
}

enter_study
side_by_side "${items[@]}"
show base base
for arm in $ARMS; do
  describe_arm "$arm"
  for seed in $SEEDS; do show "$label" "$arm-$seed"; done
done
pairs=()
[[ " $ARMS " != *" grpo_online "* || " $ARMS " != *" verpo_online "* ]] || pairs=(--pairs GRPO-MT=VeRPO-MT)
"$PYTHON" make_report.py --files "${files[@]}" --output_dir "$RUN/report" --baseline base --method Cobalt --published \
  ${pairs[@]+"${pairs[@]}"} \
  --title "The paper in miniature: MiniCoder on MiniCode"
echo "study_paper.sh: done; open $RUN/report/report.html"
