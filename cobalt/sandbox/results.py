"""What came of running one program: per test a verdict and what it printed. Infrastructure failures are kept apart."""

from dataclasses import dataclass, field
from enum import StrEnum

LONGEST_SHOWN, KEPT = 400, 200
TRUNCATION = "...(truncated) ..."
"""Facts of the released data's format."""


class Verdict(StrEnum):
    """The outcome of one test. Every value but the last is a statement about the *program*."""

    PASSED = "passed"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    NO_PROGRAM = "no_program"
    INFRA_ERROR = "infra_error"


def cut(text: str) -> str:
    """Stripped text; over 400 characters its first and last 200 around a mark. Cutting again changes nothing."""
    text = text.strip()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:KEPT]}{TRUNCATION}{text[-KEPT:]}"


@dataclass(frozen=True)
class Output:
    """What a program printed on one input, uncut. Nobody judged it: ``passed`` means that it ended with exit code 0."""

    verdict: Verdict
    stdout: str
    stderr: str
    exit_code: int
    """Negative: the signal that ended it."""
    wall_s: float


@dataclass(frozen=True)
class ExecutionResult:
    """One program on K tests: ``verdicts``, ``outputs`` and ``errors`` have one entry per test.

    After an infrastructure failure ``infra_error`` is its text, every verdict is ``infra_error``, ``pass_rate`` is
    None, and nothing may be concluded about the program.
    """

    verdicts: tuple[Verdict, ...]
    outputs: tuple[str, ...]
    """What the tests printed, cut."""
    errors: tuple[str, ...]
    """Error output of tests that ended with a non-zero exit code or a signal, or why the program does not compile; cut.
    Empty for other tests."""
    infra_error: str | None = None
    cpu_limit_s: float = 0.0
    """CPU seconds that each test was given."""
    cpu_s: float = field(default=0.0, compare=False)
    """CPU seconds of the program over all tests: a cost, no part of the result, and not in records."""
    is_final: bool = field(default=False, compare=False)
    """Another attempt would meet the same failure: the checker cannot judge."""

    @property
    def passing(self) -> tuple[bool, ...]:
        return tuple(verdict is Verdict.PASSED for verdict in self.verdicts)

    @property
    def pass_rate(self) -> float | None:
        """Share of tests passed in [0, 1], or None after an infrastructure failure."""
        return None if self.infra_error is not None else self.verdicts.count(Verdict.PASSED) / len(self.verdicts)

    @property
    def solved(self) -> bool:
        """True iff the program ran and passed every test."""
        return bool(self.verdicts) and all(self.passing)

    @classmethod
    def uniform(cls, num_tests: int, verdict: Verdict, error: str = "") -> "ExecutionResult":
        """The same failing verdict on every test (no program, compile error)."""
        return cls((verdict,) * num_tests, ("",) * num_tests, (cut(error),) * num_tests)

    @classmethod
    def infra(cls, num_tests: int, text: str, is_final: bool = False) -> "ExecutionResult":
        """An infrastructure failure: no verdict on the program."""
        nothing = ("",) * num_tests
        return cls((Verdict.INFRA_ERROR,) * num_tests, nothing, nothing, text, is_final=is_final)
