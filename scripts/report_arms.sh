#!/usr/bin/env bash
# Tables and figures from the arms of scripts/run_arm.sh: Pass@1 at turns 0 to 8 with intervals, learning curves over
# GPU-seconds, cost, what is gained by reading feedback, repeated programs. Arms that differ in their seed only are
# repetitions of one run.
#
#   bash scripts/report_arms.sh                       all arms in RUN
#   bash scripts/report_arms.sh NAME=ARM[,ARM...]...  these, under names of your own; the first is compared with
#
# Knobs (environment): RUN=runs/arms, BASELINE= (the run that the others are compared with; default: the first), PYTHON.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi
: "${RUN:=runs/arms}" "${PYTHON:=python}"

if (($# == 0)); then
  declare -A arms=()
  for folder in "$RUN"/*/training; do
    [[ -d $folder ]] || refuse "$RUN holds no arm; scripts/run_arm.sh makes them"
    arm=$(basename "$(dirname "$folder")")
    arms[${arm%-*}]+=${arms[${arm%-*}]:+,}$arm
  done
  set --
  for name in $(printf '%s\n' "${!arms[@]}" | sort); do set -- "$@" "$name=${arms[$name]}"; done
fi

files=()
for run in "$@"; do
  name=${run%%=*}
  IFS=, read -ra of_run <<<"${run#*=}"
  for arm in "${of_run[@]}"; do
    folder=$RUN/$arm
    files+=("$name:clean=$folder/measured.jsonl" "$name:control=$folder/control.jsonl" "$name:cost=$folder/cost.json"
      "$name:log=$folder/training/metrics.jsonl")
  done
done
files+=("base:clean=$RUN/base.jsonl" "base:control=$RUN/base-control.jsonl")
"$PYTHON" -m cobalt report --files "${files[@]}" --output_dir "$RUN/report" --title "Contextual bandit and online training" \
  ${BASELINE:+--baseline "$BASELINE"}
echo "report_arms.sh: done; open $RUN/report/report.html"
