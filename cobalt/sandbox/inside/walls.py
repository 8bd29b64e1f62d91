"""The walls of a sandbox beside the system call filter: Landlock, and in mode ``namespaces`` new namespaces.

Landlock reduces the file system to files that may be read and denies TCP, signals and abstract sockets beyond itself.
What it does not cover, and the filter does: chmod, chown, utime, path-based unix sockets, UDP. What neither covers:
``stat`` of any path. Rights by ABI version as in the kernel's documentation (userspace-api/landlock.rst).

The outer wall of mode ``namespaces`` is new namespaces with a read-only root of libraries and three devices, made by
the same system calls as bubblewrap's, without the binary. It needs Linux 5.12 (mount_setattr).
"""

import ctypes
import os
import stat
import struct

import packets
from kernel import call, check, libc

_LANDLOCK_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_ABI, _ALL_NETWORK = 4, 3
SCOPE_ABI = 6
_ALL_SCOPES = 3

NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
OUTER = _NEWUSER | NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | _NEWCGROUP
PER_PROGRAM = _NEWPID | _NEWIPC

_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_FROM_EMPTY_PATH = 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 0x40000
_MNT_DETACH = 2
_STAGE = b"/tmp"  # any directory: the new root is mounted there for the moment before it becomes /


def landlock_abi():
    """Version of the kernel's Landlock; 0 if it has none."""
    try:
        return call("landlock_create_ruleset", None, 0, _LANDLOCK_VERSION_FLAG)
    except OSError:
        return 0


def landlock_ruleset(readable, writable):
    """A ruleset's descriptor: ``readable`` files and trees, ``writable`` devices."""
    version = landlock_abi()
    rights = max(value for needed, value in _FILE_RIGHTS_BY_ABI.items() if needed <= version)
    network = _ALL_NETWORK if version >= _NETWORK_ABI else 0
    scopes = _ALL_SCOPES if version >= SCOPE_ABI else 0
    ruleset = call("landlock_create_ruleset", struct.pack("=QQQ", rights, network, scopes), 24, 0)
    allowed = [(path, _READ_FILE | (_READ_DIR if stat.S_ISDIR(os.stat(path).st_mode) else 0)) for path in readable]
    allowed += [(path, _READ_FILE | _WRITE_FILE) for path in writable]
    for path, path_rights in allowed:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", path_rights, fd), 0)
        finally:
            os.close(fd)
    return ruleset


def _mount(source, target, kind, flags, data=None):
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data), f"mount {os.fsdecode(target)}")


def _set_attributes(tree, attributes, how):
    call("mount_setattr", tree, b"", how, struct.pack("=QQQQ", attributes, 0, 0, 0), 32)


def _clone(path, attributes):
    """A detached, read-only copy of the mount tree at ``path``."""
    tree = call("open_tree", _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    _set_attributes(tree, _ATTR_RDONLY | _ATTR_NOSUID | attributes, _AT_EMPTY_PATH | _AT_RECURSIVE)
    return tree


def build_root(readable, devices, links):
    """Replace / by a tmpfs with ``readable`` trees and files, ``devices``, and symbolic ``links`` {path: target}.

    The worker has written the user map before.
    """
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)
    trees = [(path, os.path.isdir(path), _clone(path, _ATTR_NODEV)) for path in readable]
    trees += [(path, False, _clone(path, 0)) for path in devices]
    _mount(b"cobalt", _STAGE, b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755,size=1m")
    os.chdir(_STAGE)
    for path, is_directory, tree in trees:
        target = path.lstrip("/")
        os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
        if not is_directory:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        call("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_FROM_EMPTY_PATH)
        os.close(tree)
    for path, target in links.items():
        os.makedirs(os.path.dirname(path).lstrip("/") or ".", exist_ok=True)
        os.symlink(target, path.lstrip("/"))
    for path in ("/tmp", "/proc", packets.FILES):
        os.makedirs(path.lstrip("/"), exist_ok=True)
    call("pivot_root", b".", b".")
    check(libc.umount2(b".", _MNT_DETACH), "umount .")
    os.chdir("/")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    _set_attributes(root, _ATTR_RDONLY, _AT_EMPTY_PATH)
    os.close(root)


def lay_out(folder, files, is_mount):
    """Write ``files`` {name: bytes} into ``folder`` and go there. ``is_mount``: a new file system, read-only then."""
    os.umask(0o022)
    if is_mount:
        _mount(b"cobalt", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755")
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb") as file:
            file.write(data)
    os.chdir(folder)
    if is_mount:
        root = os.open(".", os.O_PATH | os.O_CLOEXEC)
        _set_attributes(root, _ATTR_RDONLY, _AT_EMPTY_PATH)
        os.close(root)
