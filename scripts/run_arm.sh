#!/usr/bin/env bash
# One arm of the comparison with online training (docs/online.md): trains MiniCoder by one method with one seed, until a
# number of steps or a budget is used up; then measures Pass@1 at turns 0 to 8 on the dev set, the control with another
# problem's feedback, and what all of it cost. METHOD=data makes what all arms share: run it once, before them.
#
#   METHOD=data bash scripts/run_arm.sh
#   METHOD=cobalt SEED=0 STEPS=60 bash scripts/run_arm.sh
#   METHOD=grpo_online SEED=0 BUDGET="{responses: 30720}" bash scripts/run_arm.sh
#
# Seeds may run side by side, also on one GPU: each starts a Ray of its own. A second run continues where the first was
# stopped, training from its last checkpoint. Arguments are hydra overrides of the training. Knobs (environment), where
# two defaults are given those of SIZE=gpu and of SIZE=cpu:
#   METHOD=                   data, cobalt, single_turn, grpo_online, verpo_online
#   SEED=0                    seed of training
#   STEPS=                    training steps
#   BUDGET=                   instead of STEPS: "{responses: N}" or "{gpu_seconds: X}" (cobalt.budget)
#   RUN=runs/arms             where everything is written; one set of knobs per folder
#   ARM=$METHOD-...-$SEED     the arm's folder in RUN
#   DATA_SEED=0               seed of the problems and of sampling
#   MODEL=assets/minicoder    the reference model and the policies' start
#   TRAIN_PROBLEMS=1000 | 24  problems to learn from
#   DEV_PROBLEMS=200 | 12     problems to measure on
#   TRAIN_SAMPLES=8 | 4       trajectories per problem to learn from (Cobalt)
#   DEV_SAMPLES=8 | 2         trajectories per problem to measure on
#   PRESET=one-gpu | cpu      training preset
#   TEST_FREQ=10 | 1          steps between validations, which the learning curves are made of
#   MEASURE=1                 0: stop after training; a later run measures
#   BATCH_SIZE=512 | 64       sequences that are sampled together
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Exit codes: 0 done, 2 other knobs in this folder or a missing one, 3 this machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi
source scripts/lib/policies.sh

case ${SIZE:=gpu} in
  gpu) defaults=(1000 200 8 8 one-gpu 10 512) ;;
  cpu) defaults=(24 12 4 2 cpu 1 64) ;;
  *) refuse "SIZE is gpu or cpu, not '$SIZE'" ;;
esac
: "${TRAIN_PROBLEMS:=${defaults[0]}}" "${DEV_PROBLEMS:=${defaults[1]}}" "${TRAIN_SAMPLES:=${defaults[2]}}"
: "${DEV_SAMPLES:=${defaults[3]}}" "${PRESET:=${defaults[4]}}" "${TEST_FREQ:=${defaults[5]}}"
: "${BATCH_SIZE:=${defaults[6]}}" "${RUN:=runs/arms}" "${SEED:=0}" "${DATA_SEED:=0}" "${MODEL:=assets/minicoder}"

case ${METHOD:-} in
  data) ;;
  cobalt) recipe=grpo_multi_turn parquet=parquet-contexts ;;
  single_turn) recipe=grpo_single_turn parquet=parquet-problems ;;
  grpo_online | verpo_online) recipe=$METHOD parquet=parquet-problems ;;
  *) refuse "METHOD is data, cobalt, single_turn, grpo_online or verpo_online, not '${METHOD:-}'" ;;
esac
if [[ $METHOD != data ]]; then
  [[ -n ${STEPS:-}${BUDGET:-} ]] || refuse "set STEPS or BUDGET"
  [[ -f $RUN/done/parquet-contexts ]] || refuse "$RUN has no data yet: run METHOD=data first, with the same knobs"
fi

make_data() {
  start_services "$RUN/logs"
  make_problems
  roll_out train minicode_train "$MODEL" "$TRAIN_SAMPLES" "$TRAIN_SAMPLES" "$LEARNING_TURNS"
  roll_out base minicode_dev "$MODEL" "$DEV_SAMPLES" "$DEV_SAMPLES" "$MEASURED_TURNS"
  repair_and_evaluate base-control base.turn0 "$MODEL" 1 "$CONTROL_TURNS" --feedback_from other_problem
  stage contexts cut_contexts train contexts
  stage parquet-problems single_turn_parquet parquet-problems
  stage parquet-contexts make_parquet parquet-contexts contexts contexts # its test.parquet is not used
}

train_arm() { # by the recipe, validated on the dev problems before and every TEST_FREQ steps
  MODEL=$MODEL PRESET=$PRESET OUTPUT_DIR=$RUN/$ARM/training VAL_FILE=$RUN/parquet-problems/test.parquet \
    TRAIN_FILE=$RUN/$parquet/train.parquet bash "scripts/train_$recipe.sh" \
    "trainer.total_training_steps=${STEPS:-$WITHOUT_END}" "trainer.total_epochs=$WITHOUT_END" \
    "cobalt.budget=${BUDGET:-null}" "+data.seed=$SEED" "cobalt.seed=$SEED" "trainer.test_freq=$TEST_FREQ" "$@"
}

count_cost() { # of the training; the trajectories that Cobalt learns from are part of its bill
  local collected=()
  [[ $METHOD != cobalt ]] || collected=(--collection "$RUN/train.turn0.jsonl" "$RUN/train.turns.jsonl" "$RUN/train.jsonl")
  "$PYTHON" -m cobalt report cost --training "$RUN/$ARM/training" ${collected[@]+"${collected[@]}"} \
    --output "$RUN/$ARM/cost.json"
}

enter_environment
keep_settings "$RUN" "DATA_SEED=$DATA_SEED MODEL=$MODEL TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES \
DEV=$DEV_PROBLEMS x $DEV_SAMPLES PRESET=$PRESET BATCH=$BATCH_SIZE"
trap stop_services EXIT
if [[ $METHOD == data ]]; then
  make_data
  exit
fi

limit=${STEPS:+$STEPS-steps}
limit=${limit:-$(tr -cs 'a-z0-9_\n' '-' <<<"$BUDGET" | sed 's/^-//; s/-$//')}
: "${ARM:=$METHOD-$limit-$SEED}"
mkdir -p "$RUN/$ARM" "$RUN/done/$ARM"
start_services "$RUN/$ARM/logs"
stage "$ARM-train" train_arm "$@"
stage "$ARM-cost" count_cost
stage "$ARM-merge" merge_policy "$ARM/training" "$RUN/$ARM/model"
[[ ${MEASURE:-1} == 1 ]] || exit 0
roll_out "$ARM/measured" minicode_dev "$RUN/$ARM/model" "$DEV_SAMPLES" "$DEV_SAMPLES" "$MEASURED_TURNS"
repair_and_evaluate "$ARM/control" "$ARM/measured.turn0" "$RUN/$ARM/model" 1 "$CONTROL_TURNS" \
  --feedback_from other_problem
echo "run_arm.sh: done; $RUN/$ARM"
