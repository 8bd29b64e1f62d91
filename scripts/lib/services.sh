# shellcheck shell=bash
# Sourced by the recipes: a Ray head node and the execution service, started where missing, stopped at the end.
#
#   check_evaluator_args     refuses EVALUATOR_ARGS that the evaluator app would not take (exit 2)
#   start_services LOG_DIR   uses the cluster at RAY_ADDRESS, or starts one and exports the address
#   serve_model MODEL        after start_services: the vLLM app with this model, in place of another one
#   stop_model               ends that app: its GPUs are free
#   stop_services            stops what start_services and serve_model started; for `trap ... EXIT`
# Knobs: PYTHON, PRESET, N_GPUS and EVALUATOR_ARGS as in the recipes; ENGINE=vllm if serve_model will be called;
# ENGINE_ARGS, the arguments of the vLLM app but for the model, e.g. "tensor_parallel_size=2 max_model_len=16384".

# `ray` and `serve` of PYTHON's environment, whichever is active.
! python_file=$(command -v "$PYTHON") || PATH=$(cd "$(dirname "$python_file")" && pwd):$PATH

START_TIMEOUT_S=300 # a busy machine takes minutes for what an idle one does in seconds
LOAD_TIMEOUT_S=3600 # of a model: it may be downloaded, and vLLM compiles
export RAY_raylet_start_wait_time_s=${RAY_raylet_start_wait_time_s:-$START_TIMEOUT_S}
# A cluster's first driver would otherwise start a Python process for each CPU, of which we use a handful.
export RAY_prestart_worker_first_driver=${RAY_prestart_worker_first_driver:-0}
# A stopped head would otherwise wait 30 s for its replicas to move to other nodes; there are none.
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=${RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S:-0}
if [[ -z ${RAY_ADDRESS:-} ]]; then # of the Ray that will be started, for all that talk to it
  # Older Ray knows no tokens. This one stays out of Ray's file in the home folder: with that file there, `ray start` asks
  # every command for a token.
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
  [[ $RAY_AUTH_MODE != token ]] || export RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1)}
  export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 # on Linux too: Ray's ports listen on the loopback interface alone
fi
# The folder of the logs. If they are ours: the head's process, the evaluator's log and the vLLM app's model.
service_dir="" ray_pid="" service_log="" served=""

check_evaluator_args() { "$PYTHON" -m cobalt service check --arguments_only --evaluator_args "${EVALUATOR_ARGS:-}"; }

give_up() { echo "$*" >&2; exit 3; }

bounded() { timeout --foreground "$@"; } # in our process group, so that what ends us ends the command, too

free_port() { "$PYTHON" -c 'from cobalt.serving.ports import free_port; print(free_port())'; }

start_ray() {
  local log=$1/ray.log deadline port lock hidden=() cores
  cores=$(env -u OMP_NUM_THREADS nproc)
  # Ray's CPUs are logical: up to three with each of veRL's GPUs, two more, and the machine's cores for an evaluator that
  # reserves some. With fewer of them veRL waits without a word.
  local devices=(--num-cpus $((3 * ${N_GPUS:-8} + 2 + cores)))
  if [[ ${PRESET:-} == cpu ]]; then # veRL then asks for GPUs that are not there: as many as the preset says
    devices+=(--num-gpus "${N_GPUS:-2}")
    hidden=(-u CUDA_VISIBLE_DEVICES) # Ray refuses to have more GPUs than it names
  fi
  # One after the other for every eight cores: heads that start together on few of them time each other out.
  exec {lock}>>"${TMPDIR:-/tmp}/cobalt-ray-$UID-$((BASHPID % (1 + cores / 8))).lock"
  flock "$lock"
  deadline=$((SECONDS + START_TIMEOUT_S))
  port=$(free_port)
  mkdir -p "$1"
  : >"$log" # an earlier Ray has said there that it runs
  # Worker ports 0, any that is free: Ray's default range is the same for all clusters of a host, which race for it.
  # A shell that is killed stops nothing by itself: the kernel then ends Ray in its place.
  setpriv --pdeathsig TERM env ${hidden[@]+"${hidden[@]}"} ray start --head --block --include-dashboard=false --disable-usage-stats \
    --node-ip-address 127.0.0.1 --port "$port" \
    --ray-client-server-port "$(free_port)" --min-worker-port 0 --max-worker-port 0 "${devices[@]}" \
    >"$log" 2>&1 {lock}>&- &
  ray_pid=$!
  export RAY_ADDRESS=127.0.0.1:$port
  until grep -q 'Ray runtime started' "$log"; do # the head is up, and its node has joined; `ray status` says so 5 s later
    kill -0 "$ray_pid" 2>/dev/null && ((SECONDS <= deadline)) || give_up "Ray did not start: see $log"
    sleep 0.2
  done
  exec {lock}>&-
}

