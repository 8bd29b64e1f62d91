# shellcheck shell=bash
# Sourced by the studies of many policies. An arm is a way to train MiniCoder on MiniCode; with a seed, ARM-SEED, it is a
# policy. Each policy is trained, its bill is written, and it is measured, side by side with others on the GPUs that there
# are. A second run continues where the first was stopped; what is finished is not done again. A study defines
# `measure NAME POLICY`, what it wants to know of a policy, and makes minicode_train and minicode_dev before run_arms.
#
# Arms: cobalt; single_turn (GRPO on problems); ft_cobalt (Cobalt from single_turn's policy, on that one's trajectories);
# grpo_online and verpo_online (they spend what cobalt's whole bill says, see BUDGET); other_reference (Cobalt on
# trajectories of REFERENCE); augmented (a share PERTURBED_RATIO of contexts with wrong feedback); KIND+RATIO, for example
# off_by_one+0.1 (such contexts of any kind and share). Against hacking: hidden_tests (public tests do not count in the
# reward), no_improvement (no such part of the reward), penalty (PENALTY where the dynamic check fires), no_expected
# (feedback in the contexts without expected outputs). Cobalt with another setting: turns+N (trajectories of N turns),
# cap+M (trajectories per problem, or all), selection+RULE, stop+RULE, kl+X, temperature+X (of the reference),
# trained_reference (trajectories of cobalt's policy), refreshed+N (every N steps the policy collects anew, and is trained
# on from where it is).
#
# Knobs (environment), where two defaults are given those of SIZE=gpu and of SIZE=cpu:
#   SIZE=gpu                  gpu: one or more GPUs; cpu: two cores, minutes, shows that it works, not an effect
#   SEEDS="0 1 2" | "0"       training seeds
#   DATA_SEED=0               seed of the problems, of sampling and of the perturbation
#   MODEL=assets/minicoder    the reference model and the policies' start
#   REFERENCE=assets/minicoder-small    the reference model of the arm other_reference, a folder
#   TRAIN_PROBLEMS=1000 | 24  problems to learn from
#   DEV_PROBLEMS=200 | 12     problems to measure on
#   SHIFTED_PROBLEMS=200 | 12    problems of the shifted set, in the studies that measure on it
#   TRAIN_SAMPLES=8 | 4       trajectories per problem to learn from
#   DEV_SAMPLES=8 | 2         trajectories per problem to measure on
#   TURNS=8 | 2               turns after the first when measuring
#   KIND=swapped              how tests are perturbed (run_perturbation.py --kind) for measuring and in the arm augmented
#   COUNT=                    wrong tests per problem; default: that of the kind
#   PERTURBED_RATIO=0.3       share of perturbed contexts in the arm augmented
#   PENALTY=0.5               of the arm penalty
#   STEPS=60 | 2              GRPO steps
#   BUDGET=gpu_seconds | steps    what the online arms have the same of: gpu_seconds or responses of cobalt with the same
#                             seed, its trajectories included, or steps
#   TEST_FREQ=10 | 2          steps between validations, which learning curves are made of; -1: none
#   PRESET=one-gpu | cpu      training preset
#   MAX_TOKENS=256            of a response, when collecting and when measuring
#   ENGINE=hf                 what policies answer by: hf (Hugging Face) or vllm
#   BATCH_SIZE=512 | 64       sequences that are sampled together, with ENGINE=hf
#   ENGINE_ARGS=              with ENGINE=vllm: arguments of its app, e.g. "tensor_parallel_size=2 max_model_len=16384"
#   GPUS=                     e.g. "0 1 2 3": work on so many policies at a time, each with services of its own; a GPU may
#                             be named more than once; "0,1 2,3": two GPUs each; nothing: one after the other
#   JUDGE_MODEL=              a LiteLLM model that sorts hacking cases into categories (keys from the environment); none: no
#                             judge
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Arguments: --plan says what is left to do and about how long it takes, and ends; others are hydra overrides for all
# trainings. Exit codes: 0 done, 1 a failure in work side by side (GPUS), 2 other knobs in this folder, another run at work
# in it, a knob or an argument that is none, 3 this machine lacks something (said in one line).

