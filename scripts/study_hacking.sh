#!/usr/bin/env bash
# Does training on execution feedback teach a policy to satisfy wrong tests, and does perturbation augmentation cure it?
# MiniCoder on MiniCode: the base model, Cobalt, and Cobalt + perturbation, each over several training seeds, measured
# on the dev set with clean feedback and with feedback from perturbed tests. docs/hacking.md explains every number.
#
#   bash scripts/study_hacking.sh               one GPU, 3 training seeds
#   SIZE=cpu bash scripts/study_hacking.sh      two CPU cores, one seed, minutes: shows that it works, not an effect
#
# A second run continues where the first was stopped. Knobs (environment), with the defaults of SIZE=gpu and SIZE=cpu:
#   RUN=runs/study_hacking    where everything is written; one set of knobs per folder
#   SEEDS="0 1 2" | "0"       training seeds
#   DATA_SEED=0               seed of the problems, of sampling and of the perturbation
#   MODEL=assets/minicoder    the reference model and the policies' start
#   TRAIN_PROBLEMS=1000 | 24  DEV_PROBLEMS=200 | 12     problems to learn from and to measure on
#   TRAIN_SAMPLES=8 | 4       DEV_SAMPLES=8 | 2         trajectories per problem
#   TURNS=8 | 2               turns after the first when measuring
#   PERTURBED_RATIO=0.3       share of perturbed contexts in the augmented training set
#   STEPS=60 | 2              GRPO steps, the same for both training sets
#   PRESET=one-gpu | cpu      training preset
#   BATCH_SIZE=512 | 64       sequences that are sampled together
#   GPUS=                     e.g. "0 1 2 3": work on so many policies at a time; default: one after the other
#   JUDGE_MODEL=              a LiteLLM model that sorts the cases into categories (keys from the environment); none: no judge
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Arguments are hydra overrides for both trainings. Exit codes: 0 done, 2 other knobs in this folder,
# 3 this machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SIZE=${SIZE:-gpu}
case $SIZE in
  gpu) defaults=("0 1 2" 1000 200 8 8 8 60 one-gpu 512) ;;
  cpu) defaults=("0" 24 12 4 2 2 2 cpu 64) ;;
  *) echo "study_hacking.sh: error: SIZE is gpu or cpu, not '$SIZE'" >&2; exit 2 ;;
esac
RUN=${RUN:-runs/study_hacking} DATA_SEED=${DATA_SEED:-0} MODEL=${MODEL:-assets/minicoder}
SEEDS=${SEEDS:-${defaults[0]}}
TRAIN_PROBLEMS=${TRAIN_PROBLEMS:-${defaults[1]}} DEV_PROBLEMS=${DEV_PROBLEMS:-${defaults[2]}}
TRAIN_SAMPLES=${TRAIN_SAMPLES:-${defaults[3]}} DEV_SAMPLES=${DEV_SAMPLES:-${defaults[4]}}
TURNS=${TURNS:-${defaults[5]}} STEPS=${STEPS:-${defaults[6]}} PRESET=${PRESET:-${defaults[7]}}
BATCH_SIZE=${BATCH_SIZE:-${defaults[8]}} PERTURBED_RATIO=${PERTURBED_RATIO:-0.3} JUDGE_MODEL=${JUDGE_MODEL:-}
read -ra GPUS <<<"${GPUS:-}"
MAX_TOKENS=256
overrides=("$@")

if [[ ${SETUP:-1} == 1 ]]; then
  bash scripts/setup.sh
  export PATH="$PWD/.venv/bin:$PATH"
fi
export PYTHON=python HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
source scripts/lib/services.sh
source scripts/lib/stages.sh
keep_settings "$RUN" "SEEDS=$SEEDS DATA_SEED=$DATA_SEED MODEL=$MODEL TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES \
DEV=$DEV_PROBLEMS x $DEV_SAMPLES TURNS=$TURNS RATIO=$PERTURBED_RATIO STEPS=$STEPS PRESET=$PRESET BATCH=$BATCH_SIZE JUDGE=$JUDGE_MODEL \
OVERRIDES=${overrides[*]}"

