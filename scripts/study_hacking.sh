#!/usr/bin/env bash
# Does training on execution feedback teach a policy to satisfy wrong tests, and does perturbation augmentation cure it?
# MiniCoder on MiniCode: the base model, Cobalt, and Cobalt + perturbation, each over several training seeds, measured
# on the dev set with clean feedback and with feedback from perturbed tests. docs/hacking.md explains every number.
#
#   bash scripts/study_hacking.sh               one GPU, 3 training seeds
#   SIZE=cpu bash scripts/study_hacking.sh      two CPU cores, one seed, minutes: shows that it works, not an effect
#
# A second run continues where the first was stopped. Knobs (environment), where two defaults are given those of
# SIZE=gpu and of SIZE=cpu:
#   RUN=runs/study_hacking    where everything is written; one set of knobs per folder
#   SEEDS="0 1 2" | "0"       training seeds
#   DATA_SEED=0               seed of the problems, of sampling and of the perturbation
#   MODEL=assets/minicoder    the reference model and the policies' start
#   TRAIN_PROBLEMS=1000 | 24  problems to learn from
#   DEV_PROBLEMS=200 | 12     problems to measure on
#   TRAIN_SAMPLES=8 | 4       trajectories per problem to learn from
#   DEV_SAMPLES=8 | 2         trajectories per problem to measure on
#   TURNS=8 | 2               turns after the first when measuring
#   PERTURBED_RATIO=0.3       share of perturbed contexts in the augmented training set
#   STEPS=60 | 2              GRPO steps, the same for both training sets
#   PRESET=one-gpu | cpu      training preset
#   BATCH_SIZE=512 | 64       sequences that are sampled together
#   GPUS=                     e.g. "0 1 2 3": work on so many policies at a time; default: one after the other
#   JUDGE_MODEL=              a LiteLLM model that sorts the cases into categories (keys from the environment); none: no
#                             judge
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Arguments are hydra overrides for both trainings. Exit codes: 0 done, 1 a failure in work side by side (GPUS), 2 other
# knobs in this folder, or arguments that are no overrides, 3 this machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
source scripts/lib/policies.sh
if asks_for_help "$@"; then
  show_help
  exit 0
fi
take_overrides "$@"

case ${SIZE:=gpu} in
  gpu)
    : "${SEEDS:=0 1 2}"
    : "${TRAIN_PROBLEMS:=1000}"
    : "${DEV_PROBLEMS:=200}"
    : "${TRAIN_SAMPLES:=8}"
    : "${DEV_SAMPLES:=8}"
    : "${TURNS:=8}"
    : "${STEPS:=60}"
    : "${PRESET:=one-gpu}"
    : "${BATCH_SIZE:=512}"
    ;;
  cpu)
    : "${SEEDS:=0}"
    : "${TRAIN_PROBLEMS:=24}"
    : "${DEV_PROBLEMS:=12}"
    : "${TRAIN_SAMPLES:=4}"
    : "${DEV_SAMPLES:=2}"
    : "${TURNS:=2}"
    : "${STEPS:=2}"
    : "${PRESET:=cpu}"
    : "${BATCH_SIZE:=64}"
    ;;
  *)
    refuse "SIZE is gpu or cpu, not '$SIZE'"
    ;;
esac
: "${RUN:=runs/study_hacking}"
: "${DATA_SEED:=0}"
: "${MODEL:=assets/minicoder}"
: "${PERTURBED_RATIO:=0.3}"
: "${JUDGE_MODEL:=}"
read -ra gpus <<<"${GPUS:-}"
LEARNING_TURNS=2
overrides=("$@")

enter_environment
keep_settings "$RUN" "SEEDS=$SEEDS DATA_SEED=$DATA_SEED MODEL=$MODEL TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES \
DEV=$DEV_PROBLEMS x $DEV_SAMPLES TURNS=$TURNS RATIO=$PERTURBED_RATIO STEPS=$STEPS PRESET=$PRESET \
BATCH=$BATCH_SIZE JUDGE=$JUDGE_MODEL OVERRIDES=${overrides[*]}"

perturb() { # PROBLEMS NAME: the fully specified problems, with two wrong public tests each
  "$PYTHON" preproc/run_perturbation.py --input_file "$RUN/$1.jsonl" --output_file "$RUN/$2.jsonl" --seed "$DATA_SEED"
}

trajectories() { # NAME PROBLEMS POLICY SAMPLES TURNS: one first turn, then clean and perturbed feedback on it
  local name=$1
  local problems=$2
  local policy=$3
  local samples=$4
  local turns=$5
  roll_out "$name" "$problems" "$policy" "$samples" "$samples" "$turns"
  stage "$name-ptb-turn0" perturb "$name.turn0" "$name-ptb.turn0"
  repair_and_evaluate "$name-ptb" "$name-ptb.turn0" "$policy" "$samples" "$turns" --feedback_tests perturbed
}