source scripts/lib/policies.sh
source scripts/lib/side_by_side.sh

set_knobs() { # ARMS OF_CPU ARGUMENTS...: the arms by default, and those of SIZE=cpu
  local defaults
  case ${SIZE:=gpu} in
    gpu) defaults=("$1" "0 1 2" 1000 200 200 8 8 8 60 one-gpu 512 gpu_seconds 10) ;;
    cpu) defaults=("$2" 0 24 12 12 4 2 2 2 cpu 64 steps 2) ;;
    *) refuse "SIZE is gpu or cpu, not '$SIZE'" ;;
  esac
  : "${ARMS:=${defaults[0]}}" "${SEEDS:=${defaults[1]}}" "${TRAIN_PROBLEMS:=${defaults[2]}}"
  : "${DEV_PROBLEMS:=${defaults[3]}}" "${SHIFTED_PROBLEMS:=${defaults[4]}}" "${TRAIN_SAMPLES:=${defaults[5]}}"
  : "${DEV_SAMPLES:=${defaults[6]}}" "${TURNS:=${defaults[7]}}" "${STEPS:=${defaults[8]}}" "${PRESET:=${defaults[9]}}"
  : "${BATCH_SIZE:=${defaults[10]}}" "${BUDGET:=${defaults[11]}}" "${TEST_FREQ:=${defaults[12]}}" "${DATA_SEED:=0}"
  : "${MODEL:=assets/minicoder}" "${REFERENCE:=assets/minicoder-small}" "${KIND:=swapped}" "${COUNT:=}"
  : "${PERTURBED_RATIO:=0.3}" "${PENALTY:=0.5}" "${JUDGE_MODEL:=}" "${ENGINE:=hf}" "${ENGINE_ARGS:=}"
  case $BUDGET in
    gpu_seconds | responses | steps) ;;
    *) refuse "BUDGET is gpu_seconds, responses or steps, not '$BUDGET'" ;;
  esac
  case $ENGINE in
    hf | vllm) ;;
    *) refuse "ENGINE is hf or vllm, not '$ENGINE'" ;;
  esac
  read -ra gpus <<<"${GPUS:-}"
  plan_only="" overrides=()
  local argument
  for argument in "${@:3}"; do
    if [[ $argument == --plan ]]; then
      plan_only=1
    else
      take_overrides "$argument"
      overrides+=("$argument")
    fi
  done
}

