"""Execution results of files that carry no verdicts: the released trajectories of the paper.

This is the only place where a verdict is read from feedback text. The labels and the cut of long values are facts of
that format (see ``cobalt.prompts``).
"""

from collections.abc import Mapping
from typing import Any

from cobalt.records import ResultRecord, TestCases, Verdict
from cobalt.sandbox.results import cut

_TIME_LIMIT = "TimeoutError: Program timed out"


def read_result(record: Mapping[str, Any], tests: TestCases) -> ResultRecord:
    """One program's result on ``tests``. Raises ``ValueError`` if their numbers of tests differ.

    Files without verdicts get them from the feedback text; their results of length 1 mean "no program".
    """
    count = len(tests)
    if record.get("infra_error") is not None:
        return ResultRecord((False,) * count, ("",) * count, (Verdict.INFRA_ERROR,) * count, record["infra_error"])
    verdicts, passing = record.get("verdicts"), tuple(map(bool, record["passing"]))
    if verdicts is None and passing == (False,):
        return ResultRecord((False,) * count, (record["feedback"][0],) * count, (Verdict.NO_PROGRAM,) * count)
    if len(passing) != len(tests):
        raise ValueError(f"a result on {len(passing)} tests, but the data file shows {len(tests)} to the policy")
    if verdicts is not None:
        return ResultRecord.from_record(record)
    feedback = tuple(record["feedback"])
    texts = zip(passing, feedback, tests.outputs_K, strict=True)
    return ResultRecord(passing, feedback, tuple(_verdict(*text) for text in texts))


def _verdict(passed: bool, feedback: str, expected: str) -> Verdict:
    if passed:
        return Verdict.PASSED
    feedback = feedback.rstrip()
    if feedback.endswith(f"Expected Output:\n{cut(expected)}".rstrip()):
        return Verdict.WRONG_ANSWER
    if feedback.rpartition("\n")[2].startswith(_TIME_LIMIT):
        return Verdict.TIME_LIMIT
    return Verdict.RUNTIME_ERROR
