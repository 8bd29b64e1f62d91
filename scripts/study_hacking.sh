#!/usr/bin/env bash
# Does training on execution feedback teach a policy to satisfy wrong tests, and what cures it? MiniCoder on MiniCode: the
# base model and policies trained in several ways (ARMS), each over several training seeds, measured on the dev set with
# clean feedback and with feedback from perturbed tests. docs/hacking.md explains every number.
#
#   bash scripts/study_hacking.sh               one GPU, 3 training seeds
#   GPUS="0 0 0" bash scripts/study_hacking.sh  three policies at a time on that GPU
#   SIZE=cpu bash scripts/study_hacking.sh      two CPU cores, one seed, minutes: shows that it works, not an effect
#
# Arms: cobalt; augmented (PERTURBED_RATIO contexts with wrong feedback); KIND+RATIO, for example off_by_one+0.1 (such
# contexts of any kind and share); single_turn (GRPO on problems); against hacking: hidden_tests (public tests do not count
# in the reward), no_improvement (no such part of the reward), penalty (PENALTY where the dynamic check fires), no_expected
# (feedback in the contexts without expected outputs).
#
# A second run continues where the first was stopped. Knobs (environment), where two defaults are given those of
# SIZE=gpu and of SIZE=cpu:
#   RUN=runs/study_hacking    where everything is written; one set of knobs per folder
#   ARMS="cobalt augmented single_turn" | "cobalt augmented"
#   SEEDS="0 1 2" | "0"       training seeds
#   DATA_SEED=0               seed of the problems, of sampling and of the perturbation
#   MODEL=assets/minicoder    the reference model and the policies' start
#   TRAIN_PROBLEMS=1000 | 24  problems to learn from
#   DEV_PROBLEMS=200 | 12     problems to measure on
#   TRAIN_SAMPLES=8 | 4       trajectories per problem to learn from
#   DEV_SAMPLES=8 | 2         trajectories per problem to measure on
#   TURNS=8 | 2               turns after the first when measuring
#   KIND=swapped              how tests are perturbed (run_perturbation.py --kind) for measuring and in the arm augmented
#   COUNT=                    wrong tests per problem; default: that of the kind
#   PERTURBED_RATIO=0.3       share of perturbed contexts in the arm augmented
#   PENALTY=0.5               of the arm penalty
#   STEPS=60 | 2              GRPO steps, the same for all arms
#   PRESET=one-gpu | cpu      training preset
#   BATCH_SIZE=512 | 64       sequences that are sampled together
#   GPUS=                     e.g. "0 1 2 3": work on so many policies at a time, each with services of its own; a GPU may
#                             be named more than once; default: one after the other
#   JUDGE_MODEL=              a LiteLLM model that sorts the cases into categories (keys from the environment); none: no
#                             judge
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Arguments are hydra overrides for all trainings. Exit codes: 0 done, 1 a failure in work side by side (GPUS), 2 other
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
    : "${ARMS:=cobalt augmented single_turn}"
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
    : "${ARMS:=cobalt augmented}"
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
: "${KIND:=swapped}"
: "${COUNT:=}"
: "${PERTURBED_RATIO:=0.3}"
: "${PENALTY:=0.5}"
: "${JUDGE_MODEL:=}"
read -ra gpus <<<"${GPUS:-}"
overrides=("$@")

# ARM: sets label (in the report), contexts (NAME FLAGS...; none: problems), settings (hydra overrides), and for wrong
# feedback kind and ratio.
describe_arm() {
  label="" kind="" ratio="" contexts=(contexts-cobalt) settings=()
  case $1 in
    cobalt) label="Cobalt" ;;
    augmented) label="Cobalt + perturbation" kind=$KIND ratio=$PERTURBED_RATIO ;;
    ?*+0.?*) label="Cobalt + $1" kind=${1%%+*} ratio=${1#*+} ;;
    single_turn) label="single-turn GRPO" contexts=() settings=("trainer.total_epochs=$WITHOUT_END") ;;
    hidden_tests) label="Cobalt, hidden tests only" contexts=(contexts-hidden_tests --reward_tests hidden) ;;
    no_improvement) label="Cobalt, no improvement" settings=(+custom_reward_function.reward_kwargs.improvement=false) ;;
    penalty) label="Cobalt, penalty" settings=("+custom_reward_function.reward_kwargs.hard_coding=$PENALTY") ;;
    no_expected) label="Cobalt, no expected output" contexts=(contexts-no_expected --hide_expected) ;;
    *) refuse "no arm '$1'; see --help" ;;
  esac
  [[ -z $kind ]] \
    || contexts=("contexts-$kind-$ratio" --perturbed_file "$RUN/train-ptb-$kind.jsonl" --perturbed_ratio "$ratio")
}
for arm in $ARMS; do describe_arm "$arm"; done

enter_environment
keep_settings "$RUN" "SEEDS=$SEEDS DATA_SEED=$DATA_SEED MODEL=$MODEL TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES \
DEV=$DEV_PROBLEMS x $DEV_SAMPLES TURNS=$TURNS RATIO=$PERTURBED_RATIO STEPS=$STEPS PRESET=$PRESET \
BATCH=$BATCH_SIZE JUDGE=$JUDGE_MODEL KIND=$KIND COUNT=$COUNT PENALTY=$PENALTY OVERRIDES=${overrides[*]}"

