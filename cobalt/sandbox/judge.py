"""Checker programs: a problem's own judgement of what programs print, in a sandbox that no program judged ever enters.

A checker program reads ``{"input": text, "output": text, "expected": text}`` as JSON and prints ``accepted`` or
``rejected``. Anything else is a fault of the problem, and no verdict on the program.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from cobalt.sandbox.inside import packets
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.modes import Mode
from cobalt.sandbox.sealed import CompileFailure, OpenProgram, Zygote

ANSWERS = {"accepted": True, "rejected": False}
_SHOWN = 500

Judge = Callable[[str, str, str], bool]
"""Given a test's input, what the program printed and what is expected: whether that is right."""


class CheckerFault(Exception):
    """A checker program did not answer."""


class JudgeSandbox:
    """The sandbox of one worker's checker programs; it starts with the first of them."""

    def __init__(self, mode: Mode, limits: Limits):
        self._mode: Mode = mode
        self._limits = limits
        self._zygote: Zygote | None = None

    @contextmanager
    def judge(self, source: str) -> Iterator[Judge]:
        """The judgement of the checker program ``source``. Raises ``CheckerFault`` now if it does not compile."""
        self._zygote = self._zygote or Zygote(self._mode, self._limits)
        with ExitStack() as stack:
            try:
                program = stack.enter_context(self._zygote.program(source, None))
            except CompileFailure as failure:
                raise CheckerFault(str(failure)) from None
            yield partial(_ask, program, self._limits)

    def close(self) -> None:
        """Stop the sandbox, if there is one."""
        if self._zygote is not None:
            self._zygote.close()


def _ask(program: OpenProgram, limits: Limits, input_text: str, output: str, expected: str) -> bool:
    question = json.dumps({"input": input_text, "output": output, "expected": expected})
    ending = program.run_test(question.encode(), limits.cpu_limit_s, limits.wall_limit_s)
    answer = ending.output.decode("utf-8", "replace").strip()
    if ending.killed != packets.NOT_KILLED or ending.exit_code or ending.signal or answer not in ANSWERS:
        raise CheckerFault(f"it answered {answer[:_SHOWN]!r}; {ending.stderr.decode('utf-8', 'replace')[-_SHOWN:]}")
    return ANSWERS[answer]
