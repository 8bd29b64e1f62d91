# shellcheck shell=bash
# Sourced by scripts/lib/arms.sh: items of work beside each other on the GPUs that there are, and what is left of it.
#
#   side_by_side ITEMS...    each item, FUNCTION/NAME, as `FUNCTION NAME`, after the items that it needs; with GPUS as many at
#                            a time as it names places, a free place takes the first that is ready; else one
#   tell_plan                of the items: what is done, what is left, how long that may take
#   stop_all                 what side_by_side has started; for `trap ... EXIT`
# The caller defines `needs ITEM`: the items, listed before it, that must be done first. Each item is a stage of the script
# that asks: a second run starts nothing for those that are done.

STUDY=$(basename "$0" .sh)
workers=()
at="" # the item that this worker has taken

side_by_side() {
  local item number failed=""
  local -a items=()
  local -A needed_by=()
  for item in "$@"; do
    if is_done "$item"; then continue; fi
    items+=("$item")
    needed_by[$item]=$(needs "$item")
  done
  ((${#items[@]} > 0)) || return 0
  refuse_company
  rm -rf "$RUN/taken"
  mkdir -p "$RUN/taken" "$RUN/logs"
  echo $$ >"$RUN/taken/at_work"
  if ((${#gpus[@]} == 0)); then
    start_services "$RUN/logs"
    work
    return
  fi
  echo "== ${#items[@]} pieces of work side by side, see $RUN/logs/worker-*.log"
  for number in "${!gpus[@]}"; do
    ((number < ${#items[@]})) || break
    set -m # a process group of its own, which stop_all ends
    start_worker "$number" >>"$RUN/logs/worker-$number.log" 2>&1 &
    set +m
    workers[number]=$!
    echo $! >>"$RUN/taken/at_work"
  done
  for number in "${!workers[@]}"; do wait "${workers[number]}" || failed+=" $RUN/logs/worker-$number.log"; done
  workers=()
  if [[ -n $failed ]]; then
    echo "$STUDY.sh: error: stopped early; see$failed" >&2
    exit 1
  fi
}

refuse_company() { # another run in this folder, or workers that a killed one has left
  local pid
  for pid in $(cat "$RUN/taken/at_work" 2>/dev/null); do
    ! grep -qs '\(study\|sweep\)_[a-z]*[.]sh' "/proc/$pid/cmdline" || refuse "process $pid is still at work in $RUN"
  done
}

start_worker() { # NUMBER: with a Ray of its own, which sees its GPU alone
  [[ $PRESET == cpu ]] || export CUDA_VISIBLE_DEVICES=${gpus[$1]}
  unset RAY_ADDRESS
  trap end_worker EXIT
  start_services "$RUN/logs/worker-$1"
  work
}

end_worker() {
  local status=$?
  ((status == 0)) || [[ -z $at ]] || touch "$(place_of "$at")/failed"
  stop_services
}

# Of side_by_side's items those that no other worker takes; ends when none is left but those that need a failed one.
work() {
  local item
  while item=$(take); do
    if [[ -n $item ]]; then
      at=$item
      stage "$(stage_of "$item")" "${item%%/*}" "${item#*/}"
    else
      sleep 1 # what is left waits for others
    fi
  done
}

take() { # the first item that is ready and that nobody has taken; nothing if all wait; status 1 if none is left
  local item needed waits=""
  for item in "${items[@]}"; do
    [[ ! -d $(place_of "$item") ]] || continue
    for needed in ${needed_by[$item]}; do
      if ! is_done "$needed"; then
        is_lost "$needed" || waits=1
        continue 2
      fi
    done
    if mkdir "$(place_of "$item")" 2>/dev/null; then
      echo "$item"
      return
    fi
  done
  [[ -n $waits ]]
}

is_lost() { # ITEM: it has failed, or one that it needs
  local needed
  [[ ! -f $(place_of "$1")/failed ]] || return 0
  for needed in ${needed_by[$1]-}; do ! is_lost "$needed" || return 0; done
  return 1
}

place_of() { echo "$RUN/taken/$(stage_of "$1")"; } # ITEM

is_done() { [[ -f $(done_file "$1") ]]; }

done_file() { echo "$RUN/done/$(stage_of "$1")"; } # ITEM

stage_of() { echo "$STUDY-${1/\//-}"; } # ITEM

stop_all() { # and waits for its end: who runs the study again at once finds nobody at work
  local worker
  for worker in ${workers[@]+"${workers[@]}"}; do kill -- "-$worker" 2>/dev/null || true; done
  for worker in ${workers[@]+"${workers[@]}"}; do wait "$worker" || true; done
  stop_services
}

# Seconds of an item as long as none is done. On an H200, one at a time: trajectories to learn from 100; a training 240,
# merging 14, measuring a set 64; on two CPU cores: 40, and 85, 7, 25.
declare -A usual_s=([gpu-offline]=100 [gpu-policy]=400 [cpu-offline]=40 [cpu-policy]=150)

expect() { # FUNCTION: adds to spent_s and left_s for its items; an item takes as long as the longest that is done
  local item took each=0 undone=0 all=0
  for item in "${items[@]}"; do
    [[ $item == "$1/"* ]] || continue
    all=$((all + 1))
    if is_done "$item"; then
      took=$(<"$(done_file "$item")")
      spent_s=$((spent_s + took))
      ((each >= took)) || each=$took
    else
      undone=$((undone + 1))
    fi
  done
  ((each > 0)) || each=${usual_s[$SIZE-$1]}
  left_s=$((left_s + undone * each))
  echo "  $1: $((all - undone)) done, $undone left, about $each s each"
}

tell_plan() {
  local left_s=0 spent_s=0 places=${#gpus[@]} devices item trainings=0
  devices=$(printf '%s\n' "${gpus[@]:-0}" | tr , '\n' | sort -u | wc -l)
  ((places > 0)) || places=1
  for item in "${items[@]}"; do [[ $item != policy/* ]] || trainings=$((trainings + 1)); done
  echo "$STUDY.sh: $trainings trainings of $STEPS steps (online ones: BUDGET=$BUDGET);" \
    "$((TRAIN_PROBLEMS * TRAIN_SAMPLES)) trajectories in each collection;" \
    "$((DEV_PROBLEMS * DEV_SAMPLES * (TURNS + 1))) programs to measure a policy once"
  expect offline
  expect policy
  echo "  worked so far: $((spent_s / 60)) min; left: about $((left_s / 60)) min, with $places at a time" \
    "$((left_s / places / 60)) min, $((left_s / places * devices / 60)) GPU-minutes, or more where policies share a GPU"
}
