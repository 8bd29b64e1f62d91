# shellcheck shell=bash
# Sourced by the recipes that train MiniCoder on MiniCode and measure it: their set-up, and the steps that they share.
#
# PROBLEMS, TRAJECTORIES, CONTEXTS, START and NAME stand for files in RUN, without .jsonl; POLICY is a model's folder.
# Knobs: RUN, SETUP, DATA_SEED (of the problems and of sampling), MODEL (the reference model and the policy's start),
# TRAIN_PROBLEMS, DEV_PROBLEMS, SHIFTED_PROBLEMS, PRESET, ENGINE (what policies answer by: hf or vllm), BATCH_SIZE (sequences
# that are sampled together, with hf), ENGINE_ARGS (with vllm).

source scripts/lib/services.sh
source scripts/lib/stages.sh

USUAL_TOKENS=256
: "${MAX_TOKENS:=$USUAL_TOKENS}" # of a response
# shellcheck disable=SC2034 # for the recipes
{
  LEARNING_TURNS=2    # after the first, in trajectories to learn from
  MEASURED_TURNS=8    # after the first
  CONTROL_TURNS=3     # with another problem's feedback
  WITHOUT_END=1000000 # steps or epochs of a training that something else ends
}

enter_environment() { # .venv, made if need be; with SETUP=0 what is active
  if [[ ${SETUP:-1} == 1 ]]; then
    bash scripts/setup.sh
    export PATH="$PWD/.venv/bin:$PATH"
  fi
  export PYTHON=python
  export HF_HUB_OFFLINE=1
  export TOKENIZERS_PARALLELISM=false
}

unusual_answers() { # for keep_settings: ENGINE and MAX_TOKENS unless they are the defaults, which older folders do not name
  [[ ${ENGINE:-hf} != vllm ]] || printf ' ENGINE=vllm'
  ((MAX_TOKENS == USUAL_TOKENS)) || printf ' TOKENS=%s' "$MAX_TOKENS"
}

# These are stages, one or more.

check_overrides() { # OVERRIDES: training comes after minutes of other work, and would refuse them only then
  "$PYTHON" -m cobalt train --config-dir verl/config +recipe=multi_turn "+preset=$PRESET" "$@" --cfg job >/dev/null
}

make_problems() { # writes minicode_train and minicode_dev
  stage problems "$PYTHON" -m cobalt minicode generate --output_file "$RUN/raw.jsonl" --seed "$DATA_SEED" \
    --num_problems "$TRAIN_PROBLEMS" --dev_size "$DEV_PROBLEMS"
  stage prepare "$PYTHON" preproc/preproc_taco.py --input_file "$RUN/raw.jsonl" --output_file "$RUN/minicode.jsonl" \
    --seed "$DATA_SEED"
}

make_shifted_problems() { # writes minicode_shifted
  stage shifted "$PYTHON" -m cobalt minicode generate --output_file "$RUN/raw-shifted.jsonl" --seed "$DATA_SEED" \
    --num_problems 0 --dev_size 0 --shifted_size "$SHIFTED_PROBLEMS"
  stage prepare-shifted "$PYTHON" preproc/preproc_taco.py --input_file "$RUN/raw-shifted.jsonl" \
    --output_file "$RUN/minicode_shifted.jsonl" --dev_size 0 --seed "$DATA_SEED"
}

roll_out() { # NAME PROBLEMS POLICY FIRST SAMPLES TURNS [FLAGS]: FIRST programs per problem, NAME.turn0; then as below
  local name=$1
  local problems=$2
  local policy=$3
  local first=$4
  local samples=$5
  local turns=$6
  stage "$name-turn0" sample "$problems" "$name.turn0" "$policy" "$first" "${@:7}"
  repair_and_evaluate "$name" "$name.turn0" "$policy" "$samples" "$turns" "${@:7}"
}

repair_and_evaluate() { # NAME START POLICY SAMPLES TURNS [FLAGS]: NAME.turns, and with hidden tests NAME
  local name=$1
  local start=$2
  stage "$name-turns" repair "$start" "$name.turns" "${@:3}"
  stage "$name-hidden" evaluate "$name.turns" "$name"
}

# These are single commands, for stages to run.

sample() { # PROBLEMS NAME POLICY SAMPLES [FLAGS]: first programs
  ask "$3" run_single_turn_vllm.py "$1" "$2" -n "$4" "${@:5}"
}

repair() { # START NAME POLICY SAMPLES TURNS [FLAGS]: the turns after them
  ask "$3" run_multi_turn_vllm.py "$1" "$2" -n "$4" --num_turns "$5" "${@:6}" --enable_thinking
}

ask() { # POLICY COMMAND INPUT NAME FLAGS: it answers what the command asks
  local engine=(--engine hf --batch_size "$BATCH_SIZE")
  if [[ ${ENGINE:-hf} == vllm ]]; then
    serve_model "$1"
    engine=()
  fi
  "$PYTHON" "$2" ${engine[@]+"${engine[@]}"} -i "$RUN/$3.jsonl" -o "$RUN/$4.jsonl" --model "$1" "${@:5}" \
    --max_tokens "$MAX_TOKENS" --seed "$DATA_SEED"
}

evaluate() { # TRAJECTORIES NAME: hidden tests
  "$PYTHON" eval_multi_turn.py -i "$RUN/$1.jsonl" -o "$RUN/$2.jsonl"
}

cut_contexts() { # TRAJECTORIES NAME [FLAGS]: partial contexts
  "$PYTHON" preproc/process_multi_turn_taco.py --input_file "$RUN/$1.jsonl" --output_file "$RUN/$2.jsonl" \
    --model_name "$MODEL" --seed "$DATA_SEED" "${@:3}"
}

make_parquet() { # FOLDER CONTEXTS CONTEXTS: veRL's data, to train on and to validate on
  "$PYTHON" preproc/verl_preproc_multi_turn.py --local_dir "$RUN/$1" --train_data_file "$RUN/$2.jsonl" \
    --val_data_file "$RUN/$3.jsonl"
}

single_turn_parquet() { # FOLDER: veRL's data of the problems themselves
  "$PYTHON" preproc/verl_preproc_single_turn.py --local_dir "$RUN/$1" \
    --train_data_file "$RUN/minicode_train.jsonl" --val_data_file "$RUN/minicode_dev.jsonl"
}

# By train_RECIPE.sh from POLICY; TRAIN and VALIDATION are folders of make_parquet or single_turn_parquet.
train_policy() { # RECIPE POLICY FOLDER TRAIN VALIDATION STEPS SEED [OVERRIDES]
  stop_model
  MODEL=$2 PRESET=$PRESET OUTPUT_DIR=$RUN/$3 TRAIN_FILE=$RUN/$4/train.parquet VAL_FILE=$RUN/$5/test.parquet \
    bash "scripts/train_$1.sh" "trainer.total_training_steps=$6" "+data.seed=$7" "cobalt.seed=$7" \
    trainer.val_before_train=False trainer.test_freq=-1 "${@:8}"
}

merge_policy() { # FOLDER POLICY: the last checkpoint of a training in FOLDER; a model that is there is whole
  [[ -d $2 ]] || bash scripts/merge_checkpoint.sh "$RUN/$1" "$2"
}