sample() { # INPUT OUTPUT MODEL SAMPLES: turn 0
  python run_single_turn_vllm.py --engine hf --model "$3" -i "$1" -o "$2" -n "$4" \
    --max_tokens $MAX_TOKENS --seed "$DATA_SEED" --batch_size "$BATCH_SIZE"
}

repair() { # INPUT OUTPUT MODEL SAMPLES TURNS TESTS: the turns after it, with feedback from TESTS
  python run_multi_turn_vllm.py --engine hf --model "$3" -i "$1" -o "$2" -n "$4" --num_turns "$5" \
    --feedback_tests "$6" --enable_thinking --max_tokens $MAX_TOKENS --seed "$DATA_SEED" --batch_size "$BATCH_SIZE"
}

perturb() { # INPUT OUTPUT: the fully specified problems, with two wrong public tests each
  python preproc/run_perturbation.py --input_file "$1" --output_file "$2" --seed "$DATA_SEED"
}

evaluate() { python eval_multi_turn.py -i "$1" -o "$2"; }

trajectories() { # NAME PROBLEMS MODEL SAMPLES TURNS: one first turn, then clean and perturbed feedback on it
  local name=$1
  stage "$name-turn0" sample "$2" "$RUN/$name.turn0.jsonl" "$3" "$4"
  stage "$name-turns" repair "$RUN/$name.turn0.jsonl" "$RUN/$name.turns.jsonl" "$3" "$4" "$5" public
  stage "$name-hidden" evaluate "$RUN/$name.turns.jsonl" "$RUN/$name.jsonl"
  stage "$name-ptb-turn0" perturb "$RUN/$name.turn0.jsonl" "$RUN/$name-ptb.turn0.jsonl"
  stage "$name-ptb-turns" repair "$RUN/$name-ptb.turn0.jsonl" "$RUN/$name-ptb.turns.jsonl" "$3" "$4" "$5" perturbed
  stage "$name-ptb-hidden" evaluate "$RUN/$name-ptb.turns.jsonl" "$RUN/$name-ptb.jsonl"
}

measure() { # POLICY MODEL: everything that the report shows of a policy
  local policy=$1
  trajectories "$policy" "$RUN/minicode_dev.jsonl" "$2" "$DEV_SAMPLES" "$TURNS"
  stage "$policy-cases" python extract_turn_level_errors.py --data_file "$RUN/dev-ptb.jsonl" \
    -i "$RUN/$policy-ptb.jsonl" -o "$RUN/$policy.cases.jsonl" --dynamic --seed "$DATA_SEED"
  if [[ -n $JUDGE_MODEL ]]; then
    stage "$policy-judge" python run_llm_judge.py --model_name "$JUDGE_MODEL" \
      -i "$RUN/$policy.cases.jsonl" -o "$RUN/$policy.judged.jsonl"
  fi
}

train() { # POLICY PARQUET SEED
  MODEL="$MODEL" OUTPUT_DIR="$RUN/$1" TRAIN_FILE="$RUN/$2/train.parquet" VAL_FILE="$RUN/$2/test.parquet" \
    PRESET="$PRESET" bash scripts/train_grpo_multi_turn.sh "trainer.total_training_steps=$STEPS" \
    "+data.seed=$3" "cobalt.seed=$3" trainer.val_before_train=False trainer.test_freq=-1 "${overrides[@]}"
}

train_and_measure() { # POLICY, as ARM-SEED
  stage "$1-train" train "$1" "parquet-${1%-*}" "${1##*-}"
  stage "$1-merge" bash scripts/merge_checkpoint.sh "$RUN/$1" "$RUN/$1/model"
  measure "$1" "$RUN/$1/model"
}

offline() { # train | base: trajectories to learn from, or the base model's measurement
  case $1 in
    train) trajectories train "$RUN/minicode_train.jsonl" "$MODEL" "$TRAIN_SAMPLES" 2 ;;
    base) measure base "$MODEL" ;;
  esac
}

