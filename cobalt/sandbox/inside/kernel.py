"""System calls that the standard library has no name for, through ctypes; numbers for x86-64 and aarch64."""

import ctypes
import os

X86_64, AARCH64 = "x86_64", "aarch64"
MACHINE = os.uname().machine

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_SIGKILL, _SIGCHLD = 9, 17
_CAPABILITY_VERSION_3 = 0x20080522

_NUMBERS = {
    X86_64: {"pivot_root": 155, "capset": 126, "clone": 56},
    AARCH64: {"pivot_root": 41, "capset": 91, "clone": 220},
}
_COMMON_NUMBERS = {
    "open_tree": 428,
    "move_mount": 429,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

libc = ctypes.CDLL(None, use_errno=True)
_syscall = ctypes.PyDLL(None, use_errno=True)["syscall"]  # holds Python's lock, as a fork must
prctl_in_tests = ctypes.PyDLL(None)["prctl"]
"""For what every test calls: it converts no arguments and keeps no ``errno``, and so touches fewer pages."""

_SET_DEATH_SIGNAL = ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(_SIGKILL)


def check(result, what):
    """``result``, or ``OSError`` naming ``what`` if it is -1."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def call(name, *arguments):
    """The system call ``name``. Integers are passed as C longs, bytes and buffers as pointers."""
    number = _COMMON_NUMBERS.get(name) or _NUMBERS[MACHINE][name]
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(libc.syscall(ctypes.c_long(number), *converted), name)


def prctl(option, *arguments):
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return check(libc.prctl(option, *values), f"prctl {option}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def fork_into(namespaces):
    """``os.fork``, but the child is the first process of these new ``namespaces`` (flags of clone(2)).

    For a process with one thread: what the C library prepares for others is left out.
    """
    number = ctypes.c_long(_NUMBERS[MACHINE]["clone"])
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _syscall(number, ctypes.c_ulong(namespaces | _SIGCHLD), None, None, None, None)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return check(pid, "clone")


def mount(source, target, kind, flags, data=None):
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data), f"mount {os.fsdecode(target)}")


def unmount(target, flags):
    check(libc.umount2(target, flags), f"umount {os.fsdecode(target)}")


def die_with_parent(parent):
    """Have the kernel kill this process when its ``parent`` (its pid as seen from here) goes; ends it if it has gone.

    Call it last: a change of user undoes it.
    """
    if prctl_in_tests(*_SET_DEATH_SIGNAL) != 0 or os.getppid() != parent:
        os._exit(1)


def exit_on(signal):
    """Have a signal end this process at once, with its number as the exit code.

    Its default action would not do: the kernel spares the first process of a pid namespace. The handler is the C
    library's ``_exit`` itself, which the kernel calls with the number.
    """
    libc.signal(signal, libc._exit)


def no_new_privileges():
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def undumpable():
    """No other process may trace this one or read its /proc entries."""
    prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities():
    """Clear the effective, permitted and inheritable sets."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
