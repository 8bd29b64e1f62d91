"""Landlock: the file system reduced to files that may be read, no TCP, no signals or abstract sockets beyond itself.

Rights by ABI version as in the kernel's documentation (userspace-api/landlock.rst). What it does not cover, and the
system call filter does: chmod, chown, utime, path-based unix sockets, UDP. What neither covers: ``stat`` of any path.
"""

import os
import stat
import struct

from kernel import call

_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_ABI, _ALL_NETWORK = 4, 3
SCOPE_ABI = 6
_ALL_SCOPES = 3


def abi():
    """Version of the kernel's Landlock; 0 if it has none."""
    try:
        return call("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def _add(ruleset, path, rights):
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def ruleset(readable, writable):
    """A ruleset's descriptor: ``readable`` files and trees, ``writable`` devices."""
    version = abi()
    rights = max(value for needed, value in _FILE_RIGHTS_BY_ABI.items() if needed <= version)
    network = _ALL_NETWORK if version >= _NETWORK_ABI else 0
    scopes = _ALL_SCOPES if version >= SCOPE_ABI else 0
    fd = call("landlock_create_ruleset", struct.pack("=QQQ", rights, network, scopes), 24, 0)
    for path in readable:
        _add(fd, path, _READ_FILE | _READ_DIR if stat.S_ISDIR(os.stat(path).st_mode) else _READ_FILE)
    for path in writable:
        _add(fd, path, _READ_FILE | _WRITE_FILE)
    return fd


def restrict(fd):
    """Confine this process to the ruleset for good. Needs no_new_privs."""
    call("landlock_restrict_self", fd, 0)
