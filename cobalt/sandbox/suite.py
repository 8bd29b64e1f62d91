"""One program on all its tests: budgets, verdicts, outputs. Runs outside the sandbox, in the worker's process."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from cobalt.sandbox.checkers import checker_of
from cobalt.sandbox.confinement import NAMESPACES, Mode
from cobalt.sandbox.inside import packets
from cobalt.sandbox.limits import Limits
from cobalt.sandbox.own_files import OwnFile
from cobalt.sandbox.results import ExecutionResult, Output, Verdict, cut
from cobalt.sandbox.tests import TestCases
from cobalt.sandbox.turns import Terms, Turn, TurnOver
from cobalt.sandbox.zygote import CompileFailure, Ending, FilesFailure, Zygote

ANSWERS = {"accepted": True, "rejected": False}
ANSWERS_OF_FUNCTIONS = {"true": True, "false": False}
_SHOWN_OF_ANSWER = 500
_SHOWN_OF_FULL_OUTPUT = 1 << 16
_LONGEST_ESCAPED = 2  # times the output limit, as JSON: text with many newlines stays below, other bytes take 3 to 6

Judge = Callable[[str, str, str], bool]
"""Given a test's input, what the program printed and what is expected: whether that is right."""


class CheckerFault(Exception):
    """A checker cannot judge, not even the expected output: its own fault, and no verdict on the program."""


@dataclass(frozen=True)
class Progress:
    """A program that has used up its turn: the outcomes of its first tests, and what is left of its suite limits.

    ``is_idle``: it does not compute, and should be in nobody's way.
    """

    outcomes: tuple[tuple[Verdict, str, str], ...]
    """Verdict, output and error output of each test, as in ``ExecutionResult``."""
    cpu_left_s: float
    wall_left_s: float
    is_idle: bool = False


def verdict_of(ending: Ending, cpu_limit_s: float, memory_limit_mb: float | None = None) -> Verdict:
    """The verdict rule up to the output, which counts only if the test ended by itself, within its limits, with 0.

    ``memory_limit_mb``: of the problem.
    """
    if ending.output_full:
        return Verdict.OUTPUT_LIMIT
    if ending.killed != packets.NOT_KILLED or ending.cpu_s > cpu_limit_s:
        return Verdict.TIME_LIMIT
    if ending.exit_code == packets.EXIT_MEMORY or ending.peak_mb > (memory_limit_mb or math.inf):
        return Verdict.MEMORY_LIMIT
    if ending.exit_code != 0 or ending.signal != 0:
        return Verdict.RUNTIME_ERROR
    return Verdict.PASSED


