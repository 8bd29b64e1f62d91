"""The outer wall of mode ``namespaces``: new namespaces, and a read-only root of libraries and four devices.

The same system calls as bubblewrap makes, without the binary. The driving worker writes the user map between
``unshare`` and ``build_root``. Needs Linux 5.12 (mount_setattr).
"""

import os
import struct

from kernel import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    call,
    mount,
    unmount,
    unshare,
)

OUTER = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
PER_PROGRAM = CLONE_NEWPID | CLONE_NEWIPC

_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_FROM_EMPTY_PATH = 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 0x40000
_MNT_DETACH = 2
_STAGE = b"/tmp"  # any directory: the new root is mounted there for the moment before it becomes /


def enter():
    """New namespaces; children of this process form the new pid namespace."""
    unshare(OUTER)


def _clone(path, device):
    """A detached, read-only copy of the mount tree at ``path``."""
    tree = call("open_tree", _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    attributes = _ATTR_RDONLY | _ATTR_NOSUID | (0 if device else _ATTR_NODEV)
    _set_attributes(tree, attributes)
    return tree


def _set_attributes(tree, attributes):
    call("mount_setattr", tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, struct.pack("=QQQQ", attributes, 0, 0, 0), 32)


def _place(tree, path, is_directory):
    target = path.lstrip("/")
    os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    call("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_FROM_EMPTY_PATH)
    os.close(tree)


def build_root(readable, devices, links):
    """Replace / by a tmpfs with ``readable`` trees and files, ``devices``, and symbolic ``links`` {path: target}."""
    mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)
    trees = [(path, os.path.isdir(path), _clone(path, device=False)) for path in readable]
    trees += [(path, False, _clone(path, device=True)) for path in devices]
    mount(b"cobalt", _STAGE, b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755,size=1m")
    os.chdir(_STAGE)
    for path, is_directory, tree in trees:
        _place(tree, path, is_directory)
    for path, target in links.items():
        os.makedirs(os.path.dirname(path).lstrip("/") or ".", exist_ok=True)
        os.symlink(target, path.lstrip("/"))
    for path in ("tmp", "proc"):
        os.makedirs(path, exist_ok=True)
    call("pivot_root", b".", b".")
    unmount(b".", _MNT_DETACH)
    os.chdir("/")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    call("mount_setattr", root, b"", _AT_EMPTY_PATH, struct.pack("=QQQQ", _ATTR_RDONLY, 0, 0, 0), 32)
    os.close(root)
