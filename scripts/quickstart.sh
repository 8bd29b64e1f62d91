#!/usr/bin/env bash
# The whole pipeline on this machine, from problems to a measured improvement, in about 12 minutes on 2 idle CPU cores
# (plus 2 for the installation). MiniCoder, a model of 2.6 million parameters, learns to write and repair list programs.
#
# A second run continues where the first was stopped. Arguments are hydra overrides of the training. Knobs:
#   RUN=runs/quickstart       where everything is written; one set of knobs per folder
#   SEED=0                    seed of sampling and of training
#   STEPS=60                  GRPO steps
#   SETUP=1                   0: use the environment that is active instead of making .venv
# On your own data: another file of problems in step 1, another MODEL, an engine for GPUs (docs/tutorial.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
take_overrides "$@"
: "${RUN:=runs/quickstart}" "${SEED:=0}" "${STEPS:=60}"
[[ $STEPS =~ ^[1-9][0-9]*$ ]] || refuse "STEPS is a number above 0, not '$STEPS'"
[[ $SEED =~ ^[0-9]+$ ]] || refuse "SEED is a number, not '$SEED'"
[[ ${SETUP:=1} == [01] ]] || refuse "SETUP is 0 or 1, not '$SETUP'"
PROBLEMS=assets/minicode/problems.jsonl MODEL=assets/minicoder
RUNS="--executor local"                                 # programs run here, in sandboxes, without Ray Serve
ASKS="--engine hf --max_tokens 256 --seed $SEED $RUNS"   # a model answers here, on CPU cores

say() { printf '\nquickstart.sh: %s\n' "$*"; }
export COBALT_SCRIPT=1 # its commands do not say what to run next

# The environment (.venv), and a check that this machine can sandbox programs.
if [[ $SETUP == 1 ]]; then
  VENV=.venv bash scripts/setup.sh
  export PATH="$PWD/.venv/bin:$PATH" PYTHON=python # that of the set-up has no packages
fi
mkdir -p "$RUN"

say "1 of 7: problems with public and hidden tests, which reference solutions pass: 120 to learn from, 96 to measure on"
python preproc/preproc_taco.py $RUNS --input_file $PROBLEMS --output_file "$RUN/problems.jsonl" --prompts assets/minicode/prompts.json

say "2 of 7: trajectories to learn from: 8 first programs for each problem, then 2 repairs of each by feedback"
python run_single_turn_vllm.py $ASKS --model $MODEL -n 8 -i "$RUN/problems_train.jsonl" -o "$RUN/train.turn0.jsonl"
python run_multi_turn_vllm.py $ASKS --model $MODEL --enable_thinking --num_turns 2 -i "$RUN/train.turn0.jsonl" -o "$RUN/train.turns.jsonl"

say "3 of 7: their results on the hidden tests: the pass rate of every program"
python eval_multi_turn.py $RUNS -i "$RUN/train.turns.jsonl" -o "$RUN/train.jsonl"

say "4 of 7: the same on the problems to measure on, over 9 turns: Pass@1 by turn before training"
python run_single_turn_vllm.py $ASKS --model $MODEL -n 3 -i "$RUN/problems_dev.jsonl" -o "$RUN/base.turn0.jsonl"
python run_multi_turn_vllm.py $ASKS --model $MODEL --enable_thinking --num_turns 8 -i "$RUN/base.turn0.jsonl" -o "$RUN/base.turns.jsonl"
python eval_multi_turn.py $RUNS -i "$RUN/base.turns.jsonl" -o "$RUN/base.jsonl"

say "5 of 7: partial trajectories (problem, earlier programs, feedback) to train on, and a few to validate on"
python preproc/process_multi_turn_taco.py --input_file "$RUN/train.jsonl" --output_file "$RUN/contexts.jsonl" --model_name $MODEL
python preproc/process_multi_turn_taco.py --input_file "$RUN/base.jsonl" --output_file "$RUN/validation.jsonl" --model_name $MODEL --is_test
python preproc/verl_preproc_multi_turn.py --local_dir "$RUN/parquet" --train_data_file "$RUN/contexts.jsonl" --val_data_file "$RUN/validation.jsonl"

say "6 of 7: GRPO: the policy completes each partial trajectory with one program; then its last checkpoint as a model"
if [[ ! -d $RUN/model ]]; then
  PRESET=cpu EXECUTOR=local MODEL=$MODEL OUTPUT_DIR=$RUN/training \
    TRAIN_FILE=$RUN/parquet/train.parquet VAL_FILE=$RUN/parquet/test.parquet bash scripts/train_grpo_multi_turn.sh \
    trainer.total_training_steps="$STEPS" trainer.val_before_train=False trainer.test_freq=-1 \
    +data.seed="$SEED" cobalt.seed="$SEED" "$@"
  bash scripts/merge_checkpoint.sh "$RUN/training" "$RUN/model"
fi

say "7 of 7: Pass@1 by turn after training, and the difference: $RUN/trained.jsonl.report.md"
python run_single_turn_vllm.py $ASKS --model "$RUN/model" -n 3 -i "$RUN/problems_dev.jsonl" -o "$RUN/trained.turn0.jsonl"
python run_multi_turn_vllm.py $ASKS --model "$RUN/model" --enable_thinking --num_turns 8 -i "$RUN/trained.turn0.jsonl" -o "$RUN/trained.turns.jsonl"
python eval_multi_turn.py $RUNS -i "$RUN/trained.turns.jsonl" -o "$RUN/trained.jsonl" --compare "$RUN/base.jsonl"
echo "quickstart.sh: done; trajectories to read: cobalt view $RUN/trained.jsonl"
