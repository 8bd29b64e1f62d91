#!/usr/bin/env bash
# Rejection-sampling fine-tuning, a baseline and a start for Cobalt: cross-entropy on stored answers that pass, from
# preproc/process_multi_turn_taco.py --for rft. Needs no execution service. Arguments are hydra overrides; --dry-run prints
# the resolved configuration, checks, and starts nothing.
#
#   TRAIN_FILE=data/rft.jsonl scripts/train_rft.sh optim.lr=3e-6
#   scripts/merge_checkpoint.sh runs/rft models/rft    the start of a recipe of Cobalt: MODEL=models/rft
#
# Knobs (environment), with their defaults:
#   PRESET=gpu              a file of verl/config/rft; cpu: a small model, without GPUs
#   MODEL=                  Hugging Face id or folder; default: the preset's
#   TRAIN_FILE=data/rft.jsonl
#   OUTPUT_DIR=runs/rft     checkpoints, metrics.jsonl, log; a second run resumes from it
#   LOG_FILE=$OUTPUT_DIR/train.log
#   N_GPUS=                 default: the preset's
#   LOGGER=console          e.g. console,wandb,tensorboard,mlflow,trackio; WANDB_MODE=offline asks for no key
#   PYTHON=python           interpreter with the train extra
# Exit codes: 0 done, 1 a crash, 2 refused overrides, unusable files, settings that contradict the checkpoint in OUTPUT_DIR,
# another training in OUTPUT_DIR, 3 GPUs or packages that are not there.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$ROOT/scripts/lib/arguments.sh"
: "${PYTHON:=python}" "${PRESET:=gpu}" "${LOGGER:=console}" "${TRAIN_FILE:=data/rft.jsonl}" "${OUTPUT_DIR:=runs/rft}"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"

overrides=(--config-dir "$ROOT/verl/config" "+rft=$PRESET" "trainer.logger=[$LOGGER]")
[[ $PRESET != cpu ]] || MODEL=${MODEL:-$ROOT/assets/minicoder}
override data.train_files "$(realpath -m "$TRAIN_FILE")"
override trainer.experiment_name "$(basename "$OUTPUT_DIR")"
override trainer.default_local_dir "$(realpath -m "$OUTPUT_DIR")"
[[ ! -d ${MODEL:-} ]] || MODEL=$(realpath "$MODEL")
[[ -z ${MODEL:-} ]] || override model.path "$MODEL"
[[ -z ${N_GPUS:-} ]] || overrides+=("trainer.n_gpus_per_node=$N_GPUS")
how=(--log "${LOG_FILE:-$OUTPUT_DIR/train.log}")
for argument in "$@"; do
  [[ $argument != --dry-run ]] || { how=(--check --cfg job --resolve); continue; }
  take_overrides "$argument"
  overrides+=("$argument")
done
exec "$PYTHON" -m cobalt rft "${how[@]}" "${overrides[@]}"
