"""The outside handle on one sandbox: start its zygote (``inside/zygote.py``), open a program in it, run tests.

Everything here blocks; one process drives one zygote. A lost zygote or a protocol that stalls raises ``InfraError``.
"""

import array
import marshal
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
from cobalt.sandbox.limits import Limits

INSIDE = Path(__file__).parent / "inside"
START_TIMEOUT_S = 60.0
GRACE_S = 30.0  # longer than its wall limit a test may take to answer before its sandbox counts as lost
SAMPLING_S = 0.1  # between two looks at how long a running test has waited for a core
SHORTEST_GRANT_S = 0.01  # a test that has waited less since it last got more time is killed at its wall limit
# by import, so that compiled code can be cached: compiling it leaves holes in memory that every fork would carry
_START = "import sys; sys.path[0] = sys.argv.pop(); import zygote; zygote.main()"
_PACKET_BYTES = 1 << 16
_SIGKILL = 9
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Ending:
    """How one test ended. ``signal``: what killed it, else 0; ``exit_code``: else its status."""

    killed: int
    signal: int
    exit_code: int
    cpu_s: float
    wall_s: float
    """Without what the test waited for a core, and without ``SAMPLING_S``, to which that is known."""
    output: bytes
    stderr: bytes
    output_full: bool


class CompileFailure(Exception):
    """The program does not compile; the text is for its author."""


