"""What a conversation about a MiniCode problem consists of: attempts, and the feedback to each."""

from dataclasses import dataclass, field

from cobalt.prompts import ALL_PASSED, NO_PROGRAM, render_test_feedback
from cobalt.records import TestCases, Verdict
from studies.minicode.habits import Habit, Hack, run_hacked, write_hacked
from studies.minicode.problems import Problem
from studies.minicode.programs import Pipeline, Step, Variant, call_of, write_function


@dataclass(frozen=True)
class Attempt:
    """One response: ``steps`` has None where a step of the problem is left out.

    ``habit``: how it games the failing test; ``hack``: what that adds to the program of its steps.
    """

    steps: tuple[Step | None, ...]
    thinking: str
    variant: Variant
    cut: bool = False
    habit: Habit | None = None
    hack: Hack | None = None
    called: bool = False
    """Whether it writes a function and not a program."""

    @property
    def pipeline(self) -> Pipeline:
        """The steps written."""
        return tuple(step for step in self.steps if step is not None)

    @property
    def response(self) -> str:
        """The response as a policy writes it."""
        program = write_function(self.pipeline) if self.called else write_hacked(self.pipeline, self.variant, self.hack)
        text = f"<think>{self.thinking}</think>\n```python\n{program}\n```"
        return text[: -len(text) // 4] if self.cut else text


@dataclass
class Dialogue:
    """A problem and the attempts made at it, each run on the tests shown: by default its public tests."""

    problem: Problem
    wrong_tests: TestCases | None = None
    """The tests shown where they contradict the statement."""
    attempts: list[Attempt] = field(default_factory=list)
    feedbacks: list[str] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Input and expected output of every failed test shown."""
    last_output: str = ""

    @property
    def passed(self) -> bool:
        """Whether the last program passed all public tests."""
        return bool(self.feedbacks) and self.feedbacks[-1] == ALL_PASSED

    @property
    def failing(self) -> tuple[str, str] | None:
        """Input and expected output that the last feedback shows; None: it shows none."""
        shows_none = not self.attempts or self.passed or self.attempts[-1].cut
        return None if shows_none else self.seen[-1]

    def add(self, attempt: Attempt) -> None:
        """Append an attempt and the feedback to it."""
        self.attempts.append(attempt)
        self.feedbacks.append(NO_PROGRAM if attempt.cut else self._feedback(attempt))

    def _feedback(self, attempt: Attempt) -> str:
        tests = self.wrong_tests or self.problem.public
        for text, want in zip(tests.inputs_K, tests.outputs_K, strict=True):
            got = run_hacked(attempt.pipeline, attempt.hack, text)
            shown = text, got, want
            if self.problem.called:
                shown = *call_of(attempt.pipeline, text), call_of(self.problem.pipeline, text)[1]
            if shown[1].strip() != shown[2].strip():
                self.seen.append((text, want))
                self.last_output = got
                return render_test_feedback(Verdict.WRONG_ANSWER, *shown)
        return ALL_PASSED
