"""Which sandbox holds on this machine: mode ``namespaces``, mode ``landlock``, or none.

Nothing is inferred from versions or settings: a sandbox is started in each mode, every escape probe is run inside it,
and a mode counts only if all of them are contained and an ordinary program gets its right verdict.
"""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InfraError, SetupError
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.modes import MODES, REMEDIES, Mode, resolve_mode
from cobalt.sandbox.probe_program import PROBES
from cobalt.sandbox.sealed import CompileFailure, Ending, Zygote

PROBE_PROGRAM = Path(__file__).with_name("probe_program.py")
CONTAINED = "contained"

_ORDINARY_PROGRAM = "import heapq, math, random\nfrom collections import Counter\nprint(sum(map(int, input().split())))"


@dataclass(frozen=True)
class ModeReport:
    """What the self-test found about one mode; ``missing`` is None iff the mode holds."""

    mode: Mode
    missing: str | None
    probes: dict[str, str]
    """Per probe ``contained`` or what it got hold of; empty if the sandbox did not start."""


@contextmanager
def canaries() -> Iterator[dict[str, Any]]:
    """Things outside that a program must not reach: a world-readable file, three open sockets, this process."""
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
            yield {"file": str(secret), "pid": os.getpid(), **sockets}


def probe(zygote: Zygote) -> dict[str, str]:
    """Run all probes in one program; ``{probe: contained, or what it got hold of}``."""
    with canaries() as laid_out:
        ending = _run(zygote, PROBE_PROGRAM.read_text(), json.dumps({"names": [], **laid_out}))
    lines = ending.output.decode("utf-8", "replace").splitlines()
    found = dict.fromkeys(PROBES, "did not run") | dict(line.split(": ", 1) for line in lines if ": " in line)
    if ending.exit_code or ending.signal:
        found["probes"] = f"ended early, after {lines[-1:]}: {ending.stderr.decode('utf-8', 'replace')[-200:]}"
    return found


def _run(zygote: Zygote, source: str, input_text: str) -> Ending:
    with zygote.program(source, None) as program:
        return program.run_test(input_text.encode(), zygote.limits.cpu_limit_s, zygote.limits.wall_limit_s)


def examine(mode: Mode) -> ModeReport:
    """Start a sandbox in ``mode``, probe it, stop it."""
    try:
        zygote = Zygote(mode, Limits())
    except SetupError as error:
        return ModeReport(mode, str(error), {})
    try:
        ending = _run(zygote, _ORDINARY_PROGRAM, "1 2\n")
        if ending.output != b"3\n":
            reason = ending.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no output"]
            return ModeReport(mode, f"an ordinary program fails inside: {reason[0]}", {})
        found = probe(zygote)
    except (InfraError, CompileFailure) as error:
        return ModeReport(mode, f"the sandbox broke during the self-test: {error}", {})
    finally:
        zygote.close()
    escaped = [name for name, outcome in found.items() if outcome != CONTAINED]
    return ModeReport(mode, f"not contained: {', '.join(escaped)}" if escaped else None, found)


def choose_mode(wanted: str = "auto") -> Mode:
    """The first mode that holds, or the ``wanted`` one; ``SetupError`` says what is missing and how to get it."""
    resolved = resolve_mode(wanted)
    reports = []
    for mode in MODES if resolved == "auto" else (resolved,):
        report = examine(mode)
        if report.missing is None:
            return mode
        reports.append(report)
    raise SetupError("no sandbox: " + "; ".join(f"mode {r.mode}: {r.missing} ({REMEDIES[r.mode]})" for r in reports))
