#!/usr/bin/env bash
# The whole loop on this machine, from generated problems to a measured improvement, in about 12 minutes on 2 idle CPU
# cores (plus about 3 for the installation): MiniCode problems -> sandboxed execution -> multi-turn trajectories of
# MiniCoder -> partial contexts -> GRPO with veRL -> Pass@1 per turn, before and after.
#
# A second run continues where the first was stopped. Arguments are hydra overrides of the training. Knobs (environment):
#   RUN=runs/quickstart    where everything is written; one set of knobs per folder
#   SEED=0                 seed of the data and of sampling
#   TRAIN_SEED=$SEED       seed of training; with another one, copy a folder that has the stages before `train`
#   MODEL=assets/minicoder the reference model and the policy's start
#   TRAIN_PROBLEMS=120 DEV_PROBLEMS=96    problems to learn from and to measure on
#   TRAIN_SAMPLES=8 DEV_SAMPLES=3         trajectories per problem
#   STEPS=60               GRPO steps
#   BATCH_SIZE=128         sequences that are sampled together
#   PRESET=cpu             training preset: cpu, or one-gpu
#   SETUP=1                0: use the environment that is active instead of making .venv
# Exit codes: 0 done, 2 other settings in this folder, 3 this machine lacks something (said in one line).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

RUN=${RUN:-runs/quickstart} SEED=${SEED:-0} TRAIN_SEED=${TRAIN_SEED:-${SEED:-0}} MODEL=${MODEL:-assets/minicoder} PRESET=${PRESET:-cpu} STEPS=${STEPS:-60}
TRAIN_PROBLEMS=${TRAIN_PROBLEMS:-120} DEV_PROBLEMS=${DEV_PROBLEMS:-96}
TRAIN_SAMPLES=${TRAIN_SAMPLES:-8} DEV_SAMPLES=${DEV_SAMPLES:-3}
BATCH_SIZE=${BATCH_SIZE:-128}
MAX_TOKENS=256

if [[ ${SETUP:-1} == 1 ]]; then
  bash scripts/setup.sh
  export PATH="$PWD/.venv/bin:$PATH"
fi
export PYTHON=python HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
source scripts/lib/services.sh
source scripts/lib/stages.sh
keep_settings "$RUN" "SEED=$SEED TRAIN_SEED=$TRAIN_SEED MODEL=$MODEL PRESET=$PRESET STEPS=$STEPS \
TRAIN=$TRAIN_PROBLEMS x $TRAIN_SAMPLES DEV=$DEV_PROBLEMS x $DEV_SAMPLES BATCH=$BATCH_SIZE OVERRIDES=$*"

sample() { # INPUT OUTPUT MODEL SAMPLES: turn 0
  python run_single_turn_vllm.py --engine hf --model "$3" -i "$1" -o "$2" -n "$4" --max_tokens $MAX_TOKENS --seed "$SEED" \
    --batch_size "$BATCH_SIZE"
}

repair() { # INPUT OUTPUT MODEL SAMPLES TURNS [FLAGS]: the turns after it
  python run_multi_turn_vllm.py --engine hf --model "$3" -i "$1" -o "$2" -n "$4" --num_turns "$5" "${@:6}" \
    --enable_thinking --max_tokens $MAX_TOKENS --seed "$SEED" --batch_size "$BATCH_SIZE"
}

evaluate() { python eval_multi_turn.py -i "$1" -o "$2"; }

measure() { # POLICY MODEL FIRST_TURN_SAMPLES: 8 extra turns on the dev set, and the control with one sample
  local policy=$1 model=$2 first=$3
  stage "$policy-turn0" sample "$RUN/minicode_dev.jsonl" "$RUN/$policy.turn0.jsonl" "$model" "$first"
  stage "$policy-turns" repair "$RUN/$policy.turn0.jsonl" "$RUN/$policy.turns.jsonl" "$model" "$DEV_SAMPLES" 8
  stage "$policy-hidden" evaluate "$RUN/$policy.turns.jsonl" "$RUN/$policy.jsonl"
  stage "$policy-control-turns" repair "$RUN/$policy.turn0.jsonl" "$RUN/$policy-control.turns.jsonl" "$model" \
    1 3 --feedback_from other_problem
  stage "$policy-control-hidden" evaluate "$RUN/$policy-control.turns.jsonl" "$RUN/$policy-control.jsonl"
}

trap stop_services EXIT
start_services "$RUN/logs"

stage problems python -m cobalt.minicode --output_file "$RUN/raw.jsonl" --seed "$SEED" \
  --num_problems "$TRAIN_PROBLEMS" --dev_size "$DEV_PROBLEMS"
stage prepare python preproc/preproc_taco.py --input_file "$RUN/raw.jsonl" --output_file "$RUN/minicode.jsonl" --seed "$SEED"

# Offline: the reference model's trajectories, cut into partial contexts.
stage train-turn0 sample "$RUN/minicode_train.jsonl" "$RUN/train.turn0.jsonl" "$MODEL" "$TRAIN_SAMPLES"
stage train-turns repair "$RUN/train.turn0.jsonl" "$RUN/train.turns.jsonl" "$MODEL" "$TRAIN_SAMPLES" 2
stage train-hidden evaluate "$RUN/train.turns.jsonl" "$RUN/train.jsonl"
stage contexts python preproc/process_multi_turn_taco.py --input_file "$RUN/train.jsonl" \
  --output_file "$RUN/contexts.jsonl" --model_name "$MODEL" --seed "$SEED"

measure base "$MODEL" 16

# Online: GRPO completes each partial trajectory with one program.
stage val-contexts python preproc/process_multi_turn_taco.py --input_file "$RUN/base.jsonl" --is_test \
  --output_file "$RUN/val_contexts.jsonl" --model_name "$MODEL" --seed "$SEED"
stage parquet python preproc/verl_preproc_multi_turn.py --local_dir "$RUN/parquet" \
  --train_data_file "$RUN/contexts.jsonl" --val_data_file "$RUN/val_contexts.jsonl"
stage train env MODEL="$MODEL" OUTPUT_DIR="$RUN/training" TRAIN_FILE="$RUN/parquet/train.parquet" \
  VAL_FILE="$RUN/parquet/test.parquet" PRESET="$PRESET" bash scripts/train_grpo_multi_turn.sh \
  "trainer.total_training_steps=$STEPS" "+data.seed=$TRAIN_SEED" "cobalt.seed=$TRAIN_SEED" \
  trainer.val_before_train=False trainer.test_freq=-1 "$@"
stage merge bash scripts/merge_checkpoint.sh "$RUN/training" "$RUN/model"

measure trained "$RUN/model" "$DEV_SAMPLES"

python -m cobalt.reporting.loop --base "$RUN/base.jsonl" --trained "$RUN/trained.jsonl" \
  --base_first_turn "$RUN/base.turn0.jsonl" \
  --base_control "$RUN/base-control.jsonl" --trained_control "$RUN/trained-control.jsonl" --output "$RUN/result"
echo "quickstart.sh: done; $RUN/result.{md,json,png} hold this table and its curve"
