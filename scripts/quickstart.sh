#!/usr/bin/env bash
# The whole loop on this machine, from generated problems to a measured improvement, in about 12 minutes on 2 idle CPU
# cores (plus about 3 for the installation): MiniCode problems -> sandboxed execution -> multi-turn trajectories of
# MiniCoder -> partial contexts -> GRPO with veRL -> Pass@1 per turn, before and after.
#
# A second run continues where the first was stopped. Arguments are hydra overrides of the training. Knobs
# (environment):
#   RUN=runs/quickstart       where everything is written; one set of knobs per folder
#   SEED=0                    seed of the data and of sampling
#   TRAIN_SEED=$SEED          seed of training; with another one, copy a folder that has the stages before `train`
#   MODEL=assets/minicoder    the reference model and the policy's start
#   TRAIN_PROBLEMS=120        problems to learn from
#   DEV_PROBLEMS=96           problems to measure on
#   TRAIN_SAMPLES=8           trajectories per problem to learn from
#   DEV_SAMPLES=3             trajectories per problem to measure on
#   STEPS=60                  GRPO steps
#   BATCH_SIZE=128            sequences that are sampled together
#   PRESET=cpu                training preset: cpu, or one-gpu
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Exit codes: 0 done, 2 other settings in this folder, or arguments that are no overrides, 3 this machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/policies.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi
take_overrides "$@"

: "${RUN:=runs/quickstart}"
: "${SEED:=0}"
: "${TRAIN_SEED:=$SEED}"
: "${MODEL:=assets/minicoder}"
: "${TRAIN_PROBLEMS:=120}"
: "${DEV_PROBLEMS:=96}"
: "${TRAIN_SAMPLES:=8}"
: "${DEV_SAMPLES:=3}"
: "${STEPS:=60}"
: "${BATCH_SIZE:=128}"
: "${PRESET:=cpu}"
DATA_SEED=$SEED
BASE_FIRST_PROGRAMS=16

enter_environment
keep_settings "$RUN" "SEED=$SEED TRAIN_SEED=$TRAIN_SEED MODEL=$MODEL PRESET=$PRESET STEPS=$STEPS \
TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES DEV=$DEV_PROBLEMS x $DEV_SAMPLES BATCH=$BATCH_SIZE$(unusual_answers) OVERRIDES=$*"

measure() { # NAME POLICY FIRST_PROGRAMS: on the dev set, and the control with one sample
  roll_out "$1" minicode_dev "$2" "$3" "$DEV_SAMPLES" "$MEASURED_TURNS"
  repair_and_evaluate "$1-control" "$1.turn0" "$2" 1 "$CONTROL_TURNS" --feedback_from other_problem
}

(($# == 0)) || stage overrides check_overrides "$@"
trap stop_services EXIT
start_services "$RUN/logs"

make_problems

# Offline: the reference model's trajectories, cut into partial contexts.
roll_out train minicode_train "$MODEL" "$TRAIN_SAMPLES" "$TRAIN_SAMPLES" "$LEARNING_TURNS"
stage contexts cut_contexts train contexts

measure base "$MODEL" "$BASE_FIRST_PROGRAMS"

# Online: GRPO completes each partial trajectory with one program.
stage val-contexts cut_contexts base val_contexts --is_test
stage parquet make_parquet parquet contexts val_contexts
stage train train_policy grpo_multi_turn "$MODEL" training parquet parquet "$STEPS" "$TRAIN_SEED" "$@"
stage merge merge_policy training "$RUN/model"

measure trained "$RUN/model" "$DEV_SAMPLES"

"$PYTHON" -m cobalt report loop --base "$RUN/base.jsonl" --trained "$RUN/trained.jsonl" \
  --base_first_turn "$RUN/base.turn0.jsonl" \
  --base_control "$RUN/base-control.jsonl" --trained_control "$RUN/trained-control.jsonl" --output "$RUN/result"
echo "quickstart.sh: done; $RUN/result.{md,json,png} hold this table and its curve"
