#!/usr/bin/env bash
# Contextual bandit learning: GRPO on partial trajectories (one program per context).
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_grpo_multi_turn.sh
#
# Knobs (environment), with their defaults; anything else is a hydra override at the end of the command line:
#   PRESET=paper-qwen3      paper-qwen3, paper-r1-llama, one-gpu, cpu: a file of verl/config/preset
#   MODEL=                  Hugging Face id or folder; default: the preset's
#   TRAIN_FILE, VAL_FILE    from preproc/verl_preproc_multi_turn.py; default: data/verl_multi_turn/{train,test}.parquet
#   OUTPUT_DIR=runs/multi_turn-$PRESET   checkpoints, metrics.jsonl, logs; a second run resumes from it
#   N_GPUS, N_NODES         GPUs per node, nodes; default: the preset's
#   ROLLOUT=                vllm, sglang, hf; default: the preset's
#   EXECUTOR=serve          serve: the evaluator app, started here unless it is running; local: without Ray Serve
#   EVALUATOR_ARGS=         e.g. "replicas=2 workers=16 checker=lcb"; a running app must have this checker and these limits
#   LOGGER=console          e.g. console,wandb (WANDB_MODE=offline is honoured)
#   RAY_ADDRESS=            a running cluster; default: one is started here and stopped at the end
#   LOG_FILE=$OUTPUT_DIR/train.log   PYTHON=python
# --dry-run prints the resolved configuration and starts nothing. Exit codes: 0 done, 1 overrides that hydra refuses or a
# crash, 2 missing files, settings that contradict each other or the checkpoint in OUTPUT_DIR, 3 no execution service.
set -euo pipefail
RECIPE=multi_turn
source "$(dirname "${BASH_SOURCE[0]}")/lib/train_grpo.sh"
