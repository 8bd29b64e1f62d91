#!/usr/bin/env bash
# The whole loop on this machine, from generated problems to a measured improvement, in about 12 minutes on 2 idle CPU
# cores (plus about 3 for the installation): MiniCode problems -> sandboxed execution -> multi-turn trajectories of
# MiniCoder -> partial contexts -> GRPO with veRL -> Pass@1 per turn, before and after.
#
# A second run continues where the first was stopped. Arguments are hydra overrides of the training. Knobs:
#   RUN=runs/quickstart       where everything is written; one set of knobs per folder
#   SEED=0                    seed of the data and of sampling
#   TRAIN_SEED=$SEED          seed of training; with another one, copy a folder that has the stages before `train`
#   MODEL=assets/minicoder    the reference model and the policy's start
#   TRAIN_PROBLEMS=120, DEV_PROBLEMS=96    problems to learn from, and to measure on
#   TRAIN_SAMPLES=8, DEV_SAMPLES=3         trajectories of each
#   STEPS=60                  GRPO steps
#   BATCH_SIZE=128            sequences that are sampled together
#   PRESET=cpu                training preset: cpu, or one-gpu-vllm
#   SETUP=1                   0: use the environment that is active instead of making .venv
# Exit codes: 0 done, 2 other settings in this folder, or arguments that are no overrides, 3 this machine lacks something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib/arguments.sh
take_overrides "$@"

if [[ ${SETUP:-1} == 1 ]]; then
  bash scripts/setup.sh
  export PATH="$PWD/.venv/bin:$PATH"
fi
export PYTHON=python
# shellcheck disable=SC2086 # a list of arguments
exec "$PYTHON" -m studies study quickstart --output_dir "${RUN:=runs/quickstart}" --data_seed "${SEED:=0}" \
  --train_seed "${TRAIN_SEED:=$SEED}" --model "${MODEL:=assets/minicoder}" --train_problems "${TRAIN_PROBLEMS:=120}" \
  --dev_problems "${DEV_PROBLEMS:=96}" --train_samples "${TRAIN_SAMPLES:=8}" --dev_samples "${DEV_SAMPLES:=3}" \
  --steps "${STEPS:=60}" --batch_size "${BATCH_SIZE:=128}" --preset "${PRESET:=cpu}" --engine "${ENGINE:=hf}" \
  --max_tokens "${MAX_TOKENS:=256}" --engine_args ${ENGINE_ARGS:-} -- "$@"
