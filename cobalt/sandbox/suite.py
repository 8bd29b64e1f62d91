"""One program on all its tests: budgets, verdicts and feedback. Runs outside the sandbox, in the worker's process."""

from cobalt.prompts import render_test_feedback
from cobalt.records import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.checkers import CHECKERS, Checker, same_value
from cobalt.sandbox.inside import packets
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.sealed import CompileFailure, Ending, OpenProgram, Zygote

_SHOWN_OF_FULL_OUTPUT = 1 << 16


def verdict_of(ending: Ending, cpu_limit_s: float, correct: bool) -> Verdict:
    """The verdict rule; ``correct`` counts only if the program ended by itself, within its limits, with code 0."""
    if ending.output_full:
        return Verdict.OUTPUT_LIMIT
    if ending.killed != packets.NOT_KILLED or ending.cpu_s > cpu_limit_s:
        return Verdict.TIME_LIMIT
    if ending.exit_code == packets.EXIT_MEMORY or ending.memory_full:
        return Verdict.MEMORY_LIMIT
    if ending.exit_code != 0 or ending.signal != 0:
        return Verdict.RUNTIME_ERROR
    return Verdict.PASSED if correct else Verdict.WRONG_ANSWER


def run_suite(zygote: Zygote, code: str, tests: TestCases, checker: str) -> ExecutionResult:
    """Verdicts and feedback for every test; raises ``InfraError`` if the sandbox is lost on the way."""
    compare = same_value if tests.fn_name is not None else CHECKERS[checker]
    try:
        with zygote.program(code, tests.fn_name) as program:
            return _Suite(program, tests, zygote.limits, compare).run()
    except CompileFailure as failure:
        feedback = tuple(
            render_test_feedback(Verdict.COMPILE_ERROR, input_text, "", expected, str(failure))
            for input_text, expected in zip(tests.inputs_K, tests.outputs_K, strict=True)
        )
        count = len(tests)
        return ExecutionResult((False,) * count, feedback, (Verdict.COMPILE_ERROR,) * count)


class _Suite:
    def __init__(self, program: OpenProgram, tests: TestCases, limits: Limits, compare: Checker):
        self.program, self.tests, self.limits, self.compare = (program, tests, limits, compare)
        self.cpu_left_s, self.wall_left_s = (limits.suite_cpu_limit_s, limits.suite_wall_limit_s)
        self.cpu_s = 0.0

    def run(self) -> ExecutionResult:
        judged = [self._judge(*pair) for pair in zip(self.tests.inputs_K, self.tests.outputs_K, strict=True)]
        verdicts, feedback = zip(*judged, strict=True)
        passing = tuple(verdict is Verdict.PASSED for verdict in verdicts)
        return ExecutionResult(passing, feedback, verdicts, cpu_s=self.cpu_s)

    def _judge(self, input_text: str, expected: str) -> tuple[Verdict, str]:
        limit_s = self.limits.cpu_limit_s
        if self.cpu_left_s <= 0 or self.wall_left_s <= 0:
            verdict, output, stderr = Verdict.TIME_LIMIT, "", ""
        else:
            ending = self._run_test(input_text)
            cut = _SHOWN_OF_FULL_OUTPUT if ending.output_full else None
            output = ending.output[:cut].decode("utf-8", "replace")
            stderr = ending.stderr.decode("utf-8", "replace") if ending.exit_code or ending.signal else ""
            correct = not ending.output_full and self.compare(output, expected)
            verdict = verdict_of(ending, limit_s, correct)
        return verdict, render_test_feedback(verdict, input_text, output, expected, stderr, limit_s)

    def _run_test(self, input_text: str) -> Ending:
        ending = self.program.run_test(
            input_text.encode("utf-8", "surrogatepass"),
            min(self.limits.cpu_limit_s, self.cpu_left_s),
            min(self.limits.wall_limit_s, self.wall_left_s),
        )
        self.cpu_s += ending.cpu_s
        self.cpu_left_s -= ending.cpu_s
        self.wall_left_s -= ending.wall_s
        return ending
