"""Execution results of files that carry no verdicts: the released trajectories of the paper.

This is the only place where a verdict is read from feedback text. The labels and the cut of long values are facts of
that format (see ``cobalt.prompts``).
"""

from collections.abc import Mapping
from typing import Any

from cobalt.prompts import truncate
from cobalt.records import ExecutionResult, TestCases, Verdict

_TIME_LIMIT = "TimeoutError: Program timed out"


def read_result(record: Mapping[str, Any], tests: TestCases) -> ExecutionResult:
    """One program's result on ``tests``. Raises ``ValueError`` if their numbers of tests differ.

    Files without verdicts get them from the feedback text; their results of length 1 mean "no program".
    """
    if record.get("infra_error") is not None:
        return ExecutionResult.infra(len(tests), record["infra_error"])
    verdicts, passing = record.get("verdicts"), tuple(map(bool, record["passing"]))
    if verdicts is None and passing == (False,):
        return ExecutionResult.uniform(len(tests), Verdict.NO_PROGRAM, record["feedback"][0])
    if len(passing) != len(tests):
        raise ValueError(f"a result on {len(passing)} tests, but the data file shows {len(tests)} to the policy")
    if verdicts is not None:
        return ExecutionResult.from_record(record)
    feedback = tuple(record["feedback"])
    texts = zip(passing, feedback, tests.outputs_K, strict=True)
    return ExecutionResult(passing, feedback, tuple(_verdict(*text) for text in texts))


def _verdict(passed: bool, feedback: str, expected: str) -> Verdict:
    if passed:
        return Verdict.PASSED
    feedback = feedback.rstrip()
    if feedback.endswith(f"Expected Output:\n{truncate(expected)}".rstrip()):
        return Verdict.WRONG_ANSWER
    if feedback.rpartition("\n")[2].startswith(_TIME_LIMIT):
        return Verdict.TIME_LIMIT
    return Verdict.RUNTIME_ERROR