measure() { # NAME POLICY: everything that the report shows of a policy
  local name=$1
  local policy=$2
  trajectories "$name" minicode_dev "$policy" "$DEV_SAMPLES" "$TURNS"
  stage "$name-cases" "$PYTHON" extract_turn_level_errors.py --data_file "$RUN/dev-ptb.jsonl" \
    -i "$RUN/$name-ptb.jsonl" -o "$RUN/$name.cases.jsonl" --dynamic --seed "$DATA_SEED"
  if [[ -n $JUDGE_MODEL ]]; then
    stage "$name-judge" "$PYTHON" run_llm_judge.py --model_name "$JUDGE_MODEL" \
      -i "$RUN/$name.cases.jsonl" -o "$RUN/$name.judged.jsonl"
  fi
}

offline() { # train | base: trajectories to learn from, or the base model's measurement
  case $1 in
    train) trajectories train minicode_train "$MODEL" "$TRAIN_SAMPLES" "$LEARNING_TURNS" ;;
    base) measure base "$MODEL" ;;
  esac
}

train_and_measure() { # NAME, as ARM-SEED
  local name=$1
  local arm=${name%-*}
  local seed=${name##*-}
  stage "$name-train" train_policy "$name" "parquet-$arm" "$seed" "${overrides[@]}"
  stage "$name-merge" merge_policy "$name" "$RUN/$name/model"
  measure "$name" "$RUN/$name/model"
}

# Trainings get their GPU from Ray; CUDA_VISIBLE_DEVICES is for the commands that sample.
side_by_side() { # FUNCTION ITEMS...: FUNCTION of each item
  local function=$1
  local items=("${@:2}")
  local item
  if ((${#gpus[@]} == 0)); then
    for item in "${items[@]}"; do "$function" "$item"; done
    return
  fi
  echo "== $function ${items[*]}: side by side, see $RUN/logs/gpu-*.log"
  local number
  local pids=()
  for number in "${!gpus[@]}"; do
    (
      export CUDA_VISIBLE_DEVICES=${gpus[number]}
      for ((item = number; item < ${#items[@]}; item += ${#gpus[@]})); do "$function" "${items[item]}"; done
    ) >>"$RUN/logs/gpu-${gpus[number]}.log" 2>&1 &
    pids+=($!)
  done
  local failed=""
  for number in "${!pids[@]}"; do wait "${pids[number]}" || failed+=" $RUN/logs/gpu-${gpus[number]}.log"; done
  if [[ -n $failed ]]; then
    echo "study_hacking.sh: error: stopped early; see$failed" >&2
    exit 1
  fi
}

files=()
show() { # LABEL NAME: what the report reads
  files+=("$1:clean=$RUN/$2.jsonl" "$1:perturbed=$RUN/$2-ptb.jsonl" "$1:hacking=$RUN/$2.cases.jsonl")
  [[ -z $JUDGE_MODEL ]] || files+=("$1:judged=$RUN/$2.judged.jsonl")
  [[ $2 == base ]] || files+=("$1:log=$RUN/$2/metrics.jsonl")
}

((${#overrides[@]} == 0)) || stage overrides check_overrides "${overrides[@]}"
trap stop_services EXIT
start_services "$RUN/logs"

make_problems
stage dev-ptb perturb minicode_dev dev-ptb

side_by_side offline train base

stage contexts-cobalt cut_contexts train contexts-cobalt
stage contexts-augmented cut_contexts train contexts-augmented \
  --perturbed_file "$RUN/train-ptb.jsonl" --perturbed_ratio "$PERTURBED_RATIO"
stage contexts-val cut_contexts base contexts-val --is_test
stage parquet-cobalt make_parquet parquet-cobalt contexts-cobalt contexts-val
stage parquet-augmented make_parquet parquet-augmented contexts-augmented contexts-val

policies=()
for arm in cobalt augmented; do
  for seed in $SEEDS; do policies+=("$arm-$seed"); done
done
side_by_side train_and_measure "${policies[@]}"

show base base
for seed in $SEEDS; do show "Cobalt" "cobalt-$seed"; done
for seed in $SEEDS; do show "Cobalt + perturbation" "augmented-$seed"; done
"$PYTHON" make_report.py --files "${files[@]}" --output_dir "$RUN/report" --baseline base \
  --title "In-context reward hacking: MiniCoder on MiniCode"
echo "study_hacking.sh: done; open $RUN/report/report.html"
