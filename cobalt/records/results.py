"""What running one program on its tests gave: typed verdicts, feedback texts, and infra errors kept apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Verdict(str, Enum):
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

    __str__ = str.__str__


@dataclass(frozen=True)
class ExecutionResult:
    """One program on K tests: ``passing``, ``feedback`` and ``verdicts`` have one entry per test.

    ``infra_error`` is None, or the text of an infrastructure failure; then every ``passing`` is False, every verdict
    ``infra_error``, ``pass_rate`` is None, and nothing may be concluded about the program.
    """

    passing: tuple[bool, ...]
    feedback: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    infra_error: str | None = None
    cpu_s: float = field(default=0.0, compare=False)
    """CPU time of the program over all tests, in seconds; a cost, no part of the result, and not in records."""

    @property
    def pass_rate(self) -> float | None:
        """Share of tests passed in [0, 1], or None after an infrastructure failure."""
        if self.infra_error is not None:
            return None
        return sum(self.passing) / len(self.passing)

    @property
    def solved(self) -> bool:
        """True iff the program ran and passed every test."""
        return self.infra_error is None and bool(self.passing) and all(self.passing)

    @classmethod
    def uniform(cls, num_tests: int, verdict: Verdict, feedback: str) -> "ExecutionResult":
        """The same failing verdict on every test (no program, compile error)."""
        return cls((False,) * num_tests, (feedback,) * num_tests, (verdict,) * num_tests)

    @classmethod
    def infra(cls, num_tests: int, text: str) -> "ExecutionResult":
        """An infrastructure failure: no verdict on the program."""
        return cls((False,) * num_tests, ("",) * num_tests, (Verdict.INFRA_ERROR,) * num_tests, text)

    def to_record(self) -> dict[str, Any]:
        """JSON-ready mapping with the field names of the data formats."""
        return {
            "passing": list(self.passing),
            "feedback": list(self.feedback),
            "verdicts": [verdict.value for verdict in self.verdicts],
            "infra_error": self.infra_error,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ExecutionResult":
        """Inverse of ``to_record``; also reads released files, which have no verdicts."""
        passing = tuple(bool(value) for value in record["passing"])
        feedback = tuple(record["feedback"])
        verdicts = record.get("verdicts")
        if verdicts is None:
            verdicts = [Verdict.PASSED if value else Verdict.WRONG_ANSWER for value in passing]
        return cls(passing, feedback, tuple(Verdict(value) for value in verdicts), record.get("infra_error"))
