# Sourced by the recipes: a Ray head node and the execution service, started where missing, stopped at the end.
#
#   start_services LOG_DIR [ray start arguments]   uses the cluster at RAY_ADDRESS, or starts one and exports the address
#   stop_services                                  stops what start_services started; for `trap ... EXIT`
# Knobs: PYTHON, EVALUATOR_ARGS (arguments of the evaluator app, e.g. "replicas=2 workers=16").

START_TIMEOUT_S=300 # a busy machine takes minutes for what an idle one does in seconds
export RAY_raylet_start_wait_time_s=${RAY_raylet_start_wait_time_s:-$START_TIMEOUT_S}
ray_pid="" evaluator_is_ours=""

start_services() {
  local log_dir=$1
  shift
  mkdir -p "$log_dir"
  [[ -n ${RAY_ADDRESS:-} ]] || start_ray "$log_dir" "$@"
  start_evaluator "$log_dir"
}

free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

start_ray() {
  local log_dir=$1 port deadline=$((SECONDS + START_TIMEOUT_S))
  shift
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
  [[ $RAY_AUTH_MODE != token ]] || ray get-auth-token --generate >/dev/null 2>&1 || true # older Ray knows no tokens
  port=$(free_port)
  ray start --head --block --include-dashboard=false --disable-usage-stats --node-ip-address 127.0.0.1 --port "$port" \
    --ray-client-server-port "$(free_port)" "$@" >"$log_dir/ray.log" 2>&1 &
  ray_pid=$!
  export RAY_ADDRESS=127.0.0.1:$port
  until ray status 2>>"$log_dir/ray.log" | grep -q ' 1 node_'; do # the head is up, and its node has joined
    if ! kill -0 "$ray_pid" 2>/dev/null || ((SECONDS > deadline)); then
      echo "Ray did not start: see $log_dir/ray.log" >&2
      exit 3
    fi
    sleep 1
  done
}

start_evaluator() {
  local log_dir=$1
  "$PYTHON" -m cobalt.training.check 2>/dev/null && return # one is running in this cluster
  evaluator_is_ours=1
  if [[ -n $ray_pid ]]; then # only handles are used: no HTTP
    timeout $START_TIMEOUT_S serve start --proxy-location Disabled >"$log_dir/evaluator.log" 2>&1 \
      || { echo "Ray Serve did not start: see $log_dir/evaluator.log" >&2; exit 3; }
  fi
  # shellcheck disable=SC2086 # a list of arguments
  timeout $START_TIMEOUT_S serve run --non-blocking remote_reward_server:app --name evaluator --route-prefix /evaluator ${EVALUATOR_ARGS:-} \
    >>"$log_dir/evaluator.log" 2>&1 || { echo "no execution service: see $log_dir/evaluator.log" >&2; exit 3; }
  "$PYTHON" -m cobalt.training.check
}

stop_services() {
  if [[ -n $ray_pid ]]; then
    kill "$ray_pid" 2>/dev/null && wait "$ray_pid" || true
  elif [[ -n $evaluator_is_ours ]]; then
    "$PYTHON" -c 'from ray import serve; serve.delete("evaluator")' || true
  fi
}