# ARM: sets label (in reports); recipe; trajectories and contexts (NAME FLAGS...; none: problems) that it learns from;
# settings (hydra overrides); of wrong feedback kind and ratio; start and collector (arms, none: MODEL and trajectories):
# whose policy it starts from, and whose policy collects for it; every (steps from one collection to the next).
describe_arm() {
  local value=${1#*+}
  label="" recipe=grpo_multi_turn trajectories=train contexts=(contexts-cobalt) settings=() kind="" ratio=""
  start="" collector="" every=$STEPS
  case $1 in
    cobalt) label="Cobalt" ;;
    single_turn) label="single-turn GRPO" recipe=grpo_single_turn ;;
    grpo_online) label="GRPO-MT" recipe=grpo_online ;;
    verpo_online) label="VeRPO-MT" recipe=verpo_online ;;
    ft_cobalt) label="single-turn GRPO + Cobalt" start=single_turn collector=single_turn ;;
    other_reference) label="Cobalt, other reference" trajectories=train-other contexts=(contexts-other) ;;
    augmented) label="Cobalt + perturbation" kind=$KIND ratio=$PERTURBED_RATIO ;;
    hidden_tests) label="Cobalt, hidden tests only" contexts=(contexts-hidden_tests --reward_tests hidden) ;;
    no_improvement) label="Cobalt, no improvement" settings=(+custom_reward_function.reward_kwargs.improvement=false) ;;
    penalty) label="Cobalt, penalty" settings=("+custom_reward_function.reward_kwargs.hard_coding=$PENALTY") ;;
    no_expected) label="Cobalt, no expected output" contexts=(contexts-no_expected --hide_expected) ;;
    turns+[1-9]*) trajectories=train-turns-$value contexts=("contexts-$1" --num_turns "$value") ;;
    cap+all) contexts=("contexts-$1" --max_trajectories "$TRAIN_SAMPLES") ;;
    cap+?*) contexts=("contexts-$1" --max_trajectories "$value") ;;
    selection+?*) contexts=("contexts-$1" --selection "$value") ;;
    stop+?*) contexts=("contexts-$1" --stop_rule "$value") ;;
    kl+?*) settings=("actor_rollout_ref.actor.kl_loss_coef=$value") ;;
    temperature+?*) trajectories=train-temperature-$value contexts=("contexts-$1") ;;
    trained_reference) collector=cobalt ;;
    refreshed+[1-9]*) every=$value ;;
    ?*+0.?*) label="Cobalt + $1" kind=${1%%+*} ratio=$value ;;
    *) refuse "no arm '$1'; see --help" ;;
  esac
  : "${label:=Cobalt, $1}"
  [[ -z $kind ]] \
    || contexts=("contexts-$kind-$ratio" --perturbed_file "$RUN/train-ptb-$kind.jsonl" --perturbed_ratio "$ratio")
  [[ $recipe == grpo_multi_turn ]] || trajectories="" contexts=()
}

needed_arm() { # of the described one: whose policy or bill it needs, if any
  if [[ $recipe == *_online && $BUDGET != steps ]]; then
    echo cobalt
  else
    echo "${collector:-$start}"
  fi
}

