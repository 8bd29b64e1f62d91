# shellcheck shell=bash
# Sourced by the scripts first. For --help or -h it prints the comment that the script begins with, and the one of HELP_TOO
# (a file in scripts/), and ends the script. HELP_OF says where from scripts/ the script is, if it is elsewhere.
#   fail TEXT                     this machine lacks something: TEXT in one line, exit code 3
#   refuse TEXT                   a bad argument or knob: TEXT in one line, exit code 2
#   take_overrides ARGUMENTS...   refuses what is no hydra override
#   override KEY VALUE            adds an override to the array overrides

if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  for file in "${HELP_OF:-$(basename "$0")}" ${HELP_TOO:-}; do
    sed -n '/^#!/d; /^# shellcheck/d; /^#/!q; s/^# \{0,1\}//p' "$(dirname "${BASH_SOURCE[0]}")/../$file"
  done
  exit 0
fi

complain() {
  echo "$(basename "$0"): error: ${*:2}" >&2
  exit "$1"
}
fail() { complain 3 "$@"; }
refuse() { complain 2 "$@"; }

take_overrides() {
  local argument
  for argument in "$@"; do
    [[ $argument =~ ^(\+{0,2}[A-Za-z_][A-Za-z0-9_./@:-]*=.*|~[A-Za-z_].*)$ ]] \
      || refuse "no argument '$argument': arguments are settings, NAME=VALUE; see --help"
  done
}

# Adds KEY=VALUE for hydra, which would read commas, brackets and equal signs in VALUE as its own grammar. In its quotes
# a quote needs a backslash, and backslashes need doubling before a quote only.
override() {
  overrides+=("$1='$(sed -E "s/(\\\\*)('|\$)/\1\1\2/g; s/'/\\\\'/g" <<<"$2")'")
}
