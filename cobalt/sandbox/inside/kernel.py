"""System calls: their numbers, and through ctypes those that the standard library has no name for."""

import ctypes
import os

X86_64, AARCH64 = "x86_64", "aarch64"
MACHINE = os.uname().machine
COLUMNS = (X86_64, AARCH64)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_THP_DISABLE = 41
_SIGKILL, _SIGCHLD = 9, 17
_CAPABILITY_VERSION_3 = 0x20080522

# Numbers of system calls, by what the sandbox makes of them: (x86-64, aarch64), None where there is no such call.
# What tests may do.
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "lseek": (8, 62), "close": (3, 57), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "open": (2, None), "openat": (257, 56), "stat": (4, None), "lstat": (6, None), "fstat": (5, 80),
    "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "getdents64": (217, 61), "umask": (95, 166),
    "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233),
    "brk": (12, 214), "membarrier": (324, 283),
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
    "set_tid_address": (218, 96), "gettid": (186, 178), "getpid": (39, 172), "getppid": (110, 173),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158), "getpgid": (121, 155),
    "getpgrp": (111, None), "getsid": (124, 156),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, None),
    "restart_syscall": (219, 128), "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "getrusage": (98, 165),
    "uname": (63, 160), "getrandom": (318, 278), "getcpu": (309, 168),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "getrlimit": (97, 163),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
    "eventfd": (284, None), "eventfd2": (290, 19), "pipe": (22, None), "pipe2": (293, 59),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "wait4": (61, 260), "waitid": (247, 95), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
# Calls whose answer depends on an argument, or that get another one than EPERM.
SPECIAL = {
    "clone3": (435, 435), "mmap": (9, 222), "fcntl": (72, 25), "ioctl": (16, 29), "prlimit64": (302, 261),
    "socketpair": (53, 199), "sendto": (44, 206), "recvfrom": (45, 207), "getsockopt": (55, 209),
    "close_range": (436, 436), "fsync": (74, 82), "fdatasync": (75, 83), "fadvise64": (221, 223),
}  # fmt: skip
# What a program's process needs to run tests, and tests may not do.
NOT_IN_TESTS = {"kill": (62, 129), "recvmsg": (47, 212), "prctl": (157, 167)}
CLONE = (56, 220)
# With those of other processes' clocks, which a program's process reads, and tests may not.
CLOCKS = {name: ALLOWED[name] for name in ("clock_gettime", "clock_getres", "clock_nanosleep")}
# What the walls are built with.
BUILDING = {
    "clone": CLONE, "pivot_root": (155, 41), "capset": (126, 91), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
# What escape probes try.
PROBED = {
    "mount": (165, 40), "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "keyctl": (250, 219), "clone": CLONE, "clone3": SPECIAL["clone3"],
    "execveat": (322, 281), "memfd_create": (319, 279), "shmget": (29, 194), "mknodat": (259, 33),
    "prlimit64": SPECIAL["prlimit64"], "capget": (125, 90), "pidfd_open": (434, 434),
    "open_tree": BUILDING["open_tree"], "init_module": (175, 105), "personality": (135, 92), "fchmodat": (268, 53),
    "utimensat": (280, 88), "name_to_handle_at": (303, 264), "tgkill": (234, 131),
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
_syscall = ctypes.PyDLL(None, use_errno=True)["syscall"]  # holds Python's lock, as a fork must
# For what every test calls: it converts no arguments and keeps no ``errno``, and so touches fewer pages.
prctl_in_tests = ctypes.PyDLL(None)["prctl"]
_SET_DEATH_SIGNAL = ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(_SIGKILL)


def check(result, what):
    """``result``, or ``OSError`` naming ``what`` if it is -1."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def number(name):
    """The number of the system call ``name`` on this machine."""
    return next(table[name] for table in (BUILDING, PROBED) if name in table)[COLUMNS.index(MACHINE)]


def call(name, *arguments):
    """The system call ``name``. Integers are passed as C longs, bytes and buffers as pointers."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(libc.syscall(ctypes.c_long(number(name)), *converted), name)


def fork_into(namespaces):
    """``os.fork``, but the child is the first process of these new ``namespaces`` (flags of clone(2)).

    For a process with one thread: what the C library prepares for others is left out.
    """
    number_of_clone = ctypes.c_long(number("clone"))
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _syscall(number_of_clone, ctypes.c_ulong(namespaces | _SIGCHLD), None, None, None, None)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return check(pid, "clone")


def die_with_parent(parent):
    """Have the kernel kill this process when its ``parent`` (its pid as seen from here) goes; ends it if it has gone.

    Call it last: a change of user undoes it.
    """
    if prctl_in_tests(*_SET_DEATH_SIGNAL) != 0 or os.getppid() != parent:
        os._exit(1)


def drop_privileges():
    """No capabilities, none to be gained, and no other process may trace this one or read its /proc entries.

    No huge pages either: who unmaps all but 4 KiB of one keeps its 2 MiB, and no limit counts them.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_THP_DISABLE, 1)):
        check(libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))), f"prctl {option}")