class SuiteRunner:
    """Runs programs in one sandbox, and checkers in another one that no program judged ever enters.

    ``checker``: for problems that name none. Raises ``SetupError`` if there is no sandbox. The one of checkers starts
    with the first of them that is not ours. ``files_folder``: where a program's files lie in mode ``landlock``.
    """

    def __init__(self, mode: Mode, limits: Limits, checker: str | OwnFile, files_folder: str):
        self._mode: Mode = mode
        self._files_folder = files_folder
        self._limits, self._checker = limits, checker
        self._zygote = Zygote(mode, limits)
        self._zygote_of_checkers: Zygote | None = None

    def close(self) -> None:
        """Stop the sandboxes."""
        for zygote in (self._zygote, self._zygote_of_checkers):
            if zygote is not None:
                zygote.close()

    def run(self, code: str, tests: TestCases, progress: Progress | None, terms: Terms) -> ExecutionResult | Progress:
        """The result of every test; raises ``InfraError`` if the sandbox is lost on the way.

        Continues from ``progress``. A program whose tests need a longer turn gives its new progress instead; a test
        that was cut short is then not part of it.
        """
        limits, turn = self._limits, Turn(terms)
        if tests.time_limit is not None:
            limits = replace(limits, cpu_limit_s=min(limits.cpu_limit_s, tests.time_limit))
        progress = progress or Progress((), limits.suite_cpu_limit_s, limits.suite_wall_limit_s)
        outcomes, cpu_left_s, wall_left_s = list(progress.outcomes), progress.cpu_left_s, progress.wall_left_s
        pairs = list(zip(tests.inputs_K, tests.outputs_K, strict=True))[len(outcomes) :]
        try:
            opened = self._zygote.program(code, tests.fn_name, turn)
            with opened, self._judge(tests, turn) as judge:
                started = time.monotonic()
                for number, (input_text, expected) in enumerate(pairs):
                    if cpu_left_s <= 0 or wall_left_s <= 0:
                        outcomes.append((Verdict.TIME_LIMIT, "", ""))
                        continue
                    if number and (turn.idle_s >= terms.idle_s or time.monotonic() - started > terms.tests_s):
                        raise TurnOver
                    given = input_text
                    if tests.fn_name is None and given and not given.endswith("\n"):
                        given += "\n"  # as every line of a file has it
                    ending = self._zygote.run_test(
                        given.encode("utf-8", "surrogatepass"),
                        min(limits.cpu_limit_s, cpu_left_s),
                        min(limits.wall_limit_s, wall_left_s),
                    )
                    shown = _SHOWN_OF_FULL_OUTPUT if ending.output_full else None
                    output = ending.output[:shown].decode("utf-8", "replace")
                    error = ending.stderr if ending.exit_code or ending.signal else ""
                    verdict = verdict_of(ending, limits.cpu_limit_s, tests.memory_limit)
                    if verdict is Verdict.PASSED and not judge(input_text, output, expected):
                        verdict = Verdict.WRONG_ANSWER
                    outcomes.append((verdict, cut(output), cut(error)))
                    cpu_left_s -= ending.cpu_s
                    wall_left_s -= ending.wall_s
        except TurnOver:
            return Progress(tuple(outcomes), cpu_left_s, wall_left_s, turn.is_idle)
        except CheckerFault as fault:
            return ExecutionResult.infra(len(tests), str(fault), is_final=True)
        except CompileFailure as failure:
            return ExecutionResult.uniform(len(tests), Verdict.COMPILE_ERROR, str(failure))
        cpu_s = limits.suite_cpu_limit_s - cpu_left_s
        verdicts, outputs, errors = zip(*outcomes, strict=True)
        return ExecutionResult(verdicts, outputs, errors, cpu_limit_s=limits.cpu_limit_s, cpu_s=cpu_s)

    def run_inputs(
        self, code: str, tests: TestCases, files: Mapping[str, bytes], terms: Terms
    ) -> list[Output] | Progress | ExecutionResult:
        """What the program prints on the inputs, with ``files`` in its working folder; nothing is judged.

        Once the turn is over, or as much was printed as one test may print (as JSON), the outputs so far. If there is
        one input only, an empty progress then: it needs a longer turn. A result with ``infra_error`` if the files
        cannot be written.
        """
        cpu_limit_s = min(self._limits.cpu_limit_s, tests.time_limit or self._limits.cpu_limit_s)
        wall_limit_s = self._limits.wall_factor * cpu_limit_s
        limit = self._limits.output_limit_mb << 20
        room, outputs, turn = limit, [], Turn(terms)
        try:
            with ExitStack() as stack, suppress(TurnOver):
                folder = packets.FILES
                if files and self._mode != NAMESPACES:
                    folder = self._files_folder
                    try:
                        os.mkdir(folder)
                        stack.callback(shutil.rmtree, folder, ignore_errors=True)
                        os.chmod(folder, 0o755)  # the program runs as another user
                    except OSError as error:
                        raise FilesFailure(str(error)) from None
                stack.enter_context(self._zygote.program(code, None, turn, folder, files))
                for text in tests.inputs_K:
                    if room <= 0:
                        break
                    ending = self._zygote.run_test(text.encode("utf-8", "surrogatepass"), cpu_limit_s, wall_limit_s)
                    stdout = ending.output.decode("utf-8", "replace")
                    verdict = verdict_of(ending, cpu_limit_s, tests.memory_limit)
                    size = len(json.dumps([stdout, ending.stderr], ensure_ascii=False).encode())
                    if size > _LONGEST_ESCAPED * limit:
                        verdict = Verdict.OUTPUT_LIMIT
                    if verdict is Verdict.OUTPUT_LIMIT:
                        stdout = stdout[:_SHOWN_OF_FULL_OUTPUT]
                    room -= size
                    exit_code = -ending.signal if ending.signal else ending.exit_code
                    if verdict is Verdict.MEMORY_LIMIT:
                        exit_code = packets.EXIT_MEMORY
                    outputs.append(Output(verdict, stdout, ending.stderr, exit_code, ending.wall_s))
        except CompileFailure as failure:
            return [Output(Verdict.COMPILE_ERROR, "", str(failure), 1, 0.0)] * len(tests)
        except FilesFailure as failure:
            return ExecutionResult.infra(len(tests), str(failure))
        return outputs if outputs or len(tests) > 1 else Progress((), 0.0, 0.0, turn.is_idle)

    @contextmanager
    def _judge(self, tests: TestCases, turn: Turn) -> Iterator[Judge]:
        """How the outputs of these tests are judged.

        A checker program reads ``{"input": text, "output": text, "expected": text}`` as JSON and prints ``accepted`` or
        ``rejected``. The user's function of output and expected output returns True or False. Anything else is no
        answer. An output that gets none is wrong if the expected one, in its place, is accepted; else ``CheckerFault``.
        """
        if tests.checker_program is not None:
            name, source, function, answers = "the problem's checker program", tests.checker_program, None, ANSWERS
        elif tests.fn_name is None and tests.checker is None and isinstance(own := self._checker, OwnFile):
            name, source, function, answers = f"checker {own}", own.source, own.attribute, ANSWERS_OF_FUNCTIONS
        else:
            named = tests.checker or (self._checker if isinstance(self._checker, str) else "exact")
            same = checker_of(named, is_call=tests.fn_name is not None)
            yield lambda _, output, expected: same(output, expected)
            return
        zygote = self._zygote_of_checkers = self._zygote_of_checkers or Zygote(self._mode, self._limits)
        with ExitStack() as stack:
            try:
                stack.enter_context(zygote.program(source, function, turn))
            except CompileFailure as failure:
                raise CheckerFault(f"{name} gave no verdict: {failure}") from None

            def ask(input_text: str, output: str, expected: str) -> bool:
                if function is None:
                    question = json.dumps({"input": input_text, "output": output, "expected": expected})
                else:
                    question = f"{json.dumps(output)}\n{json.dumps(expected)}"
                ending = zygote.run_test(question.encode(), self._limits.cpu_limit_s, self._limits.wall_limit_s)
                answer = ending.output.decode("utf-8", "replace").strip()
                if verdict_of(ending, self._limits.cpu_limit_s) is not Verdict.PASSED or answer not in answers:
                    said = f"it answered {answer[:_SHOWN_OF_ANSWER]!r}; {ending.stderr[-_SHOWN_OF_ANSWER:]}"
                    raise CheckerFault(f"{name} gave no verdict: {said}")
                return answers[answer]

            def judge(input_text: str, output: str, expected: str) -> bool:
                try:
                    return ask(input_text, output, expected)
                except CheckerFault:
                    if not ask(input_text, expected, expected):
                        raise
                    return False

            yield judge
