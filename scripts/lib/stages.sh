# shellcheck shell=bash
# Sourced by the recipes that run many commands: each stage once per folder, so that a second run continues.
#
#   keep_settings RUN TEXT      refuses a folder that was made with other settings (exit 2)
#   stage NAME COMMAND...       runs COMMAND unless it has succeeded in $RUN before; done/NAME holds the seconds it took

keep_settings() {
  local run=$1
  local settings=$2
  mkdir -p "$run/done"
  if [[ -f $run/settings ]] && [[ $(<"$run/settings") != "$settings" ]]; then
    echo "$(basename "$0"): error: $run was made with '$(<"$run/settings")'; set RUN to another folder" >&2
    exit 2
  fi
  echo "$settings" >"$run/settings"
}

stage() {
  local name=$1
  local started=$SECONDS
  shift
  [[ ! -f $RUN/done/$name ]] || return 0
  echo "== $name: $*"
  "$@"
  echo $((SECONDS - started)) >"$RUN/done/$name"
  echo "== $name: $(<"$RUN/done/$name") s"
}