needs() { # ITEM, of side_by_side: those that must be done before it
  local item arm
  [[ $1 == problems/* ]] || for item in "${first[@]}"; do [[ $item != problems/* ]] || echo "$item"; done
  item=${1#*/}
  case $1 in
    offline/train-ptb-*) echo offline/train ;;
    checkpoint/*) echo "policy/${item%-step-*}" ;;
    policy/*)
      describe_arm "${item%-*}"
      [[ -z $trajectories || -n $collector ]] || echo "offline/$trajectories"
      [[ -z $kind ]] || echo "offline/train-ptb-$kind"
      arm=$(needed_arm)
      [[ -z $arm ]] || echo "policy/$arm-${item##*-}"
      echo "${measured_against-}"
      ;;
  esac
}

plan_work() { # sets items, what there is to do for ARMS and SEEDS, and tells it; with --plan that is all
  local arm seed needed collections=() wrong=() policies=() later=()
  for arm in $ARMS; do
    describe_arm "$arm"
    [[ -z $trajectories || -n $collector || " ${collections[*]-} " == *" offline/$trajectories "* ]] \
      || collections+=("offline/$trajectories")
    [[ $trajectories != train-other || -d $REFERENCE ]] || refuse "the arm $arm: REFERENCE=$REFERENCE is no folder"
    [[ -z $kind || " ${wrong[*]-} " == *" offline/train-ptb-$kind "* ]] || wrong+=("offline/train-ptb-$kind")
    needed=$(needed_arm)
    [[ -z $needed || " $ARMS " == *" $needed "* ]] || refuse "the arm $arm needs $needed: add it to ARMS"
    for seed in $SEEDS; do
      if [[ -z $needed || " ${policies[*]-} " == *" policy/$needed-$seed "* ]]; then
        policies+=("policy/$arm-$seed")
      else
        later+=("policy/$arm-$seed")
      fi
    done
  done
  items=("${first[@]}" ${collections[@]+"${collections[@]}"} ${wrong[@]+"${wrong[@]}"})
  items+=(${policies[@]+"${policies[@]}"} ${later[@]+"${later[@]}"})
  tell_plan
  [[ -z $plan_only ]] || exit 0
}

enter_study() { # refuses a folder that was made with other knobs
  enter_environment
  keep_settings "$RUN" "DATA_SEED=$DATA_SEED MODEL=$MODEL REFERENCE=$REFERENCE TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES \
DEV=$DEV_PROBLEMS x $DEV_SAMPLES TURNS=$TURNS RATIO=$PERTURBED_RATIO STEPS=$STEPS BUDGET=$BUDGET PRESET=$PRESET \
BATCH=$BATCH_SIZE KIND=$KIND COUNT=$COUNT PENALTY=$PENALTY JUDGE=$JUDGE_MODEL$(unusual_answers) \
OVERRIDES=${overrides[*]-}"
  ((${#overrides[@]} == 0)) || stage overrides check_overrides "${overrides[@]}"
  trap stop_all EXIT
}

perturb() { # PROBLEMS NAME KIND: the fully specified problems, with wrong public tests
  "$PYTHON" preproc/run_perturbation.py --input_file "$RUN/$1.jsonl" --output_file "$RUN/$2.jsonl" --seed "$DATA_SEED" \
    --kind "$3" ${COUNT:+--count "$COUNT"}
}

mislead() { # NAME POLICY SAMPLES TURNS KIND ENDING: the turns after NAME.turn0 once more, under perturbed feedback
  local name=$1-$6
  stage "$name-turn0" perturb "$1.turn0" "$name.turn0" "$5"
  repair_and_evaluate "$name" "$name.turn0" "$2" "$3" "$4" --feedback_tests perturbed
}

measure_hacking() { # NAME POLICY: after roll_out NAME minicode_dev; NAME-ptb, NAME.cases and, with a judge, NAME.judged
  alone dev-ptb stage dev-ptb perturb minicode_dev dev-ptb "$KIND"
  mislead "$1" "$2" "$DEV_SAMPLES" "$TURNS" "$KIND" ptb
  stage "$1-cases" "$PYTHON" extract_turn_level_errors.py --data_file "$RUN/dev-ptb.jsonl" \
    -i "$RUN/$1-ptb.jsonl" -o "$RUN/$1.cases.jsonl" --dynamic --seed "$DATA_SEED"
  [[ -z $JUDGE_MODEL ]] || stage "$1-judge" "$PYTHON" run_llm_judge.py --model_name "$JUDGE_MODEL" \
    -i "$RUN/$1.cases.jsonl" -o "$RUN/$1.judged.jsonl"
}

measure_shifted() { # NAME POLICY: NAME-shifted
  repair_and_evaluate "$1-shifted" minicode_shifted "$2" "$DEV_SAMPLES" "$TURNS" --from_scratch
}

collect() { # TRAJECTORIES POLICY TURNS [FLAGS]: to learn from
  roll_out "$1" minicode_train "$2" "$TRAIN_SAMPLES" "$TRAIN_SAMPLES" "${@:3}"
}

# These are items of side_by_side.

problems() { # minicode: minicode_train and minicode_dev; shifted: minicode_shifted
  case $1 in
    minicode) make_problems ;;
    shifted) make_shifted_problems ;;
  esac
}

offline() { # base, or trajectories by their name
  local value=${1##*-}
  case $1 in
    base) measure base "$MODEL" ;;
    train) collect train "$MODEL" "$LEARNING_TURNS" ;;
    train-other) collect "$1" "$REFERENCE" "$LEARNING_TURNS" ;;
    train-turns-*) collect "$1" "$MODEL" $((value - 1)) ;;
    train-temperature-*) collect "$1" "$MODEL" "$LEARNING_TURNS" --temperature "$value" ;;
    train-ptb-*) mislead train "$MODEL" "$TRAIN_SAMPLES" "$LEARNING_TURNS" "$value" "ptb-$value" ;;
  esac
}

policy() { # NAME, as ARM-SEED: trained and measured
  local seed=${1##*-}
  describe_arm "${1%-*}"
  local from=${start:+$start-$seed} by=${collector:+$collector-$seed} left=$STEPS round
  for ((round = 1; left > every; round++, left -= every)); do
    learn "$1.$round" "$from" "$by" "$every" "$seed"
    from=$1.$round by=$1.$round
  done
  learn "$1" "$from" "$by" "$left" "$seed"
  measure "$1" "$RUN/$1/model"
}

learn() { # NAME FROM BY STEPS SEED: policy NAME of the described arm, from FROM (MODEL), on what BY has collected
  local name=$1 model=${2:+$RUN/$2/model} data=problems collected=$trajectories steps=$4 seed=$5 budget
  local limits=("trainer.total_epochs=$WITHOUT_END" "trainer.test_freq=$TEST_FREQ")
  ((TEST_FREQ < 0)) || limits+=(trainer.val_before_train=True)
  if [[ -n $3 ]]; then
    collected=$name.train data=$name.contexts
    collect "$collected" "$RUN/$3/model" "$LEARNING_TURNS"
    make_contexts "$collected" "$data" "${contexts[@]:1}"
  elif ((${#contexts[@]} > 0)); then
    data=${contexts[0]}
    alone "$data" make_contexts "$trajectories" "${contexts[@]}"
  fi
  alone parquet-problems stage parquet-problems single_turn_parquet parquet-problems
  if [[ $recipe == *_online && $BUDGET != steps ]]; then
    steps=$WITHOUT_END
    budget=$(spent "cobalt-$seed")
    limits+=("cobalt.budget={$BUDGET: $budget}")
  fi
  stage "$name-train" train_policy "$recipe" "${model:-$MODEL}" "$name" "parquet-$data" parquet-problems "$steps" "$seed" \
    "${limits[@]}" ${settings[@]+"${settings[@]}"} ${overrides[@]+"${overrides[@]}"}
  stage "$name-cost" count_cost "$name" "$2" "$collected"
  stage "$name-merge" merge_policy "$name" "$RUN/$name/model"
}

alone() { # NAME COMMAND...: what several workers may ask for; the first does it while the others wait, and find it done
  (
    flock 9
    "${@:2}"
  ) 9>"$RUN/taken/$1.lock"
}

make_contexts() { # TRAJECTORIES NAME [FLAGS]: NAME, and veRL's data of it
  stage "$2" cut_contexts "$@"
  stage "parquet-$2" make_parquet "parquet-$2" "$2" "$2" # its test.parquet is not used
}

count_cost() { # POLICY FROM TRAJECTORIES: NAME.cost.json; what it learns from, and FROM's bill, are part of it
  local files=()
  [[ -z $3 ]] || files=(--collection_gpus "$(engine_gpus)" --collection "$RUN/$3".{turn0.jsonl,turns.jsonl,jsonl})
  [[ -z $kind ]] || files+=("$RUN/train-ptb-$kind.turns.jsonl" "$RUN/train-ptb-$kind.jsonl")
  [[ -z $2 ]] || files+=(--earlier "$RUN/$2.cost.json")
  "$PYTHON" -m cobalt report cost --training "$RUN/$1" ${files[@]+"${files[@]}"} --output "$RUN/$1.cost.json"
}

engine_gpus() { # that answers hold
  local argument tensor_parallel_size=1 num_replicas=1
  for argument in $ENGINE_ARGS; do
    case $argument in
      tensor_parallel_size=* | num_replicas=*) local "$argument" ;;
    esac
  done
  echo $((tensor_parallel_size * num_replicas))
}

spent() { # POLICY: its whole bill, in BUDGET's unit
  "$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1]))["in_all"][sys.argv[2]])' \
    "$RUN/$1.cost.json" "${BUDGET/gpu_seconds/GPU-s}"
}
