#!/usr/bin/env bash
# Does training on execution feedback teach a policy to satisfy wrong tests, and what cures it? MiniCoder on MiniCode: the
# base model and policies trained in several ways (ARMS), each over several training seeds, measured on the dev set with
# clean feedback and with feedback from perturbed tests. docs/hacking.md explains every number.
#
#   bash scripts/study_hacking.sh               one GPU, 3 training seeds
#   GPUS="0 0 0" bash scripts/study_hacking.sh  three policies at a time on that GPU
#   SIZE=cpu bash scripts/study_hacking.sh      two CPU cores, one seed, minutes: shows that it works, not an effect
#
# A second run continues where the first was stopped. Knobs, and those below:
#   RUN=runs/study_hacking    where everything is written; one set of knobs per folder, but for ARMS, SEEDS and GPUS
#   ARMS="cobalt augmented single_turn" | "cobalt augmented"
#
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/arms.sh
if asks_for_help "$@"; then
  show_help lib/arms.sh
  exit 0
fi
: "${RUN:=runs/study_hacking}" "${TEST_FREQ:=-1}"
set_knobs "cobalt augmented single_turn" "cobalt augmented" "$@"
first=(problems/minicode offline/base)
plan_work

measure() { # NAME POLICY: everything that the report shows of it
  roll_out "$1" minicode_dev "$2" "$DEV_SAMPLES" "$DEV_SAMPLES" "$TURNS"
  measure_hacking "$1" "$2"
}

files=()
show() { # LABEL NAME: what the report reads
  files+=("$1:clean=$RUN/$2.jsonl" "$1:perturbed=$RUN/$2-ptb.jsonl" "$1:hacking=$RUN/$2.cases.jsonl")
  [[ -z $JUDGE_MODEL ]] || files+=("$1:judged=$RUN/$2.judged.jsonl")
  [[ $2 == base ]] || files+=("$1:log=$RUN/$2/metrics.jsonl")
}

enter_study
side_by_side "${items[@]}"
show base base
for arm in $ARMS; do
  describe_arm "$arm"
  for seed in $SEEDS; do show "$label" "$arm-$seed"; done
done
"$PYTHON" make_report.py --files "${files[@]}" --output_dir "$RUN/report" --baseline base \
  --title "In-context reward hacking: MiniCoder on MiniCode"
echo "study_hacking.sh: done; open $RUN/report/report.html"