perturb() { # PROBLEMS NAME KIND: the fully specified problems, with wrong public tests
  "$PYTHON" preproc/run_perturbation.py --input_file "$RUN/$1.jsonl" --output_file "$RUN/$2.jsonl" --seed "$DATA_SEED" \
    --kind "$3" ${COUNT:+--count "$COUNT"}
}

mislead() { # NAME POLICY SAMPLES TURNS KIND ENDING: the turns after NAME.turn0 once more, under perturbed feedback
  local name=$1-$6
  stage "$name-turn0" perturb "$1.turn0" "$name.turn0" "$5"
  repair_and_evaluate "$name" "$name.turn0" "$2" "$3" "$4" --feedback_tests perturbed
}

measure() { # NAME POLICY: everything that the report shows of a policy
  local name=$1
  local policy=$2
  roll_out "$name" minicode_dev "$policy" "$DEV_SAMPLES" "$DEV_SAMPLES" "$TURNS"
  mislead "$name" "$policy" "$DEV_SAMPLES" "$TURNS" "$KIND" ptb
  stage "$name-cases" "$PYTHON" extract_turn_level_errors.py --data_file "$RUN/dev-ptb.jsonl" \
    -i "$RUN/$name-ptb.jsonl" -o "$RUN/$name.cases.jsonl" --dynamic --seed "$DATA_SEED"
  if [[ -n $JUDGE_MODEL ]]; then
    stage "$name-judge" "$PYTHON" run_llm_judge.py --model_name "$JUDGE_MODEL" \
      -i "$RUN/$name.cases.jsonl" -o "$RUN/$name.judged.jsonl"
  fi
}

offline() { # base, train, or a kind: the base model's measurement, trajectories to learn from, those misled by a kind
  case $1 in
    base) measure base "$MODEL" ;;
    train) roll_out train minicode_train "$MODEL" "$TRAIN_SAMPLES" "$TRAIN_SAMPLES" "$LEARNING_TURNS" ;;
    *) mislead train "$MODEL" "$TRAIN_SAMPLES" "$LEARNING_TURNS" "$1" "ptb-$1" ;;
  esac
}

make_data() { # ARM: parquet-ARM
  describe_arm "$1"
  if ((${#contexts[@]} == 0)); then
    stage "parquet-$1" single_turn_parquet "parquet-$1"
    return
  fi
  stage "${contexts[0]}" cut_contexts train "${contexts[@]}"
  stage "parquet-$1" make_parquet "parquet-$1" "${contexts[0]}" contexts-val
}

train_and_measure() { # NAME, as ARM-SEED
  local name=$1
  local arm=${name%-*}
  local seed=${name##*-}
  describe_arm "$arm"
  local recipe=multi_turn
  ((${#contexts[@]} > 0)) || recipe=single_turn
  RECIPE=$recipe stage "$name-train" train_policy "$name" "parquet-$arm" "$seed" ${settings[@]+"${settings[@]}"} \
    ${overrides[@]+"${overrides[@]}"}
  stage "$name-merge" merge_policy "$name" "$RUN/$name/model"
  measure "$name" "$RUN/$name/model"
}

# A worker has a Ray of its own, which sees its GPU alone.
side_by_side() { # FUNCTION ITEMS...: FUNCTION of each item
  local function=$1
  local items=("${@:2}")
  local item
  if ((${#gpus[@]} == 0)); then
    for item in "${items[@]}"; do "$function" "$item"; done
    return
  fi
  echo "== $function ${items[*]}: side by side, see $RUN/logs/worker-*.log"
  local number
  local pids=()
  for number in "${!gpus[@]}"; do
    ((number < ${#items[@]})) || break
    (
      export CUDA_VISIBLE_DEVICES=${gpus[number]}
      unset RAY_ADDRESS
      ray_pid="" evaluator_is_ours=""
      trap stop_services EXIT
      start_services "$RUN/logs/worker-$number"
      for ((item = number; item < ${#items[@]}; item += ${#gpus[@]})); do "$function" "${items[item]}"; done
    ) >>"$RUN/logs/worker-$number.log" 2>&1 &
    pids+=($!)
  done
  local failed=""
  for number in "${!pids[@]}"; do wait "${pids[number]}" || failed+=" $RUN/logs/worker-$number.log"; done
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
stage dev-ptb perturb minicode_dev dev-ptb "$KIND"

kinds=()
for arm in $ARMS; do
  describe_arm "$arm"
  [[ -z $kind || " ${kinds[*]-} " == *" $kind "* ]] || kinds+=("$kind")
done
side_by_side offline train base
((${#kinds[@]} == 0)) || side_by_side offline "${kinds[@]}"

stage contexts-val cut_contexts base contexts-val --is_test
policies=()
for arm in $ARMS; do
  make_data "$arm"
  for seed in $SEEDS; do policies+=("$arm-$seed"); done
done
side_by_side train_and_measure "${policies[@]}"

show base base
for arm in $ARMS; do
  describe_arm "$arm"
  for seed in $SEEDS; do show "$label" "$arm-$seed"; done
done
"$PYTHON" make_report.py --files "${files[@]}" --output_dir "$RUN/report" --baseline base \
  --title "In-context reward hacking: MiniCoder on MiniCode"
echo "study_hacking.sh: done; open $RUN/report/report.html"
