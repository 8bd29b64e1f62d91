# shellcheck shell=bash
# Sourced by the set-up scripts, which set PYTHON: STACK (now, paper or empty) from their one argument, an interpreter
# that will do, and a virtual environment made with it.
source scripts/lib/arguments.sh
(($# <= 1)) || refuse "no argument '$2'; see --help"
STACK=${1:-}
[[ $STACK == @(|now|paper) ]] || refuse "no argument '$STACK': the stacks are now and paper; see --help"
command -v "$PYTHON" >/dev/null || fail "no '$PYTHON' here; install Python 3.10 to 3.12, or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
  || fail "$("$PYTHON" --version) is not supported; set PYTHON to a Python 3.10 to 3.12"

# VENV FILE...: was it finished with these files as they are now? A stamp holds the hash of what it was made from.
is_finished() {
  [[ -f $1/.cobalt-setup && $(<"$1/.cobalt-setup") == "$(cat "${@:2}" | sha256sum)" ]]
}

make_venv() { # and `pip` for it
  venv=$1
  "$PYTHON" -m venv "$venv" || fail "'$PYTHON -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv"
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

mark_finished() { cat "${@:2}" | sha256sum >"$1/.cobalt-setup"; }
