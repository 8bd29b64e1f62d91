"""Which sandbox holds on this machine: mode ``namespaces``, mode ``landlock``, or none.

Nothing is inferred from versions or settings: a sandbox is started in each mode, every escape probe is run inside it,
and a mode counts only if all of them are contained and an ordinary program gets its right verdict.

``main`` is the command ``cobalt sandbox check``. It needs nothing but Python, so it can run before anything is
installed.
"""

import argparse
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.sandbox.confinement import LANDLOCK, MODES, NAMESPACES, Mode, interpreter, resolve_mode
from cobalt.sandbox.errors import InfraError, SetupError
from cobalt.sandbox.inside.kernel import PROBED, number
from cobalt.sandbox.limits import TOO_MANY_TASKS, Limits
from cobalt.sandbox.probe_program import PROBES
from cobalt.sandbox.zygote import CompileFailure, Ending, Zygote

PROBE_PROGRAM = Path(__file__).with_name("probe_program.py")
CONTAINED = "contained"
REMEDIES: dict[Mode, str] = {
    NAMESPACES: (
        "mode namespaces needs Linux 5.12 or newer and user namespaces: as an administrator"
        " `sysctl user.max_user_namespaces=65536`, on Debian `sysctl kernel.unprivileged_userns_clone=1`,"
        " on Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    ),
    LANDLOCK: (
        "mode landlock needs Linux 6.12 or newer with Landlock (`landlock` among the kernel's `lsm=` modules), and"
        " Python installed where everybody can read it if the server runs as root"
    ),
}
"""What to do where a mode does not hold."""
BEHIND_FILTER = (
    "the container's seccomp filter may refuse namespaces: start it with `--security-opt seccomp=unconfined`, on Ubuntu"
    " also `--security-opt apparmor=unconfined` (Kubernetes: `seccompProfile: {type: Unconfined}`)"
)
NO_CHANGE_OF_USER = (
    "root lacks the capabilities to run programs as another user: start the container with `--user 1000`, or with"
    " `--cap-add SETUID --cap-add SETGID`"
)
_SETGID, _SETUID = 6, 7  # capabilities(7)

_ORDINARY_PROGRAM = """
import heapq, math, random, sys
from collections import Counter
print(sum(map(int, input().split())))
print(sys.version)
"""
OTHER_PYTHON = "programs would run in another version of Python than this one"


@dataclass(frozen=True)
class ModeReport:
    """What the self-test found about one mode; ``missing`` is None iff the mode holds."""

    mode: Mode
    missing: str | None
    probes: dict[str, str]
    """Per probe ``contained`` or what it got hold of; empty if the sandbox did not start."""


@contextmanager
def canaries() -> Iterator[dict[str, Any]]:
    """What the probes are given: a world-readable file, three open sockets and this process, none of which a program
    may reach, and the numbers of system calls."""
    with tempfile.TemporaryDirectory(prefix="cobalt-canary-") as directory:
        os.chmod(directory, 0o755)
        secret = Path(directory, "secret")
        secret.write_text("a secret of the server")
        abstract = f"cobalt-canary-{os.getpid()}-{os.path.basename(directory)}"
        sockets = {"socket": f"{directory}/socket", "datagram": f"{directory}/datagram", "abstract": abstract}
        with (
            socket.socket(socket.AF_UNIX) as by_path,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as by_datagram,
            socket.socket(socket.AF_UNIX) as by_name,
        ):
            for path, bound in (("socket", by_path), ("datagram", by_datagram)):
                bound.bind(sockets[path])
                os.chmod(sockets[path], 0o777)
            by_name.bind(f"\0{abstract}")
            by_path.listen()
            by_name.listen()
            numbers = {name: number(name) for name in PROBED}
            yield {"file": str(secret), "pid": os.getpid(), "numbers": numbers, **sockets}


def probe(zygote: Zygote) -> dict[str, str]:
    """Run all probes in one program; ``{probe: contained, or what it got hold of}``."""
    with canaries() as given:
        ending = _run(zygote, PROBE_PROGRAM.read_text(), json.dumps({"names": [], **given}))
    lines = ending.output.decode("utf-8", "replace").splitlines()
    answers = dict.fromkeys(PROBES, "did not run") | dict(line.split(": ", 1) for line in lines if ": " in line)
    if ending.exit_code or ending.signal:
        answers["probes"] = f"ended early, after {lines[-1:]}: {ending.stderr[-200:]}"
    return answers


def _run(zygote: Zygote, source: str, input_text: str) -> Ending:
    with zygote.program(source, None):
        return zygote.run_test(input_text.encode(), zygote.limits.cpu_limit_s, zygote.limits.wall_limit_s)


def examine(mode: Mode) -> ModeReport:
    """Start a sandbox in ``mode``, probe it, stop it."""
    try:
        zygote = Zygote(mode, Limits())
    except SetupError as error:
        return ModeReport(mode, str(error), {})
    try:
        ending = _run(zygote, _ORDINARY_PROGRAM, "1 2\n")
        answer, _, version = ending.output.decode().partition("\n")
        if answer != "3":
            reason = ending.stderr.strip().splitlines()[-1:] or ["no output"]
            return ModeReport(mode, f"an ordinary program fails inside: {reason[0]}", {})
        if version != f"{sys.version}\n":
            return ModeReport(mode, OTHER_PYTHON, {})
        found = probe(zygote)
    except (InfraError, CompileFailure) as error:
        reason = str(error)
        broke = "" if reason == TOO_MANY_TASKS else "the sandbox broke during the self-test: "
        return ModeReport(mode, f"{broke}{reason}", {})
    finally:
        zygote.close()
    escaped = [name for name, outcome in found.items() if outcome != CONTAINED]
    return ModeReport(mode, f"not contained: {', '.join(escaped)}" if escaped else None, found)


def remedy(report: ModeReport) -> str:
    """What to do here for the mode of ``report`` to hold."""
    if report.missing == TOO_MANY_TASKS:
        return "raise the user's limit (`ulimit -u`) or the container's (`--pids-limit`)"
    if report.missing == OTHER_PYTHON:
        return "use a Python that finds its library without LD_LIBRARY_PATH, which programs do not get"
    mode = report.mode
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    capabilities = int(status["CapEff"], 16)
    if os.getuid() == 0 and not all(capabilities >> bit & 1 for bit in (_SETGID, _SETUID)):
        return NO_CHANGE_OF_USER
    return BEHIND_FILTER if mode == NAMESPACES and status["Seccomp"] != "0" else REMEDIES[mode]


def choose_mode(wanted: str = "auto") -> Mode:
    """The first mode that holds, or the ``wanted`` one; ``SetupError`` says what is missing and how to get it."""
    resolved = resolve_mode(wanted)
    reports = []
    for mode in MODES if resolved == "auto" else (resolved,):
        report = examine(mode)
        if report.missing is None:
            return mode
        reports.append(report)
    raise SetupError("no sandbox: " + "; ".join(f"mode {r.mode}: {r.missing} ({remedy(r)})" for r in reports))


def main() -> None:
    """Can programs be run safely on this machine? Exits with code 3 if not."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=main.__doc__)
    parser.add_argument("--quiet", action="store_true", help="say nothing if a sandbox holds")
    if parser.parse_args().quiet:
        try:
            choose_mode()
        except SetupError as error:
            print(f"{parser.prog}: error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        return
    reports = [examine(mode) for mode in MODES]
    print(f"Linux {platform.release()} {platform.machine()}, user {os.getuid()}, {interpreter()}")
    for report in reports:
        if report.missing is None:
            contained = sum(outcome == CONTAINED for outcome in report.probes.values())
            print(f"mode {report.mode}: holds, {contained} escape probes contained")
            continue
        print(f"mode {report.mode}: {report.missing}")
        for name, outcome in report.probes.items():
            if outcome != CONTAINED:
                print(f"  {name}: {outcome}")
        print(f"  {remedy(report)}")
    chosen = next((report.mode for report in reports if report.missing is None), None)
    if chosen is None:
        print("Programs will not be run on this machine.")
        sys.exit(SetupError.exit_code)
    print(f"Programs run in mode {chosen}.")