# Trainings get their GPU from Ray; CUDA_VISIBLE_DEVICES is for the commands that sample.
side_by_side() { # FUNCTION ITEMS...: FUNCTION of each item
  local function=$1 items=("${@:2}") item pids=() number failed=""
  if ((${#GPUS[@]} == 0)); then
    for item in "${items[@]}"; do "$function" "$item"; done
    return
  fi
  echo "== $function ${items[*]}: side by side, see $RUN/logs/gpu-*.log"
  for number in "${!GPUS[@]}"; do
    (
      export CUDA_VISIBLE_DEVICES=${GPUS[number]}
      for ((item = number; item < ${#items[@]}; item += ${#GPUS[@]})); do "$function" "${items[item]}"; done
    ) >>"$RUN/logs/gpu-${GPUS[number]}.log" 2>&1 &
    pids+=($!)
  done
  for number in "${!pids[@]}"; do wait "${pids[number]}" || failed+=" $RUN/logs/gpu-${GPUS[number]}.log"; done
  [[ -z $failed ]] || { echo "study_hacking.sh: error: stopped early; see$failed" >&2; exit 1; }
}

files=()
show() { # LABEL POLICY: what the report reads
  files+=("$1:clean=$RUN/$2.jsonl" "$1:perturbed=$RUN/$2-ptb.jsonl" "$1:hacking=$RUN/$2.cases.jsonl")
  [[ -z $JUDGE_MODEL ]] || files+=("$1:judged=$RUN/$2.judged.jsonl")
  [[ $2 == base ]] || files+=("$1:log=$RUN/$2/metrics.jsonl")
}

contexts() { # OUTPUT [FLAGS]: partial contexts for training
  python preproc/process_multi_turn_taco.py --input_file "$RUN/train.jsonl" --output_file "$1" \
    --model_name "$MODEL" --seed "$DATA_SEED" "${@:2}"
}

parquet() { # ARM
  python preproc/verl_preproc_multi_turn.py --local_dir "$RUN/parquet-$1" \
    --train_data_file "$RUN/contexts-$1.jsonl" --val_data_file "$RUN/contexts-val.jsonl"
}

trap stop_services EXIT
start_services "$RUN/logs"

stage problems python -m cobalt.minicode --output_file "$RUN/raw.jsonl" --seed "$DATA_SEED" \
  --num_problems "$TRAIN_PROBLEMS" --dev_size "$DEV_PROBLEMS"
stage prepare python preproc/preproc_taco.py --input_file "$RUN/raw.jsonl" --output_file "$RUN/minicode.jsonl" \
  --seed "$DATA_SEED"
stage dev-ptb perturb "$RUN/minicode_dev.jsonl" "$RUN/dev-ptb.jsonl"

side_by_side offline train base

stage contexts-cobalt contexts "$RUN/contexts-cobalt.jsonl"
stage contexts-augmented contexts "$RUN/contexts-augmented.jsonl" \
  --perturbed_file "$RUN/train-ptb.jsonl" --perturbed_ratio "$PERTURBED_RATIO"
stage contexts-val python preproc/process_multi_turn_taco.py --input_file "$RUN/base.jsonl" --is_test \
  --output_file "$RUN/contexts-val.jsonl" --model_name "$MODEL" --seed "$DATA_SEED"
stage parquet-cobalt parquet cobalt
stage parquet-augmented parquet augmented

policies=()
for arm in cobalt augmented; do
  for seed in $SEEDS; do policies+=("$arm-$seed"); done
done
side_by_side train_and_measure "${policies[@]}"

show base base
for seed in $SEEDS; do show "Cobalt" "cobalt-$seed"; done
for seed in $SEEDS; do show "Cobalt + perturbation" "augmented-$seed"; done
python make_report.py --files "${files[@]}" --output_dir "$RUN/report" --baseline base \
  --title "In-context reward hacking: MiniCoder on MiniCode"
echo "study_hacking.sh: done; open $RUN/report/report.html"
