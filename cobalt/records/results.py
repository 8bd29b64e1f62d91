"""What files keep of one program's run on its tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cobalt.sandbox import Verdict


@dataclass(frozen=True)
class ResultRecord:
    """One program on K tests: ``passing``, ``feedback`` and ``verdicts`` have one entry per test.

    ``infra_error`` is None, or the text of an infrastructure failure: then nothing may be concluded about the program.
    ``cobalt.prompts.with_feedback`` makes it of an ``ExecutionResult``.
    """

    passing: tuple[bool, ...]
    feedback: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    infra_error: str | None = None

    @property
    def pass_rate(self) -> float | None:
        """Share of tests passed in [0, 1], or None after an infrastructure failure."""
        return None if self.infra_error is not None else sum(self.passing) / len(self.passing)

    def to_record(self) -> dict[str, Any]:
        """JSON-ready mapping with the field names of the data formats."""
        return {
            "passing": list(self.passing),
            "feedback": list(self.feedback),
            "verdicts": [verdict.value for verdict in self.verdicts],
            "infra_error": self.infra_error,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "ResultRecord":
        """Inverse of ``to_record``; also reads released files, which have no verdicts."""
        passing = tuple(bool(value) for value in record["passing"])
        verdicts = record.get("verdicts")
        if verdicts is None:
            verdicts = [Verdict.PASSED if value else Verdict.WRONG_ANSWER for value in passing]
        if len(verdicts) != len(passing) or not passing:
            raise ValueError(f"a result has {len(passing)} tests in 'passing' and {len(verdicts)} in 'verdicts'")
        return cls(passing, tuple(record["feedback"]), tuple(map(Verdict, verdicts)), record.get("infra_error"))
