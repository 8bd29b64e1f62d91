# shellcheck shell=bash
# Sourced by the set-up scripts: STACK from their one argument, an interpreter that will do, and a virtual environment
# made with it.
source scripts/lib/arguments.sh
(($# <= 1)) || refuse "no argument '$2'; see --help"
STACK=${1:-}
ASKED_FOR=${PYTHON:-} # empty: python3, or whatever the environment was made with
: "${PYTHON:=python3}"
command -v "$PYTHON" >/dev/null || fail "no '$PYTHON' here; install Python 3.11 or 3.12, or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
  || fail "$("$PYTHON" --version) is not supported; set PYTHON to a Python 3.11 or 3.12"

# VENV FILE...: was it finished with these files as they are now? A stamp holds the hash of what it was made from.
is_finished() {
  [[ -f $1/.cobalt-setup ]] || return
  [[ -z $ASKED_FOR ]] || has_this_python "$1" \
    || refuse "$1 has $("$1/bin/python" --version), not that of PYTHON=$PYTHON; remove $1, or unset PYTHON"
  [[ $(<"$1/.cobalt-setup") == "$(cat "${@:2}" | sha256sum)" ]]
}

has_this_python() { [[ $("$1/bin/python" --version 2>&1) == "$("$PYTHON" --version)" ]]; }

# VENV: made, or gone on with if it was finished once with this Python. What a set-up that failed left is cleared.
make_venv() {
  venv=$1
  [[ ! -e $venv || -f $venv/pyvenv.cfg ]] || refuse "$venv is not a Python environment; move it away"
  local clear=--clear
  [[ ! -f $venv/.cobalt-setup ]] || ! has_this_python "$venv" || clear=
  rm -f "$venv"/.cobalt-*
  "$PYTHON" -m venv $clear "$venv" || fail "'$PYTHON -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv"
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# VARIABLE SETTING [SEPARATOR]: exported, unless it is set, as pip's configuration has it: its own variable before its files.
hand_on() {
  local section value
  [[ -z ${!1:-} ]] || return 0
  for section in :env: install global; do
    value=$(sed -nE "s/^$section\.$2='(\\\\n)?(.*)'$/\2/p" <<< "$given" | sed -E "s/(\\\\n| )+/${3:- }/g")
    [[ -z $value ]] || { export "$1=$value"; return; }
  done
}

# uv, in the environment: it installs in a tenth of pip's time. One's own indexes and how they are reached hold for it,
# too, and of pip's several indexes it takes the best package of all, as pip does.
get_uv() {
  local given
  [[ -z ${has_uv:-} ]] || return 0
  shown pip install --progress-bar off "$(grep ^uv== constraints/cpu.txt)"
  given=$(pip config list)
  hand_on UV_DEFAULT_INDEX index-url
  if [[ -z ${UV_INDEX:-} ]]; then
    hand_on UV_INDEX extra-index-url
    [[ -z ${UV_INDEX:-} ]] || export UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
  fi
  hand_on UV_FIND_LINKS find-links ,
  hand_on UV_INSECURE_HOST trusted-host
  hand_on ALL_PROXY proxy
  hand_on SSL_CERT_FILE cert
  has_uv=1
}

uv() { VIRTUAL_ENV=$venv "$venv/bin/python" -m uv pip "$@"; }

install() {
  get_uv
  shown uv install "$@"
}

# What a command says is shown if it fails. With --quiet it would not name the packages that do not go together.
shown() {
  "$@" 2>&1 | tee "$venv/install.log" | show_last_line \
    || { tail -n 25 "$venv/install.log" >&2; complain 1 "a package cannot be installed: see above, and $venv/install.log"; }
}

# All modules, with all cores. Some packages hold files that are no Python of this version.
compile_all() { "$venv/bin/python" -W ignore -m compileall -q -j 0 "$venv/lib" >/dev/null || true; }

# Of its input, to show that there is progress: on a terminal in one line, else a line every ten seconds.
show_last_line() {
  local line shown=$SECONDS
  while IFS= read -r line; do
    if [[ -t 1 ]]; then
      printf '\r\033[K  %.76s' "$line"
    elif ((SECONDS - shown >= 10)); then
      shown=$SECONDS
      printf '  %.76s\n' "$line"
    fi
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
}

mark_finished() { cat "${@:2}" | sha256sum >"$1/.cobalt-setup"; }
