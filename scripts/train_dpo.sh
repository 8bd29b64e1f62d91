#!/usr/bin/env bash
# Direct preference optimisation, a baseline: on pairs of a passing and a failing stored answer, from
# preproc/process_multi_turn_taco.py --for dpo, with TRL's trainer. Needs no execution service. Arguments are settings of
# TRL's DPOConfig, NAME=VALUE, and train_batch_size=N, the pairs in a step; --dry-run prints them, checks, and starts nothing.
#
#   TRAIN_FILE=data/dpo.jsonl scripts/train_dpo.sh learning_rate=1e-6 beta=0.1
#   scripts/merge_checkpoint.sh runs/dpo models/dpo
#
# Knobs (environment), with their defaults:
#   PRESET=gpu              cpu: settings for a small model, without GPUs
#   MODEL=Qwen/Qwen2.5-Coder-1.5B-Instruct    Hugging Face id or folder, also the reference; of cpu MiniCoder
#   TRAIN_FILE=data/dpo.jsonl
#   OUTPUT_DIR=runs/dpo     checkpoints, metrics.jsonl, log; a second run resumes from it
#   LOG_FILE=$OUTPUT_DIR/train.log
#   N_GPUS=1
#   LOGGER=console          e.g. console,wandb,tensorboard,mlflow,trackio; WANDB_MODE=offline asks for no key
#   PYTHON=python           interpreter with the dpo extra
# Exit codes: 0 done, 1 a crash, 2 refused settings, unusable files, settings that contradict the checkpoint in OUTPUT_DIR,
# another training in OUTPUT_DIR, 3 GPUs or packages that are not there.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/lib/arguments.sh"
: "${PYTHON:=python}" "${PRESET:=gpu}" "${LOGGER:=console}" "${TRAIN_FILE:=data/dpo.jsonl}" "${OUTPUT_DIR:=runs/dpo}"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
if [[ $PRESET == cpu ]]; then
  : "${MODEL:=$ROOT/assets/minicoder}"
fi
[[ ! -d ${MODEL:-} ]] || MODEL=$(realpath "$MODEL") # cobalt merge looks for it, from wherever it is called

flags=(--preset "$PRESET" --model "${MODEL:-Qwen/Qwen2.5-Coder-1.5B-Instruct}" --train_file "$TRAIN_FILE" --output_dir "$OUTPUT_DIR")
flags+=(--n_gpus "${N_GPUS:-1}" --log "${LOG_FILE:-$OUTPUT_DIR/train.log}")
loggers=${LOGGER//console/}
[[ -z ${loggers//,/} ]] || flags+=(--loggers ${loggers//,/ })
settings=()
for argument in "$@"; do
  [[ $argument != --dry-run ]] || { flags+=(--check); continue; }
  take_overrides "$argument"
  settings+=("$argument")
done
exec "$PYTHON" -m cobalt dpo "${settings[@]}" "${flags[@]}"
