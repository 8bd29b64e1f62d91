#!/usr/bin/env bash
# The paper's bound, measured: MiniCoder is trained by Cobalt on MiniCode with KL coefficients over three decades; each
# policy, and those that a training passes through, is held against the reference: J beside J_step, KL and total variation
# by turn, what a failed program costs later. docs/theory.md says what is measured, and how.
#
#   bash scripts/study_theory.sh                one GPU, one policy after the other
#   GPUS="0 0 0" bash scripts/study_theory.sh   three policies at a time on that GPU
#   SIZE=cpu bash scripts/study_theory.sh       two CPU cores, two trainings of two steps
#
# A second run continues where the first was stopped. Knobs, and those below:
#   RUN=runs/study_theory     where everything is written; one set of knobs per folder, but for ARMS, ALONG, SEEDS and GPUS
#   ARMS="kl+1e-4 kl+1e-3 kl+1e-2 kl+1e-1" | "kl+1e-3 kl+1e-1"
#   ALONG=kl+1e-4 | kl+1e-3   arms whose policies are also measured along their training
#   EVERY=20 | 1              training steps between these; --plan leaves them out
#   SEEDS=0                   training seeds
#   TURNS=4 | 2               turns after the first: T - 1
#
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/arms.sh
if asks_for_help "$@"; then
  show_help lib/arms.sh
  exit 0
fi
: "${RUN:=runs/study_theory}" "${SEEDS:=0}" "${TEST_FREQ:=-1}"
if [[ ${SIZE:-gpu} == gpu ]]; then
  : "${ALONG=kl+1e-4}" "${EVERY:=20}" "${TURNS:=4}"
else
  : "${ALONG=kl+1e-3}" "${EVERY:=1}" "${TURNS:=2}"
fi
set_knobs "kl+1e-4 kl+1e-3 kl+1e-2 kl+1e-1" "kl+1e-3 kl+1e-1" "trainer.save_freq=$EVERY" "$@"
first=(problems/minicode offline/base)
measured_against=offline/base
plan_work

measure() { # NAME POLICY: theory/NAME; sampled as training samples, and as `theory measure` does
  roll_out "$1" minicode_dev "$2" "$DEV_SAMPLES" "$DEV_SAMPLES" "$TURNS" --temperature 1 --top_p 1
  stage "$1-theory" compare "$1" "$2"
}

compare() { # NAME POLICY: with the reference, on the contexts of its trajectories
  stop_model
  "$PYTHON" -m cobalt theory measure --policy "$2" --reference "$MODEL" --contexts "$RUN/base.jsonl" \
    --own "$RUN/$1.jsonl" -o "$RUN/theory/$1.jsonl" --enable_thinking --max_tokens "$MAX_TOKENS" --seed "$DATA_SEED" \
    --batch_size "$BATCH_SIZE"
}

checkpoint() { # NAME, as ARM-SEED-step-N
  stage "$1-merge" bash scripts/merge_checkpoint.sh "$RUN/${1%-step-*}" "$RUN/$1/model" --step "${1##*-}"
  measure "$1" "$RUN/$1/model"
}

checkpoints=() files=("$RUN/theory/base.jsonl")
for arm in $ARMS; do
  for seed in $SEEDS; do
    if [[ " $ALONG " == *" $arm "* ]]; then
      for ((step = EVERY; step < STEPS; step += EVERY)); do
        checkpoints+=("checkpoint/$arm-$seed-step-$step")
        files+=("$RUN/theory/$arm-$seed-step-$step.jsonl")
      done
    fi
    files+=("$RUN/theory/$arm-$seed.jsonl")
  done
done

enter_study
side_by_side "${items[@]}" ${checkpoints[@]+"${checkpoints[@]}"}
"$PYTHON" -m cobalt theory report -i "${files[@]}" -o "$RUN/report"
echo "study_theory.sh: done; $RUN/report/report.md and the figures beside it"
