# shellcheck shell=bash
# Checks what the run needs, starts what is missing, trains, stops what it started. Arguments are hydra overrides; --dry-run
# prints the resolved configuration, checks, and starts nothing.
#
#   PRESET=paper-qwen3 TRAIN_FILE=data/train.parquet VAL_FILE=data/test.parquet scripts/train_grpo_multi_turn.sh
#
# Knobs (environment), with their defaults:
#   PRESET=paper-qwen3      a file of verl/config/preset; cpu: a small model, without GPUs
#   MODEL=                  Hugging Face id or folder; default: the preset's
#   TRAIN_FILE=data/verl_$RECIPE/train.parquet    of the online recipes: those of single_turn
#   VAL_FILE=data/verl_$RECIPE/test.parquet
#   OUTPUT_DIR=runs/$RECIPE-$PRESET    checkpoints, metrics.jsonl, logs; a second run resumes from it
#   LOG_FILE=$OUTPUT_DIR/train.log
#   N_GPUS=, N_NODES=       GPUs per node, and nodes; default: the preset's
#   EXECUTOR=serve          serve: the evaluator app, started here unless it is running; local: without Ray Serve
#   EVALUATOR_ARGS=         e.g. "replicas=2 workers=16 checker=lcb"; a running app must have this checker and limits
#   LOGGER=console          e.g. console,wandb,tensorboard,mlflow,trackio; WANDB_MODE=offline asks for no key
#   WANDB_DIR, TENSORBOARD_DIR, MLFLOW_TRACKING_URI, TRACKIO_DIR=    where these write; default: in OUTPUT_DIR
#   RAY_ADDRESS=            a running cluster; default: one is started here and stopped at the end
#   PYTHON=python           interpreter with the train extra
# Exit codes: 0 done, 1 a crash, 2 refused overrides, unusable files, settings that contradict each other or the checkpoint
# in OUTPUT_DIR, another training in OUTPUT_DIR, 3 no execution service, or GPUs or packages that are not there.

# The training recipes scripts/train_*.sh source this file. They set RECIPE to a file of verl/config/recipe.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HELP_TOO=lib/train_grpo.sh source "$ROOT/scripts/lib/arguments.sh"
: "${PYTHON:=python}" "${PRESET:=paper-qwen3}" "${EXECUTOR:=serve}" "${LOGGER:=console}"
: "${OUTPUT_DIR:=runs/$RECIPE-$PRESET}" "${LOG_FILE:=$OUTPUT_DIR/train.log}"
data=data/verl_${RECIPE/*_online/single_turn} # online recipes learn from problems
: "${TRAIN_FILE:=$data/train.parquet}" "${VAL_FILE:=$data/test.parquet}"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"

overrides=(--config-dir "$ROOT/verl/config" "+recipe=$RECIPE" "+preset=$PRESET" "trainer.logger=[$LOGGER]")
case $PRESET in
  cpu | one-gpu-vllm) MODEL=${MODEL:-$ROOT/assets/minicoder} ;;
  one-gpu) refuse "PRESET=one-gpu was removed: use one-gpu-vllm (vLLM rollouts), or cpu" ;;
esac
[[ -z ${ROLLOUT:-} ]] || refuse "ROLLOUT was removed: rollouts are vLLM's on GPUs and Hugging Face's with PRESET=cpu"
override reward.custom_reward_function.path "$ROOT/verl/code_reward_func_think.py"
override data.train_files "$(realpath -m "$TRAIN_FILE")"
override data.val_files "$(realpath -m "$VAL_FILE")"
override reward.reward_kwargs.executor "$EXECUTOR"
override trainer.experiment_name "$(basename "$OUTPUT_DIR")"
override trainer.default_local_dir "$(realpath -m "$OUTPUT_DIR")"
[[ ! -d ${MODEL:-} ]] || MODEL=$(realpath "$MODEL")
[[ -z ${MODEL:-} ]] || override actor_rollout_ref.model.path "$MODEL"
[[ -z ${N_GPUS:-} ]] || overrides+=("trainer.n_gpus_per_node=$N_GPUS")
[[ -z ${N_NODES:-} ]] || overrides+=("trainer.nnodes=$N_NODES")

dry_run=""
for argument in "$@"; do
  [[ $argument != --dry-run ]] || { dry_run=1; continue; }
  take_overrides "$argument"
  overrides+=("$argument")
done
source "$ROOT/scripts/lib/services.sh"
[[ $EXECUTOR != serve ]] || check_evaluator_args
[[ -z $dry_run ]] || exec "$PYTHON" -m cobalt train --check --cfg job --resolve "${overrides[@]}"

services() { # for `cobalt train`, which asks for them once it has checked everything, and is told Ray's address
  local limit limits # of programs, by the configuration; the app is started with those of EVALUATOR_ARGS if it names them
  read -r _ limits
  for limit in $limits; do
    [[ " ${EVALUATOR_ARGS:-}" == *" ${limit%%=*}="* ]] || EVALUATOR_ARGS="$limit ${EVALUATOR_ARGS:-}"
  done
  exec 6>&1 1>&3 3>&-
  trap 'echo "exit $?" >&6; stop_services' EXIT
  echo "starting Ray and what runs the programs; logs in $OUTPUT_DIR"
  if [[ $EXECUTOR == serve ]]; then
    start_services "$OUTPUT_DIR"
  elif [[ -z ${RAY_ADDRESS:-} ]]; then
    start_ray "$OUTPUT_DIR"
  fi
  trap stop_services EXIT
  echo "$RAY_ADDRESS" >&6
  read -r # nothing comes: until those who might write have ended
}
exec 3>&1
coproc SERVICES { services; }
exec 4</dev/fd/"${SERVICES[0]}" 5>/dev/fd/"${SERVICES[1]}" 3>&- # copies by <& would be closed in other programs
trap 'kill '$SERVICES_PID' 2>/dev/null && wait '$SERVICES_PID' || true' EXIT
# Ends with this shell, however that ends.
setpriv --pdeathsig KILL "$PYTHON" -m cobalt train --log "$LOG_FILE" --services_fds 4 5 "${overrides[@]}"
