"""Running reference solutions: a problem is verified when one of them passes every test.

Outcomes go to a record file as they are found. An infrastructure failure is no outcome: the problem is tried again on
the next run. ``time_limited`` marks problems whose outcome may differ on a slower or faster machine.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.preproc.taco_rows import Candidate, TacoRules, solution_order
from cobalt.records import RecordFile, Verdict
from cobalt.serving.execution import ExecutionService

VERIFIED = "kept: verified by execution"
UNSOLVED = "dropped: no reference solution passes every test"
INFRA = "left out: infra error (a rerun tries again)"


@dataclass(frozen=True)
class Outcome:
    """What came of one problem after ``tried`` solutions."""

    status: str
    tried: int
    time_limited: bool = False
    infra_error: str | None = None


@dataclass(frozen=True)
class Pending:
    """One problem to verify, with the hash of its raw row."""

    id: Any
    input_hash: str
    candidate: Candidate


class VerificationLog:
    """Outcomes by problem, on disk; survives kill -9 and knows which raw row an outcome belongs to."""

    def __init__(self, path: str | Path):
        self._file = RecordFile(path)

    def get(self, problem_id: Any, input_hash: str) -> Outcome | None:
        """The recorded outcome for this row, if there is one."""
        record = self._file.get(problem_id, input_hash)
        if record is None:
            return None
        return Outcome(**{name: record[name] for name in Outcome.__dataclass_fields__})

    def is_settled(self, problem_id: Any, input_hash: str) -> bool:
        """Whether the problem need not be run again."""
        outcome = self.get(problem_id, input_hash)
        return outcome is not None and outcome.status != INFRA

    def put(self, pending: Pending, outcome: Outcome) -> None:
        """Record one outcome."""
        self._file.append({"id": pending.id, "input_hash": pending.input_hash, **asdict(outcome)})

    def refuse_loss(self, input_ids: Iterable[Any]) -> None:
        """Raise ``InputError`` if there are outcomes of problems that the input lacks."""
        self._file.refuse_loss(input_ids)

    def finish(self, ids: Iterable[Any]) -> None:
        """Rewrite the file with each of ``ids`` once, in this order."""
        self._file.finish(ids)

    def close(self) -> None:
        """Release the file."""
        self._file.close()


async def verify(candidate: Candidate, service: ExecutionService, seed: int, rules: TacoRules) -> Outcome:
    """Try up to ``rules.max_solutions`` solutions, one after the other, until one passes every test."""
    time_limited, infra_error, tried = False, None, 0
    for code in solution_order(candidate.solutions, seed, candidate.record["id"], rules):
        result = await service.run(code, candidate.tests)
        tried += 1
        if result.solved:
            return Outcome(VERIFIED, tried, time_limited)
        infra_error = infra_error or result.infra_error
        time_limited = time_limited or Verdict.TIME_LIMIT in result.verdicts
    return Outcome(INFRA if infra_error else UNSOLVED, tried, time_limited, infra_error)
