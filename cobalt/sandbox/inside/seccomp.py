"""The system call filters: an allow list for a program's process, and a second one that turns a fork of it into a test.

Everything that is not listed fails with EPERM, so system calls of future kernels are denied from the start. Beyond
plain computing, files that exist and threads, a test may do nothing: no processes (``clone`` for threads only), no
exec, no sockets but a connected pair (asyncio needs one) as it comes, no signals to anybody, itself included, be it
through the owner of a descriptor or a limit of CPU time, no shared memory, no locks, leases or sizes of pipes that
another program could notice, no change of any file or its metadata, no limits or clocks of other processes. Its threads
share one table of descriptors, so that what these hold in the kernel is bounded. Nor does it map memory that outlives
the addresses it is counted by: pages of a shared map stay until the last of it goes, and huge ones are the machine's.

When a filter is installed, the kernel compiles it and runs it once for every system call number. That takes too long
to do in every test. So the long list is installed once per program, and each test adds a few instructions that take
back what only the program's process needs.

A filter is a list of steps ``(code, skip if true, skip if false, value)``. A skip says how many of the following steps
are passed over, so filters are built from the leaves up: the length of a part is known before the jump over it.
"""

import ctypes
import struct

from kernel import AARCH64, ALLOWED, CLOCKS, CLONE, COLUMNS, MACHINE, NOT_IN_TESTS, SPECIAL, X86_64, prctl_in_tests

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_EPERM, _ENOSYS, _ENOTTY = 1, 38, 25
_RET_ALLOW, _RET_ERRNO, _RET_KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_ANY_BIT, _AND, _RETURN = (0x20, 0x15, 0x35, 0x45, 0x54, 0x06)
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_AUDIT_ARCH = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
_THREAD = 0x00010400  # CLONE_THREAD | CLONE_FILES
_CLOCK_OF_PROCESS = 0x80000000  # and higher: numbers of clocks are below 0 if they hold a pid
_FIONBIO = 0x5421
_RLIMIT_CPU = 0
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000
_DESCRIPTOR_COMMANDS = 0, 1, 2, 3, 4, 1030  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK, _SOL_SOCKET, _MSG_OOB = 1, 1, 0xF, 1, 1
_SOCKET_OPTIONS = 3, 4, 7, 8, 38, 39  # SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_PROTOCOL, SO_DOMAIN: to be read


def _return(value):
    return [(_RETURN, 0, 0, value)]


def _errno(code):
    return _return(_RET_ERRNO | code)


def _load_argument(index, high=0):
    """The low half of an argument, or the ``high`` one: a filter computes with 32 bits, arguments have 64."""
    return [(_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index + 4 * high)]


def _require(value, code=_EPERM):
    """Refuse the call unless ``value`` was loaded: if it was, the refusal is passed over."""
    return [(_JUMP_EQ, 1, 0, value), *_errno(code)]


def _choose(values, if_found, otherwise):
    """Answer ``if_found`` if one of ``values`` was loaded: a match skips the other tests and the other answer."""
    last = len(values) - 1
    tests = [(_JUMP_EQ, last - index + len(otherwise), 0, value) for index, value in enumerate(values)]
    return [*tests, *otherwise, *if_found]