start_services() {
  local log=$1/evaluator.log status=0
  local check=(bounded "$START_TIMEOUT_S" "$PYTHON" -m cobalt service check --evaluator_args "${EVALUATOR_ARGS:-}")
  check_evaluator_args
  service_dir=$1
  mkdir -p "$service_dir"
  : >"$log"
  if [[ -n ${RAY_ADDRESS:-} ]]; then
    "$PYTHON" -m cobalt service check --cluster_only
    "${check[@]}" 2>"$log" || status=$?
    ((status != 0)) || return 0 # one is running in this cluster
    if ((status == 2)); then # with other settings than those asked for
      grep ' error: ' "$log" >&2
      exit 2
    fi
  else
    start_ray "$service_dir"
  fi
  service_log=$log
  if [[ -n $ray_pid ]]; then # only the vLLM app is asked by HTTP; its usual port may be another cluster's
    local http=(--proxy-location Disabled) port
    if [[ ${ENGINE:-} == vllm ]]; then
      port=$(free_port)
      http=(--http-port "$port")
      export COBALT_VLLM_URL=http://127.0.0.1:$port/vllm_actor/v1
    fi
    bounded "$START_TIMEOUT_S" serve start "${http[@]}" >>"$log" 2>&1 || give_up "Ray Serve did not start: see $log"
  fi
  # In a Ray of our own nothing is reserved by default: the CPUs that Ray offers must do for veRL too.
  # shellcheck disable=SC2086 # a list of arguments
  bounded "$START_TIMEOUT_S" serve run --non-blocking remote_reward_server:app \
    --name evaluator --route-prefix /evaluator ${ray_pid:+num_cpus=0} ${EVALUATOR_ARGS:-} >>"$log" 2>&1 \
    || give_up "no execution service: see $log"
  "${check[@]}"
}

serve_model() {
  [[ $served != "$1" ]] || return 0
  stop_model
  { # `serve run` ends with 0 also where the app did not start
    # shellcheck disable=SC2086 # a list of arguments
    bounded "$LOAD_TIMEOUT_S" serve run --non-blocking vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor \
      "model=$1" ${ENGINE_ARGS:-} && "$PYTHON" -c 'from ray import serve; serve.get_app_handle("vllm_actor")'
  } >>"$service_dir/vllm.log" 2>&1 || give_up "vLLM does not serve $1: see $service_dir/vllm.log"
  served=$1
}

delete_app() { "$PYTHON" -c "from ray import serve; serve.delete(\"$1\")"; } # NAME

stop_model() {
  [[ -z $served ]] || delete_app vllm_actor
  served=""
}

stop_services() {
  local file=${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray/ray_current_cluster
  if [[ -n $ray_pid ]]; then
    kill "$ray_pid" 2>/dev/null && wait "$ray_pid" || true
    # Ray leaves its address for later commands, which would look for the stopped cluster.
    ! grep -qs ":${RAY_ADDRESS##*:}\$" "$file" || rm -f "$file"
  else
    stop_model || true
    [[ -z $service_log ]] || delete_app evaluator >>"$service_log" 2>&1 || true
  fi
}
