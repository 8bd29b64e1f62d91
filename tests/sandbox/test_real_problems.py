"""Real problems (CodeContests): accepted programs pass every test, wrong ones fail as expected.

The problems are not in the repository: ``COBALT_SAMPLE_DATA`` names the directory of ``codecontests_sample.jsonl``.
Programs and what is expected of them are under ``tests/data/codecontests``.
"""

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.executor import Executor

PROGRAMS = Path(__file__).parents[1] / "data" / "codecontests"
SAMPLE = "codecontests_sample.jsonl"
EXPECTATIONS = json.loads((PROGRAMS / "expectations.json").read_text())

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tests_by_id() -> dict[str, TestCases]:
    """Each problem's tests."""
    directory = os.environ.get("COBALT_SAMPLE_DATA")
    if not directory:
        pytest.skip("COBALT_SAMPLE_DATA is not set: it names the directory that holds codecontests_sample.jsonl")
    with open(Path(directory, SAMPLE)) as file:
        rows = [json.loads(line) for line in file]
    return {row["id"]: TestCases.parse(row["input_output"]) for row in rows}


def programs() -> list[tuple[str, str]]:
    """``(problem, file)`` of every program, accepted ones first."""
    wrong = [(problem, name) for problem, expected in EXPECTATIONS.items() for name in expected]
    return [*((problem, "accepted.py") for problem in EXPECTATIONS), *wrong]


@pytest.fixture(scope="module")
def results(tests_by_id, namespaces) -> dict[tuple[str, str], ExecutionResult]:
    """Each program's results, from one executor."""
    todo = [(Path(PROGRAMS, *key).read_text(), tests_by_id[key[0]]) for key in programs()]

    async def run() -> list[ExecutionResult]:
        async with Executor(suite_cpu_limit_s=2) as executor:  # one program uses up whatever it may
            return await executor.run_many(todo)

    return dict(zip(programs(), asyncio.run(run()), strict=True))


@pytest.mark.ci
@pytest.mark.parametrize("problem", EXPECTATIONS)
def test_an_accepted_program_passes_all(problem, results):
    assert results[problem, "accepted.py"].solved


@pytest.mark.ci
@pytest.mark.parametrize(("problem", "name"), programs()[len(EXPECTATIONS) :])
def test_wrong_program_fails_with_the_right_verdict(problem, name, results):
    failures = Counter(verdict for verdict in results[problem, name].verdicts if verdict != Verdict.PASSED)
    assert failures.most_common(1)[0][0] == EXPECTATIONS[problem][name]
