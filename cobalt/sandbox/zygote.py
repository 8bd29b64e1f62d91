"""The outside handle on one sandbox: start its zygote (``inside/zygote.py``), open a program in it, run tests.

Everything here blocks; one process drives one zygote. A lost zygote or a protocol that stalls raises ``InfraError``.
"""

import marshal
import math
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl
from pathlib import Path

from cobalt.sandbox.confinement import ENVIRONMENT, Mode, interpreter, zygote_config
from cobalt.sandbox.errors import InfraError, SetupError
from cobalt.sandbox.inside import packets
from cobalt.sandbox.inside.kernel import die_with_parent
from cobalt.sandbox.limits import TOO_MANY_TASKS, Limits
from cobalt.sandbox.turns import SHORTEST_GRANT_S, WITHOUT_END, Turn, TurnOver

INSIDE = Path(__file__).parent / "inside"
START_TIMEOUT_S = 60.0
COMPILE_CPU_S = 10.0
GRACE_S = 30.0  # longer than its wall limit a test may take to answer before its sandbox counts as lost
SAMPLING_S = 0.1  # between two looks at how long a running test has waited for a core
# by import, so that compiled code can be cached: compiling it leaves holes in memory that every fork would carry
_START = "import sys; sys.path[0] = sys.argv.pop(); import zygote; zygote.main()"
_PACKET_BYTES = 1 << 16
_SIGKILL, _SIGPROF = 9, 27
_NS_PER_S = 1e9
_WEIGHT_OF_A_STEP, _MOST_NICENESS = 1.25, 19


@dataclass(frozen=True)
class Ending:
    """How one test ended. ``signal``: what killed it, else 0; ``exit_code``: else its status."""

    killed: int
    signal: int
    exit_code: int
    cpu_s: float
    wall_s: float
    """What counts of it (``Zygote._charged_s``)."""
    output: bytes
    stderr: str
    """The end of it."""
    output_full: bool
    peak_mb: float
    """The most memory that it held at once, shared libraries included; address space that it never touched is none."""


class CompileFailure(Exception):
    """The program does not compile; the text is for its author."""


class FilesFailure(Exception):
    """A program's files could not be written: no fault of the sandbox, which is left, nor known to be the program's."""


