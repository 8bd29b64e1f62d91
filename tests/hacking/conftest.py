"""The hand-made trajectories, run in the sandbox and written as the files that the commands read."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from hacking_fixture import PROBLEMS, Problem

from cobalt.extraction import extract_code
from cobalt.prompts import with_feedback
from cobalt.records import TestCases, write_jsonl
from cobalt.serving.execution import ExecutionService, open_execution_service


@dataclass(frozen=True)
class Files:
    data: Path
    results: Path


@pytest.fixture(scope="session")
def hacking_files(tmp_path_factory) -> Files:
    async def evaluate() -> list[dict]:
        async with open_execution_service("local") as service:
            return [await _result_row(service, problem) for problem in PROBLEMS]

    folder = tmp_path_factory.mktemp("hacking")
    files = Files(folder / "perturbed.jsonl", folder / "evaluated.jsonl")
    write_jsonl(files.data, (problem.data_row() for problem in PROBLEMS))
    write_jsonl(files.results, asyncio.run(evaluate()))
    return files


async def _result_row(service: ExecutionService, problem: Problem) -> dict:
    """Evaluated. A trajectory that is shorter than its problem's longest repeats its last program."""
    data, answers_NT = problem.data_row(), []
    turns = max(len(trajectory.programs) for trajectory in problem.trajectories)
    for programs in (trajectory.programs for trajectory in problem.trajectories):
        texts = [text if text.startswith("I ") else f"Thus:\n```python\n{text}\n```" for text in programs]
        answers_NT.append(texts + texts[-1:] * (turns - len(texts)))
    results = []
    for name in ("perturbed_public_test_cases", "hidden_test_cases"):
        tests = TestCases.parse(data[name])
        programs = [(extract_code(answer), tests) for answers_T in answers_NT for answer in answers_T]
        flat = [with_feedback(result, tests) for result in await service.run_many(programs)]
        assert not any(record.infra_error for record in flat)
        results.append([flat[start : start + turns] for start in range(0, len(flat), turns)])
    shown_TN = list(zip(*results[0], strict=True))
    return {
        **data,
        "conversations": [[] for _ in answers_NT],
        "raw_responses": [list(turn) for turn in zip(*answers_NT, strict=True)],
        "public_exec_results": [[r.to_record() for r in turn] for turn in shown_TN],
        "public_pass_rates": [[r.pass_rate for r in turn] for turn in shown_TN],
        "all_pass_rates": [[r.pass_rate for r in row] for row in results[1]],
    }
