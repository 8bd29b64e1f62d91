# shellcheck shell=bash
# Sourced by the scripts before anything else: --help, and arguments that they do not know.
#
#   asks_for_help ARGUMENTS...    --help or -h is among them
#   show_help [FILE]              the comment that the script begins with, and that of a file in scripts/
#   refuse TEXT                   a bad argument or knob: TEXT in one line, exit code 2
#   take_overrides ARGUMENTS...   refuses what is no hydra override

SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

asks_for_help() { [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; }

show_help() {
  local file
  for file in "$(basename "$0")" "$@"; do
    sed -n '/^#!/d; /^# shellcheck/d; /^#/!q; s/^# \{0,1\}//p' "$SCRIPTS/$file"
  done
}

refuse() {
  echo "$(basename "$0"): error: $*" >&2
  exit 2
}

take_overrides() {
  local argument
  for argument in "$@"; do
    [[ $argument =~ ^(\+{0,2}[A-Za-z_][A-Za-z0-9_./@:-]*=.*|~[A-Za-z_].*)$ ]] \
      || refuse "no argument '$argument': arguments are hydra overrides, NAME=VALUE; see --help"
  done
}