_ALLOW = _return(_RET_ALLOW)
_DENY = _errno(_EPERM)
_ANSWERS = {
    "clone3": _errno(_ENOSYS),  # glibc falls back to clone, whose flags a filter can see
    # only for non-blocking pipes; there are no terminals, and Python can do without the rest
    "ioctl": [*_load_argument(1), *_require(_FIONBIO, _ENOTTY), *_ALLOW],
    # maps of files may be shared: there are none to be written, but what the test prints
    "mmap": [
        *_load_argument(3), (_JUMP_ANY_BIT, 0, 1, _MAP_HUGETLB), *_DENY,
        (_AND, 0, 0, _MAP_SHARED | _MAP_ANONYMOUS), (_JUMP_EQ, 0, 1, _MAP_SHARED | _MAP_ANONYMOUS), *_DENY, *_ALLOW,
    ],
    "fcntl": [*_load_argument(1), *_choose(_DESCRIPTOR_COMMANDS, _ALLOW, _DENY)],
    "prlimit64": [  # of oneself, and no new limit of CPU time: at the hard one the kernel sends SIGKILL
        *_load_argument(0), *_require(0),
        *_load_argument(1), (_JUMP_EQ, 1, 0, _RLIMIT_CPU), *_ALLOW,
        *_load_argument(2), *_require(0),
        *_load_argument(2, high=1), *_require(0), *_ALLOW,
    ],
    "socketpair": [
        *_load_argument(0), *_require(_AF_UNIX),
        *_load_argument(1), (_AND, 0, 0, _SOCK_TYPE_MASK), *_require(_SOCK_STREAM), *_ALLOW,
    ],
    "getsockopt": [
        *_load_argument(1), *_require(_SOL_SOCKET),
        *_load_argument(2), *_choose(_SOCKET_OPTIONS, _ALLOW, _DENY),
    ],
    **{name: [*_load_argument(3), (_JUMP_ANY_BIT, 0, 1, _MSG_OOB), *_DENY, *_ALLOW] for name in ("sendto", "recvfrom")},
    # without CLOSE_RANGE_UNSHARE, which gives a thread a table of its own
    "close_range": [*_load_argument(2), *_require(0), *_ALLOW],
    # done: there is nothing to write, and caches are everybody's
    **dict.fromkeys(("fsync", "fdatasync", "fadvise64"), _errno(0)),
}  # fmt: skip


def _ranges(column):
    """``[(first number, leaf)]`` in order; each entry holds until the next one begins, the last one for ever."""
    plain = [*ALLOWED.values(), *NOT_IN_TESTS.values(), CLONE]
    answers = {numbers[column]: _ALLOW for numbers in plain if numbers[column] is not None}
    answers.update({numbers[column]: _ANSWERS[name] for name, numbers in SPECIAL.items()})
    ranges = [(0, answers.get(0, _DENY))]
    for number in range(1, max(answers) + 2):
        leaf = answers.get(number, _DENY)
        if leaf != ranges[-1][1]:
            ranges.append((number, leaf))
    return ranges


def _search(ranges):
    """A binary search for the range of the number loaded: seven comparisons, where a list would take a hundred."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    # every leaf returns, so ``below`` never runs on into ``above``; a skip is one byte, and ``below`` fits into it
    return [(_JUMP_GE, len(below), 0, ranges[middle][0]), *below, *above]


def program_filter(machine=MACHINE):
    """The steps of the filter of a program's process."""
    column = COLUMNS.index(machine)
    return [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQ, 1, 0, _AUDIT_ARCH[machine]),
        *_return(_RET_KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        *_search(_ranges(column)),
    ]


def test_filter(machine=MACHINE):
    """The steps that a test adds to its program's filter. Both run, and the stricter answer holds."""
    column = COLUMNS.index(machine)
    denied = [numbers[column] for numbers in NOT_IN_TESTS.values()]
    threads_only = [*_load_argument(0), (_AND, 0, 0, _THREAD), *_require(_THREAD), *_ALLOW]
    own_clocks = [*_load_argument(0), (_JUMP_GE, 0, 1, _CLOCK_OF_PROCESS), *_DENY, *_ALLOW]
    clocks = [numbers[column] for numbers in CLOCKS.values()]
    return [
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_EQ, 0, len(threads_only), CLONE[column]),
        *threads_only,
        *_choose(clocks, own_clocks, _choose(denied, _DENY, _ALLOW)),
    ]


class Filter:
    """A compiled filter; ``install`` puts it on this process for good. Needs no_new_privs."""

    def __init__(self, steps):
        self._code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        header = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(self._code))
        program = ctypes.create_string_buffer(header)
        self._arguments = ctypes.c_int(_PR_SET_SECCOMP), ctypes.c_ulong(_SECCOMP_MODE_FILTER), program

    def install(self):
        if prctl_in_tests(*self._arguments) != 0:
            raise OSError("the system call filter was refused")
