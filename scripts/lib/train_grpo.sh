# Sourced by the training recipes, which set RECIPE: starts what is missing, trains, stops what it started.
# Their headers list the knobs.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-python}
PRESET=${PRESET:-paper-qwen3}
OUTPUT_DIR=${OUTPUT_DIR:-runs/$RECIPE-$PRESET}
TRAIN_FILE=${TRAIN_FILE:-data/verl_$RECIPE/train.parquet}
VAL_FILE=${VAL_FILE:-data/verl_$RECIPE/test.parquet}
EXECUTOR=${EXECUTOR:-serve}
EVALUATOR_ARGS=${EVALUATOR_ARGS:-}
LOGGER=${LOGGER:-console}
LOG_FILE=${LOG_FILE:-$OUTPUT_DIR/train.log}
START_TIMEOUT_S=120
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"

overrides=(
  --config-dir "$ROOT/verl/config" "+recipe=$RECIPE" "+preset=$PRESET"
  "hydra.run.dir=$OUTPUT_DIR/hydra"
  "custom_reward_function.path=$ROOT/verl/code_reward_func_think.py"
  "data.train_files=$(realpath -m "$TRAIN_FILE")" "data.val_files=$(realpath -m "$VAL_FILE")"
  "reward_model.reward_kwargs.executor=$EXECUTOR"
  "trainer.logger=[$LOGGER]" "trainer.experiment_name=$(basename "$OUTPUT_DIR")"
  "trainer.default_local_dir=$(realpath -m "$OUTPUT_DIR")"
)
[[ $PRESET != cpu && $PRESET != one-gpu ]] || MODEL=${MODEL:-$ROOT/assets/minicoder}
[[ ! -d ${MODEL:-} ]] || MODEL=$(realpath "$MODEL")
[[ -z ${MODEL:-} ]] || overrides+=("actor_rollout_ref.model.path=$MODEL")
[[ -z ${ROLLOUT:-} ]] || overrides+=("actor_rollout_ref.rollout.name=$ROLLOUT")
[[ -z ${N_GPUS:-} ]] || overrides+=("trainer.n_gpus_per_node=$N_GPUS")
[[ -z ${N_NODES:-} ]] || overrides+=("trainer.nnodes=$N_NODES")

arguments=() dry_run=""
for argument in "$@"; do
  if [[ $argument == --dry-run ]]; then dry_run=1; else arguments+=("$argument"); fi
done
if [[ -n $dry_run ]]; then
  exec "$PYTHON" -m cobalt.train "${overrides[@]}" "${arguments[@]}" --cfg job --resolve
fi

ray_pid="" evaluator_is_ours=""

stop_services() {
  if [[ -n $ray_pid ]]; then
    kill "$ray_pid" 2>/dev/null && wait "$ray_pid" || true
  elif [[ -n $evaluator_is_ours ]]; then
    "$PYTHON" -c 'from ray import serve; serve.delete("evaluator")' || true
  fi
}

start_ray() {
  local port arguments=(--head --block --include-dashboard=false --disable-usage-stats --node-ip-address 127.0.0.1)
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
  [[ $RAY_AUTH_MODE != token ]] || ray get-auth-token --generate >/dev/null 2>&1 || true  # Ray before 2.51 has none
  port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
  # On a CPU, GPUs are logical: veRL asks Ray for one per worker.
  [[ $PRESET != cpu ]] || arguments+=(--num-gpus "${N_GPUS:-1}" --num-cpus 8)
  ray start "${arguments[@]}" --port "$port" >"$OUTPUT_DIR/ray.log" 2>&1 &
  ray_pid=$!
  export RAY_ADDRESS=127.0.0.1:$port
  local deadline=$((SECONDS + START_TIMEOUT_S))
  until ray status >>"$OUTPUT_DIR/ray.log" 2>&1; do
    if ! kill -0 "$ray_pid" 2>/dev/null || ((SECONDS > deadline)); then
      echo "Ray did not start: see $OUTPUT_DIR/ray.log" >&2
      exit 3
    fi
    sleep 1
  done
}

start_evaluator() {
  "$PYTHON" -m cobalt.training.check 2>/dev/null && return  # one is running in this cluster
  [[ -z $ray_pid ]] || serve start --proxy-location Disabled >"$OUTPUT_DIR/evaluator.log" 2>&1
  evaluator_is_ours=1
  # shellcheck disable=SC2086 # a list of arguments
  (cd "$ROOT" && serve run --non-blocking remote_reward_server:app --name evaluator --route-prefix /evaluator \
    $EVALUATOR_ARGS) >>"$OUTPUT_DIR/evaluator.log" 2>&1 || { echo "see $OUTPUT_DIR/evaluator.log" >&2; exit 3; }
  "$PYTHON" -m cobalt.training.check
}

mkdir -p "$OUTPUT_DIR"
trap stop_services EXIT
[[ -n ${RAY_ADDRESS:-} ]] || start_ray
[[ $EXECUTOR != serve ]] || start_evaluator
echo "training: recipe $RECIPE, preset $PRESET; log: $LOG_FILE"
"$PYTHON" -m cobalt.train "${overrides[@]}" "${arguments[@]}" 2>&1 | tee -a "$LOG_FILE"