class Zygote:
    """One sandbox, and the program that is open in it: one at a time. Raises ``SetupError`` if it cannot be made."""

    def __init__(self, mode: Mode, limits: Limits):
        self.limits = limits
        self._control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_TIMEOUT_S)
        self._ends_pending = 0
        with inner:
            arguments = [str(inner.fileno()), str(os.getpid()), str(INSIDE)]
            try:
                self._process = subprocess.Popen(
                    [interpreter(), "-S", "-s", "-W", "ignore", "-c", _START, *arguments],
                    pass_fds=[inner.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env=ENVIRONMENT,
                )
            except BlockingIOError:
                self._control.close()
                raise SetupError(TOO_MANY_TASKS) from None
        try:
            config = zygote_config(mode, limits)
            self._run_as = config["run_as"]  # the user id of programs, or None
            self._control.send(marshal.dumps(config))
            answer = self._control.recv(_PACKET_BYTES)
            if answer == packets.UNSHARED:
                # root maps itself, to build the root, and the programs' user; any other user maps only itself
                run_as, user, group = self._run_as, os.getuid(), os.getgid()
                both = f"0 0 1\n{run_as} {run_as} 1\n"
                maps = {"uid_map": both, "gid_map": both}
                if run_as is None:
                    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1\n", "gid_map": f"{group} {group} 1\n"}
                for name, text in maps.items():
                    Path(f"/proc/{self._process.pid}/{name}").write_text(text)
                self._control.send(b"1")
                answer = self._control.recv(_PACKET_BYTES)
            if answer == packets.NO_TASKS:
                raise SetupError(TOO_MANY_TASKS)
            if answer != packets.READY:
                reason = answer.decode(errors="replace").removeprefix("failed: ")
                raise SetupError(reason or "its process died at start")
        except OSError as error:
            self.close()
            reason = TOO_MANY_TASKS if isinstance(error, BlockingIOError) else f"the sandbox did not start: {error}"
            raise SetupError(reason) from None
        except BaseException:
            self.close()
            raise

    @contextmanager
    def program(
        self,
        source: str,
        fn_name: str | None,
        turn: Turn = WITHOUT_END,
        folder: str = "",
        files: Mapping[str, bytes] | None = None,
    ) -> Iterator[None]:
        """Compile ``source``; raises ``CompileFailure``, ``FilesFailure`` or ``TurnOver``. ``run_test`` runs inside.

        ``folder``: the working folder of a program with ``files``, empty before; in mode ``namespaces`` it is the
        program's own.
        """
        self._finish_previous()
        compile_cpu_s, started = min(COMPILE_CPU_S, turn.remaining_s()[0]), time.monotonic()
        channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        task = (source, fn_name, compile_cpu_s, self.limits.memory_limit_mb << 20, folder, dict(files or {}))
        payload, kind = _memory_file("program", marshal.dumps(task)), packets.WITH_FILES if files else packets.PLAIN
        with channel:
            with inner:
                try:
                    socket.send_fds(self._control, [kind], [inner.fileno(), payload])
                except OSError as error:
                    raise InfraError(f"sandbox lost: {error}") from None
                finally:
                    os.close(payload)
            self._ends_pending += 1
            channel.settimeout(SAMPLING_S)
            self._channel, self._turn = channel, turn
            self._begin_to_look()
            answer = self._receive(started + START_TIMEOUT_S)
            if answer.startswith(packets.NO_FILES):
                raise FilesFailure(answer.decode())
            if answer != packets.STARTED:
                raise InfraError(
                    TOO_MANY_TASKS if answer == packets.NO_TASKS else "the program's process could not be set up"
                )
            answer = self._receive(time.monotonic() + START_TIMEOUT_S)
            if answer and answer != packets.READY:
                raise CompileFailure(answer.decode(errors="replace"))
            if not answer:
                code = os.waitstatus_to_exitcode(self._finish_previous())
                if code == -_SIGKILL:  # which no source brings about
                    raise InfraError("the program's process was killed before it could start")
                if code == _SIGPROF and compile_cpu_s < COMPILE_CPU_S:
                    raise TurnOver
                raise CompileFailure("the program is too deep or too large to compile")
            turn.take(self._charged_s(time.monotonic() - started))
            yield

    def _finish_previous(self) -> int:
        """Wait until the last program's processes are gone; the wait status of its first one."""
        status = 0
        while self._ends_pending:
            try:
                packet = self._control.recv(_PACKET_BYTES)
            except TimeoutError:
                raise InfraError("the sandbox did not answer in time") from None
            except OSError as error:
                raise InfraError(f"the sandbox died: {error}") from None
            if not packet:
                raise InfraError("the sandbox died")
            (status,) = packets.ENDED.unpack(packet)
            self._ends_pending -= 1
        return status

    def _receive(self, lost_at: float) -> bytes:
        """The next packet. The sandbox is lost if none comes until ``lost_at``, or as much later as it has waited."""
        while time.monotonic() < lost_at + self._waited_s + self._unknown_s():
            try:
                return self._channel.recv(_PACKET_BYTES)
            except TimeoutError:
                self._look()
            except OSError as error:
                raise InfraError(f"the sandbox died: {error}") from None
        raise InfraError("the sandbox did not answer in time")

    def _begin_to_look(self) -> None:
        self._waited_s, self._used_ns, self._known_at = 0.0, -1, time.monotonic()
        self._is_crowd = self._is_cut_short = False
        self._niceness = 0

    def _look(self) -> None:
        """See how long the test, or the compiler, has waited for a core, and whether it is a crowd of threads."""
        threads = threads_of(self._process.pid)
        self._waited_s = max(self._waited_s, threads.waited_s)
        if threads.ready == 0 or threads.used_ns != self._used_ns:
            self._used_ns, self._known_at = threads.used_ns, time.monotonic()
        if threads.ready > 1:
            self._is_crowd = True
            self._niceness = weigh_as_one(threads, self._niceness, self._run_as)

    def _unknown_s(self) -> float:
        """Seconds that it may be waiting by now. The kernel counts a wait only when it is over."""
        return time.monotonic() - self._known_at

    def _charged_s(self, wall_s: float) -> float:
        """What counts of so many seconds: not the waiting for a core, nor ``SAMPLING_S``, to which that is known."""
        return max(wall_s - self._waited_s - max(self._unknown_s(), SAMPLING_S), 0.0)

    def run_test(self, input_bytes: bytes, cpu_limit_s: float, wall_limit_s: float) -> Ending:
        """Run one test of the open program. Raises ``InfraError`` if the sandbox is lost, or ``TurnOver``."""
        turn_s, idle_s = self._turn.remaining_s()
        descriptors = [_memory_file("input", input_bytes, read_only=True), _memory_file("out"), _memory_file("err")]
        try:
            packet = self._result_of_test(cpu_limit_s, wall_limit_s, turn_s, idle_s, descriptors)
            killed, status, cpu_s, held_s, peak_kb = packets.RESULT.unpack(packet)
            wall_s = max(self._charged_s(held_s), cpu_s)
            held_s = max(held_s, cpu_s) if self._is_crowd else wall_s
            self._turn.take(held_s, held_s - cpu_s)
            if self._is_cut_short or (killed == packets.KILLED_CPU and cpu_s < cpu_limit_s):
                raise TurnOver  # what it has reached is no limit of its own
            signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            if signal == _SIGKILL and killed == packets.NOT_KILLED:  # which nothing that a test may do brings about
                raise InfraError("a test was killed from outside, as when the machine runs out of memory")
            _, output, stderr = descriptors
            output_size, stderr_size = os.fstat(output).st_size, os.fstat(stderr).st_size
            return Ending(
                killed=killed,
                signal=signal,
                exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                cpu_s=cpu_s,
                wall_s=wall_s,
                output=os.pread(output, output_size, 0),
                stderr=os.pread(stderr, _PACKET_BYTES, max(stderr_size - _PACKET_BYTES, 0)).decode("utf-8", "replace"),
                output_full=max(output_size, stderr_size) >= self.limits.output_limit_mb << 20,
                peak_mb=peak_kb / 1024,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _result_of_test(
        self, cpu_limit_s: float, wall_limit_s: float, turn_s: float, idle_s: float, descriptors: list[int]
    ) -> bytes:
        """Send the test, and await its result. It ends at its limits, or where its turn has no more time.

        An overdue test gets as much more time as it has waited. Its turn gives a crowd of threads nothing for that, as
        they wait for each other.
        """
        packet = packets.TEST.pack(min(cpu_limit_s, turn_s), min(wall_limit_s, turn_s, idle_s))
        lost_at = time.monotonic() + wall_limit_s + GRACE_S
        self._begin_to_look()
        while True:
            try:
                socket.send_fds(self._channel, [packet], descriptors)
            except OSError as error:
                raise InfraError(f"the program's process is gone: {error}") from None
            answer = self._receive(lost_at)
            if answer in (b"", packets.NO_TASKS):
                raise InfraError(TOO_MANY_TASKS if answer else "the program's process died during a test")
            if len(answer) != packets.OVERDUE.size:
                return answer
            cpu_s, wall_s = packets.OVERDUE.unpack(answer)
            self._look()
            waited_s = self._waited_s + self._unknown_s()
            of_limit_s = wall_limit_s + waited_s - wall_s
            of_turn_s = min(turn_s, idle_s + cpu_s) + (0.0 if self._is_crowd else waited_s) - wall_s
            of_turn_s = min(of_turn_s, self._turn.ends_at - time.monotonic())
            more_s = min(of_limit_s, of_turn_s)
            if more_s < SHORTEST_GRANT_S:
                more_s, self._is_cut_short = 0.0, of_turn_s < of_limit_s
            packet, descriptors = packets.MORE_TIME.pack(more_s), []

    def close(self) -> None:
        """Kill the sandbox with everything in it."""
        self._control.close()
        self._process.kill()
        self._process.wait()


def _memory_file(name: str, data: bytes = b"", read_only: bool = False) -> int:
    """Descriptor of an anonymous file in memory that holds ``data``.

    Such a file is always open for writing. Only seals make it ``read_only``, and nothing takes them off again: so a
    program can neither change its input nor keep data there, where no limit on its memory counts it.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    if data:
        os.lseek(fd, 0, os.SEEK_SET)
    if read_only:
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
    return fd


@dataclass(frozen=True)
class Threads:
    """The threads of a running test, by what the kernel says."""

    waited_s: float = 0.0
    """Seconds that one of them has spent ready to run, without a core to run on. The one that has waited longest
    counts: many that wake at once would wait for each other, and their sum grow faster than time passes. Time that it
    sleeps is no part of it, and what it waits for now is none yet."""
    ready: int = 0
    """How many run or wait for a core."""
    used_ns: int = 0
    """CPU time and time waited. While it stands still, those that are ready wait."""
    numbers: tuple[int, ...] = ()


def threads_of(ancestor: int) -> Threads:
    """The threads of process ``ancestor``'s last descendant; none if it has ended meanwhile.

    Between a zygote and the test that it runs each process has one child, so the last one is the test.
    """
    test, numbers, longest_ns, ready, used_ns = ancestor, tuple[int, ...](), 0, 0, 0
    with suppress(OSError):
        while children := Path(f"/proc/{test}/task/{test}/children").read_text().split():
            test = int(children[-1])
    with suppress(OSError):
        numbers = tuple(map(int, os.listdir(f"/proc/{test}/task")))
    for number in numbers:
        with suppress(OSError):
            cpu_ns, waited_ns, _ = map(int, Path(f"/proc/{test}/task/{number}/schedstat").read_text().split())
            longest_ns, used_ns = max(longest_ns, waited_ns), used_ns + cpu_ns + waited_ns
            ready += Path(f"/proc/{test}/task/{number}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    return Threads(longest_ns / _NS_PER_S, ready, used_ns, numbers)


def weigh_as_one(threads: Threads, least: int = 0, user: int | None = None) -> int:
    """Let threads that compute at the same time get one thread's share of the cores. Returns their niceness.

    The kernel shares cores among threads, not programs. A step of niceness takes a fifth of a thread's weight. The
    threads run as ``user``. ``least``: the niceness that they have; no user may lower it again.
    """
    steps = round(math.log(threads.ready, _WEIGHT_OF_A_STEP))
    niceness = max(least, min(os.getpriority(os.PRIO_PROCESS, 0) + steps, _MOST_NICENESS))
    for number in threads.numbers:
        with suppress(ProcessLookupError):  # it has ended
            try:
                os.setpriority(os.PRIO_PROCESS, number, niceness)
            except PermissionError:  # as root without CAP_SYS_NICE; they may do it themselves
                parent = os.getppid()
                os.seteuid(os.getuid() if user is None else user)
                try:
                    os.setpriority(os.PRIO_PROCESS, number, niceness)
                finally:
                    os.seteuid(os.getuid())
                    die_with_parent(parent)
    return niceness
