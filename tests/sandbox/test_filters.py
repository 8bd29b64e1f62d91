"""The system call filters: numbers as in the kernel's headers, and what they answer, by running their instructions."""

import re
import sys
from pathlib import Path

import pytest

import cobalt.sandbox

INSIDE = Path(cobalt.sandbox.__file__).with_name("inside")
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, SUCCESS, EPERM, ENOSYS, ENOTTY, KILL = 0x7FFF0000, 0x50000, 0x50001, 0x50026, 0x50019, 0x80000000


@pytest.fixture(scope="module")
def seccomp():
    """The module, loaded as the zygote loads it."""
    sys.path.insert(0, str(INSIDE))
    try:
        import seccomp

        yield seccomp
    finally:
        sys.path.remove(str(INSIDE))
        for name in ("seccomp", "kernel"):
            sys.modules.pop(name, None)


def answer(steps, arch, number, arguments=()):
    """Interpret a BPF program on one system call."""
    words = {0: number, 4: arch}
    for index, value in enumerate(arguments):
        words[16 + 8 * index], words[20 + 8 * index] = value & 0xFFFFFFFF, value >> 32
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = steps[position]
        position += 1
        if code == 0x20:
            accumulator = words.get(value, 0)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            position += if_true if holds else if_false


def numbers_of(header: Path) -> dict[str, int]:
    """``{name: number}`` of a unistd header."""
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    return {name: int(number) for name, number in found}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine, seccomp):
    if not HEADERS[machine].exists():
        pytest.skip(f"no kernel headers at {HEADERS[machine]}")
    known, column = numbers_of(HEADERS[machine]), list(HEADERS).index(machine)
    kernel = sys.modules["kernel"]
    table = {**kernel.ALLOWED, **kernel.SPECIAL, **kernel.NOT_IN_TESTS, **kernel.BUILDING, **kernel.PROBED}
    wrong = {}
    for name, numbers in table.items():
        expected = known.get(name, known.get(name.removeprefix("new")))
        if numbers[column] != expected:
            wrong[name] = (numbers[column], expected)
    assert wrong == {}


@pytest.mark.parametrize("machine", HEADERS)
def test_program_filter_allows_exactly_its_list(machine, seccomp):
    column, arch = list(HEADERS).index(machine), ARCHITECTURES[machine]
    steps = seccomp.program_filter(machine)
    plain = [*seccomp.ALLOWED.values(), *seccomp.NOT_IN_TESTS.values(), seccomp.CLONE]
    allowed = {numbers[column] for numbers in plain} - {None}
    special = {numbers[column] for numbers in seccomp.SPECIAL.values()}
    for number in [*range(700), 0x40000000, 0x40000039, 0xFFFFFFFF]:
        if number not in special:
            assert (answer(steps, arch, number) == ALLOW) == (number in allowed), number
            assert answer(steps, arch, number) in (ALLOW, EPERM)


@pytest.mark.parametrize("machine", HEADERS)
def test_special_calls(machine, seccomp):
    column, arch = list(HEADERS).index(machine), ARCHITECTURES[machine]
    steps = seccomp.program_filter(machine)

    def special(name, *arguments):
        return answer(steps, arch, seccomp.SPECIAL[name][column], arguments)

    assert special("clone3") == ENOSYS
    shared, private, anonymous, huge = 1, 2, 0x20, 0x40000
    allowed = [special("mmap", 0, 1 << 20, 3, flags) for flags in (shared, private, private | anonymous)]
    refused = (shared | anonymous, shared | private | anonymous, private | anonymous | huge, shared | huge)
    assert (set(allowed), {special("mmap", 0, 1 << 20, 3, flags) for flags in refused}) == ({ALLOW}, {EPERM})
    assert (special("ioctl", 0, 0x5421), special("ioctl", 0, 0x5412)) == (ALLOW, ENOTTY)
    assert (special("prlimit64", 0, 3, 1), special("prlimit64", 7, 3, 1)) == (ALLOW, EPERM)
    assert [special("prlimit64", 0, 0, new) for new in (0, 1, 1 << 32)] == [ALLOW, EPERM, EPERM]
    allowed = {command for command in range(2000) if special("fcntl", 0, command) == ALLOW}
    assert allowed == {0, 1, 2, 3, 4, 1030}  # F_DUPFD, F_[GS]ETFD, F_[GS]ETFL, F_DUPFD_CLOEXEC
    assert special("fcntl", 0, 6) == EPERM
    assert special("socketpair", 1, 1 | 0o2000000) == ALLOW
    assert (special("socketpair", 1, 2), special("socketpair", 2, 1)) == (EPERM, EPERM)
    for name in ("sendto", "recvfrom"):
        assert (special(name, 3, 0, 9, 0x4040), special(name, 3, 0, 9, 0x4041)) == (ALLOW, EPERM)  # MSG_OOB
    readable = {option for option in range(100) if special("getsockopt", 3, 1, option) == ALLOW}
    assert readable == {3, 4, 7, 8, 38, 39}  # SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_PROTOCOL, SO_DOMAIN
    assert special("getsockopt", 3, 0, 4) == EPERM
    assert (special("close_range", 3, 9, 0), special("close_range", 3, 9, 2)) == (ALLOW, EPERM)
    assert {special(name) for name in ("fsync", "fdatasync", "fadvise64")} == {SUCCESS}


@pytest.mark.parametrize("machine", HEADERS)
def test_test_filter_takes_back_processes_signals_and_clocks(machine, seccomp):
    column, arch = list(HEADERS).index(machine), ARCHITECTURES[machine]
    steps = seccomp.test_filter(machine)
    assert answer(steps, arch, seccomp.CLONE[column], (17,)) == EPERM
    assert answer(steps, arch, seccomp.CLONE[column], (0x3D0F00,)) == ALLOW
    assert answer(steps, arch, seccomp.CLONE[column], (0x3D0F00 & ~0x400,)) == EPERM  # without CLONE_FILES
    for numbers in seccomp.CLOCKS.values():
        assert [answer(steps, arch, numbers[column], (clock,)) for clock in (3, ~7 << 3 | 2)] == [ALLOW, EPERM]
    assert {answer(steps, arch, numbers[column]) for numbers in seccomp.NOT_IN_TESTS.values()} == {EPERM}
    assert answer(steps, arch, seccomp.ALLOWED["read"][column]) == ALLOW


@pytest.mark.parametrize("machine", HEADERS)
def test_other_architectures_calls_kill(machine, seccomp):
    assert answer(seccomp.program_filter(machine), 0x40000003, 1) == KILL
