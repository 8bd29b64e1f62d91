"""One program on all its tests: budgets, verdicts and feedback. Runs outside the sandbox, in the worker's process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cobalt.prompts import render_test_feedback
from cobalt.records import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.checkers import checker_of, same_value
from cobalt.sandbox.inside import packets
from cobalt.sandbox.judge import CheckerFault, Judge, JudgeSandbox
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.sealed import CompileFailure, Ending, OpenProgram, Zygote

_SHOWN_OF_FULL_OUTPUT = 1 << 16


def verdict_of(ending: Ending, cpu_limit_s: float) -> Verdict:
    """The verdict rule up to the output, which counts only if the test ended by itself, within its limits, with 0."""
    if ending.output_full:
        return Verdict.OUTPUT_LIMIT
    if ending.killed != packets.NOT_KILLED or ending.cpu_s > cpu_limit_s:
        return Verdict.TIME_LIMIT
    if ending.exit_code == packets.EXIT_MEMORY:
        return Verdict.MEMORY_LIMIT
    if ending.exit_code != 0 or ending.signal != 0:
        return Verdict.RUNTIME_ERROR
    return Verdict.PASSED


@dataclass(frozen=True)
class Progress:
    """A program that has used up its turn: the outcomes of its first tests, and what is left of its suite limits."""

    outcomes: tuple[tuple[Verdict, str], ...]
    cpu_left_s: float
    wall_left_s: float


@dataclass(frozen=True)
class Sandboxes:
    """What a worker runs programs and their checkers in; ``checker``: for problems that name none."""

    zygote: Zygote
    judges: JudgeSandbox
    checker: str

    @contextmanager
    def judge(self, tests: TestCases) -> Iterator[Judge]:
        """How the outputs of these tests are judged. ``CheckerFault`` if that takes a program that does not compile."""
        if tests.checker_program is not None:
            with self.judges.judge(tests.checker_program) as judge:
                yield judge
        else:
            same = same_value if tests.fn_name is not None else checker_of(tests.checker or self.checker)
            yield lambda _, output, expected: same(output, expected)


def run_suite(
    sandboxes: Sandboxes, code: str, tests: TestCases, progress: Progress | None, turn_s: float
) -> ExecutionResult | Progress:
    """Verdicts and feedback for every test; raises ``InfraError`` if the sandbox is lost on the way.

    Continues from ``progress``. A program whose tests need more than ``turn_s`` seconds gives its new progress instead;
    the test that was cut short is then not part of it.
    """
    limits = sandboxes.zygote.limits
    try:
        with sandboxes.zygote.program(code, tests.fn_name) as program, sandboxes.judge(tests) as judge:
            return _Suite(program, tests, limits, judge, progress or start_of_suite(limits), turn_s).run()
    except CheckerFault as fault:
        return ExecutionResult.infra(len(tests), f"the problem's checker program gave no verdict: {fault}")
    except CompileFailure as failure:
        feedback = tuple(
            render_test_feedback(Verdict.COMPILE_ERROR, input_text, "", expected, str(failure))
            for input_text, expected in zip(tests.inputs_K, tests.outputs_K, strict=True)
        )
        count = len(tests)
        return ExecutionResult((False,) * count, feedback, (Verdict.COMPILE_ERROR,) * count)


def start_of_suite(limits: Limits) -> Progress:
    """Before the first test."""
    return Progress((), limits.suite_cpu_limit_s, limits.suite_wall_limit_s)


class _Suite:
    def __init__(
        self,
        program: OpenProgram,
        tests: TestCases,
        limits: Limits,
        judge: Judge,
        progress: Progress,
        turn_s: float,
    ):
        self.program, self.tests, self.limits, self.judge = (program, tests, limits, judge)
        self.outcomes = list(progress.outcomes)
        self.cpu_left_s, self.wall_left_s, self.turn_left_s = progress.cpu_left_s, progress.wall_left_s, turn_s

    def run(self) -> ExecutionResult | Progress:
        pairs = list(zip(self.tests.inputs_K, self.tests.outputs_K, strict=True))
        for input_text, expected in pairs[len(self.outcomes) :]:
            outcome = self._judge(input_text, expected)
            if outcome is None:
                return Progress(tuple(self.outcomes), self.cpu_left_s, self.wall_left_s)
            self.outcomes.append(outcome)
        verdicts, feedback = zip(*self.outcomes, strict=True)
        passing, cpu_s = tuple(verdict is Verdict.PASSED for verdict in verdicts), self.limits.suite_cpu_limit_s
        return ExecutionResult(passing, feedback, verdicts, cpu_s=cpu_s - self.cpu_left_s)

    def _judge(self, input_text: str, expected: str) -> tuple[Verdict, str] | None:
        """Verdict and feedback of a test; None if the turn is over before the test is."""
        limit_s = self.limits.cpu_limit_s
        if self.cpu_left_s <= 0 or self.wall_left_s <= 0:
            return Verdict.TIME_LIMIT, render_test_feedback(Verdict.TIME_LIMIT, input_text, "", expected, "", limit_s)
        ending = self._run_test(input_text)
        if ending is None:
            return None
        cut = _SHOWN_OF_FULL_OUTPUT if ending.output_full else None
        output = ending.output[:cut].decode("utf-8", "replace")
        stderr = ending.stderr.decode("utf-8", "replace") if ending.exit_code or ending.signal else ""
        verdict = verdict_of(ending, limit_s)
        if verdict is Verdict.PASSED and not self.judge(input_text, output, expected):
            verdict = Verdict.WRONG_ANSWER
        return verdict, render_test_feedback(verdict, input_text, output, expected, stderr, limit_s)

    def _run_test(self, input_text: str) -> Ending | None:
        """How a test ended; None, and nothing is charged, if that was because of the turn."""
        if self.turn_left_s <= 0:
            return None
        wall_limit_s = min(self.limits.wall_limit_s, self.wall_left_s)
        ending = self.program.run_test(
            input_text.encode("utf-8", "surrogatepass"),
            min(self.limits.cpu_limit_s, self.cpu_left_s),
            min(wall_limit_s, self.turn_left_s),
        )
        if ending.killed == packets.KILLED_WALL and self.turn_left_s < wall_limit_s:
            return None
        self.cpu_left_s -= ending.cpu_s
        self.wall_left_s -= ending.wall_s
        self.turn_left_s -= ending.wall_s
        return ending