class Zygote:
    """One sandbox. Raises ``SetupError`` if it cannot be made."""

    def __init__(self, mode: Mode, limits: Limits):
        self.limits = limits
        self._control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_TIMEOUT_S)
        self._ends_pending = 0
        with inner:
            arguments = [str(inner.fileno()), str(os.getpid()), str(INSIDE)]
            self._process = subprocess.Popen(
                [interpreter(), "-S", "-s", "-W", "ignore", "-c", _START, *arguments],
                pass_fds=[inner.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=ENVIRONMENT,
            )
        try:
            config = zygote_config(mode, limits)
            self._control.send(marshal.dumps(config))
            answer = self._control.recv(_PACKET_BYTES)
            if answer == packets.UNSHARED:
                # root maps itself, to build the root, and whom programs run as; anyone else only themselves
                run_as, user, group = config["run_as"], os.getuid(), os.getgid()
                both = f"0 0 1\n{run_as} {run_as} 1\n"
                maps = {"uid_map": both, "gid_map": both}
                if run_as is None:
                    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1\n", "gid_map": f"{group} {group} 1\n"}
                for name, text in maps.items():
                    Path(f"/proc/{self._process.pid}/{name}").write_text(text)
                self._control.send(b"1")
                answer = self._control.recv(_PACKET_BYTES)
            if answer != packets.READY:
                reason = answer.decode(errors="replace").removeprefix("failed: ")
                raise SetupError(reason or "its process died at start")
        except OSError as error:
            self.close()
            raise SetupError(f"the sandbox did not start: {error}") from None
        except BaseException:
            self.close()
            raise

    @contextmanager
    def program(
        self,
        source: str,
        fn_name: str | None,
        memory_limit_mb: float | None = None,
        folder: str = "",
        files: Mapping[str, bytes] | None = None,
    ) -> Iterator["OpenProgram"]:
        """Compile ``source``; raises ``CompileFailure``. Tests run inside the ``with`` block.

        ``memory_limit_mb``: of the problem, if it is below that of the sandbox. ``folder``: the working folder of a
        program with ``files``, empty before; in mode ``namespaces`` it is the program's own.
        """
        memory_mb = min(self.limits.memory_limit_mb, memory_limit_mb or self.limits.memory_limit_mb)
        self._finish_previous()
        channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        payload = _memory_file(
            "program", marshal.dumps((source, fn_name, int(memory_mb * (1 << 20)), folder, dict(files or {})))
        )
        with channel:
            with inner:
                try:
                    _send_descriptors(
                        self._control, packets.WITH_FILES if files else packets.PLAIN, [inner.fileno(), payload]
                    )
                except OSError as error:
                    raise InfraError(f"sandbox lost: {error}") from None
                finally:
                    os.close(payload)
            self._ends_pending += 1
            program = OpenProgram(channel, self.limits, self._process.pid)
            if program.receive(time.monotonic() + START_TIMEOUT_S) != packets.STARTED:
                raise InfraError("the program's process could not be set up")
            answer = program.receive(time.monotonic() + START_TIMEOUT_S)
            if answer and answer != packets.READY:
                raise CompileFailure(answer.decode(errors="replace"))
            if not answer:
                if self._finish_previous() == _SIGKILL:  # which no source brings about
                    raise InfraError("the program's process was killed before it could start")
                raise CompileFailure("the program is too deep or too large to compile")
            yield program

    def _finish_previous(self) -> int:
        """Wait until the last program's processes are gone; the signal that ended it, or 0."""
        ended_by = 0
        while self._ends_pending:
            try:
                packet = self._control.recv(_PACKET_BYTES)
            except TimeoutError:
                raise InfraError("the sandbox did not answer in time") from None
            except OSError as error:
                raise InfraError(f"the sandbox died: {error}") from None
            if not packet:
                raise InfraError("the sandbox died")
            (ended_by,) = packets.ENDED.unpack(packet)
            self._ends_pending -= 1
        return ended_by

    def close(self) -> None:
        """Kill the sandbox with everything in it."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class OpenProgram:
    """A compiled program whose tests can be run."""

    def __init__(self, channel: socket.socket, limits: Limits, zygote_pid: int):
        self._channel = channel
        self._channel.settimeout(SAMPLING_S)
        self._limits = limits
        self._zygote_pid = zygote_pid
        self._waited_s = 0.0
        """What the process has waited for a core since it began to compile, or since the test began."""

    def receive(self, lost_at: float) -> bytes:
        """The next packet. The sandbox is lost if none comes until ``lost_at``, or as much later as it has waited."""
        while time.monotonic() < lost_at + self._waited_s:
            try:
                return self._channel.recv(_PACKET_BYTES)
            except TimeoutError:
                self._waited_s = max(self._waited_s, waited_s(self._zygote_pid))
            except OSError as error:
                raise InfraError(f"the sandbox died: {error}") from None
        raise InfraError("the sandbox did not answer in time")

    def run_test(self, input_bytes: bytes, cpu_limit_s: float, wall_limit_s: float) -> Ending:
        """Run one test on ``input_bytes``; raises ``InfraError`` if the sandbox is lost."""
        descriptors = [_memory_file("input", input_bytes, read_only=True), _memory_file("out"), _memory_file("err")]
        try:
            packet = self._result_of_test(packets.TEST.pack(cpu_limit_s, wall_limit_s), descriptors, wall_limit_s)
            killed, status, cpu_s, wall_s = packets.RESULT.unpack(packet)
            signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            if signal == _SIGKILL and killed == packets.NOT_KILLED and cpu_s <= cpu_limit_s:
                # nothing that a test may do brings a kill about, but using up its CPU time
                raise InfraError("a test was killed from outside, as when the machine runs out of memory")
            _, output, stderr = descriptors
            output_size, stderr_size = os.fstat(output).st_size, os.fstat(stderr).st_size
            return Ending(
                killed=killed,
                signal=signal,
                exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                cpu_s=cpu_s,
                wall_s=max(wall_s - self._waited_s - SAMPLING_S, cpu_s),
                output=os.pread(output, output_size, 0),
                stderr=os.pread(stderr, _PACKET_BYTES, max(stderr_size - _PACKET_BYTES, 0)),
                output_full=max(output_size, stderr_size) >= self._limits.output_limit_mb << 20,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _result_of_test(self, packet: bytes, descriptors: list[int], wall_limit_s: float) -> bytes:
        """Send the test, and await its result. A test that is overdue gets as much more time as it has waited."""
        lost_at = time.monotonic() + wall_limit_s + GRACE_S
        self._waited_s = granted_s = 0.0
        while True:
            try:
                _send_descriptors(self._channel, packet, descriptors)
            except OSError as error:
                raise InfraError(f"the program's process is gone: {error}") from None
            answer = self.receive(lost_at)
            if not answer:
                raise InfraError("the program's process died during a test")
            if answer != packets.OVERDUE:
                return answer
            self._waited_s = max(self._waited_s, waited_s(self._zygote_pid))
            more_s = self._waited_s - granted_s
            more_s = more_s if more_s >= SHORTEST_GRANT_S else 0.0
            granted_s += more_s
            packet, descriptors = packets.MORE_TIME.pack(more_s), []


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


def _send_descriptors(channel: socket.socket, data: bytes, descriptors: list[int]) -> None:
    channel.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def waited_s(ancestor: int) -> float:
    """Seconds that the last descendant of process ``ancestor`` has spent ready to run, without a core to run on.

    Between a zygote and the test that it runs each process has one child, so the last one is the test; its threads are
    summed up. Time that a test sleeps is no part of it. 0 if the test has ended meanwhile.
    """
    test = ancestor
    with suppress(OSError):
        while children := Path(f"/proc/{test}/task/{test}/children").read_text().split():
            test = int(children[-1])
    waited_ns = 0
    for task in Path(f"/proc/{test}/task").glob("*/schedstat"):
        with suppress(OSError):
            waited_ns += int(task.read_text().split()[1])
    return waited_ns / _NS_PER_S
