# shellcheck shell=bash
# Sourced by scripts/lib/arms.sh: items of work beside each other on the GPUs that there are, and what is left of it.
#
#   side_by_side FUNCTION ITEMS...    FUNCTION of each item, after the item that it needs; with GPUS as many at a time as it
#                                     names places, else one
#   tell_plan [base]                  what list_work has found: what is done, what is left, how long that may take
#   stop_all                          what side_by_side has started; for `trap ... EXIT`
# The caller defines `needs FUNCTION ITEM`: the item, listed before it, that must be done first, if any. Each item is a stage
# of the script that asks: a second run starts nothing for those that are done.

STUDY=$(basename "$0" .sh)
services_run=""
workers=()

side_by_side() {
  local function=$1 items=() item
  for item in "${@:2}"; do [[ -f $(done_file "$function" "$item") ]] || items+=("$item"); done
  ((${#items[@]} > 0)) || return 0
  if ((${#gpus[@]} > 0)); then
    share_out "$function" "${items[@]}"
    return
  fi
  [[ -n $services_run ]] || start_services "$RUN/logs"
  services_run=1
  work_on "$function" "${items[@]}"
}

share_out() { # FUNCTION ITEMS...: among workers, one for each place that GPUS names
  local function=$1 number item needed failed="" shares=() sizes=()
  local -A place_of=()
  for number in "${!gpus[@]}"; do shares[number]="" sizes[number]=0; done
  for item in "${@:2}"; do
    needed=$(needs "$function" "$item") # its place will do: an item comes after the one that it needs
    number=${place_of[${needed:-none}]:-$(smallest_share)}
    place_of[$item]=$number shares[number]+=" $item" sizes[number]=$((sizes[number] + 1))
  done
  echo "== $function ${*:2}: side by side, see $RUN/logs/worker-*.log"
  mkdir -p "$RUN/logs"
  for number in "${!gpus[@]}"; do
    [[ -n ${shares[number]} ]] || continue
    set -m # a process group of its own, which stop_all ends
    # shellcheck disable=SC2086 # a list of items
    start_worker "$number" "$function" ${shares[number]} >>"$RUN/logs/worker-$number.log" 2>&1 &
    set +m
    workers[number]=$!
  done
  for number in "${!workers[@]}"; do wait "${workers[number]}" || failed+=" $RUN/logs/worker-$number.log"; done
  workers=()
  if [[ -n $failed ]]; then
    echo "$STUDY.sh: error: stopped early; see$failed" >&2
    exit 1
  fi
}

smallest_share() { # of share_out's: its place
  local number smallest=0
  for number in "${!sizes[@]}"; do ((sizes[number] >= sizes[smallest])) || smallest=$number; done
  echo "$smallest"
}

start_worker() { # NUMBER FUNCTION ITEMS...: with a Ray of its own, which sees its GPU alone
  [[ $PRESET == cpu ]] || export CUDA_VISIBLE_DEVICES=${gpus[$1]}
  unset RAY_ADDRESS
  trap stop_services EXIT
  start_services "$RUN/logs/worker-$1"
  work_on "${@:2}"
}

work_on() { # FUNCTION ITEMS...
  local item
  for item in "${@:2}"; do stage "$STUDY-$1-$item" "$1" "$item"; done
}

done_file() { echo "$RUN/done/$STUDY-$1-$2"; } # FUNCTION ITEM

stop_all() {
  local worker
  for worker in ${workers[@]+"${workers[@]}"}; do kill -- "-$worker" 2>/dev/null || true; done
  stop_services
}

# Seconds of an item as long as none is done. On an H200, one at a time: trajectories to learn from 100; a training 240,
# merging 14, measuring a set 64 (docs/results/online-h200.md, hacking-h200.md); on two CPU cores: 40, and 85, 7, 25.
declare -A usual_s=([gpu-offline]=100 [gpu-policy]=400 [cpu-offline]=40 [cpu-policy]=150)

expect() { # FUNCTION ITEMS...: adds to spent_s and left_s; an item takes as long as the longest that is done
  local function=$1 item file took each=0 undone=0
  for item in "${@:2}"; do
    file=$(done_file "$function" "$item")
    if [[ -f $file ]]; then
      took=$(<"$file")
      spent_s=$((spent_s + took))
      ((each >= took)) || each=$took
    else
      undone=$((undone + 1))
    fi
  done
  ((each > 0)) || each=${usual_s[$SIZE-$function]}
  left_s=$((left_s + undone * each))
  echo "  $function: $(($# - 1 - undone)) done, $undone left, about $each s each"
}

tell_plan() {
  local left_s=0 spent_s=0 places=${#gpus[@]} devices
  devices=$(printf '%s\n' "${gpus[@]:-0}" | sort -u | wc -l)
  ((places > 0)) || places=1
  echo "$STUDY.sh: ${#policies[@]} trainings of $STEPS steps (online ones: BUDGET=$BUDGET);" \
    "$((TRAIN_PROBLEMS * TRAIN_SAMPLES)) trajectories in each collection;" \
    "$((DEV_PROBLEMS * DEV_SAMPLES * (TURNS + 1))) programs to measure a policy once"
  expect offline "$@" ${collections[@]+"${collections[@]}"}
  expect policy "${policies[@]}"
  echo "  worked so far: $((spent_s / 60)) min; left: about $((left_s / 60)) min, with $places at a time" \
    "$((left_s / places / 60)) min, $((left_s / places * devices / 60)) GPU-minutes, or more where policies share a GPU"
}
