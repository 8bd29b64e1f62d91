"""Files as the original release writes them: without manifests, hashes, verdicts, usage; APIs without raw responses."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "inference"))
from scripted import MultiplyingService, make_plan, read_rows, run_plan, write_problems

from cobalt.errors import InputError
from cobalt.evaluation.evaluate import evaluate_record
from cobalt.preproc.perturbed import PerturbationConfig
from cobalt.preproc.perturbed import main as perturb
from cobalt.records import write_jsonl
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import manifest_path
from cobalt.records.rows import MultiTurn
from cobalt.serving.execution import ExecutionService
from studies.hacking.cases import find_cases
from studies.hacking.judging import read_cases

OURS = ("input_hash", "usage", "feedback_tests", "feedback_from")


def as_released(record: dict[str, Any], *left_out: str) -> dict[str, Any]:
    """The record without what only this project writes."""
    kept = {name: value for name, value in record.items() if name not in (*OURS, *left_out)}
    for name in ("exec_results", "public_exec_results"):
        if name in kept:
            kept[name] = json.loads(json.dumps(kept[name]), object_hook=_plain)
    return kept


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name not in ("verdicts", "infra_error")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with problems, a single-turn file and a multi-turn file, the last two as released."""
    problems = write_problems(tmp_path / "problems.jsonl", 4)
    single = make_plan(problems, tmp_path / "s.jsonl", num_turns=None)
    asyncio.run(run_plan(single))
    write_jsonl(tmp_path / "single.jsonl", map(as_released, read_rows(tmp_path / "s.jsonl")))
    multi = make_plan(tmp_path / "single.jsonl", tmp_path / "m.jsonl", from_scratch=False)
    asyncio.run(run_plan(multi))
    write_jsonl(tmp_path / "multi.jsonl", map(as_released, read_rows(tmp_path / "m.jsonl")))
    return tmp_path


def test_an_output_without_a_manifest_is_refused(files: Path) -> None:
    before = (files / "multi.jsonl").read_bytes()
    with pytest.raises(InputError, match="exists but has no manifest"):
        plan = make_plan(files / "single.jsonl", files / "multi.jsonl", from_scratch=False)
        asyncio.run(run_plan(plan))
    assert (files / "multi.jsonl").read_bytes() == before and not manifest_path(files / "multi.jsonl").exists()


def test_runs_of_apis_are_evaluated(files: Path) -> None:
    for record in read_rows(files / "multi.jsonl"):
        execution = ExecutionService(MultiplyingService())
        both = [
            asyncio.run(evaluate_record(MultiTurn.read(as_released(record, *left_out)), None, execution))
            for left_out in ((), ("raw_responses",))
        ]
        assert both[0]["all_pass_rates"] == both[1]["all_pass_rates"]


def test_cases_are_found_in_runs_of_apis(files: Path) -> None:
    perturb(PerturbationConfig(input_file=files / "single.jsonl", output_file=files / "ptb.jsonl"))
    plan = make_plan(files / "ptb.jsonl", files / "pm.jsonl", from_scratch=False, feedback_tests="perturbed")
    asyncio.run(run_plan(plan))
    for data, result in zip(read_rows(files / "ptb.jsonl"), read_rows(files / "pm.jsonl"), strict=True):
        result["all_pass_rates"] = [[0.0] * 3] * 3
        found = find_cases({**data, "question": "q"}, as_released(result, "raw_responses"))
        assert found == find_cases({**data, "question": "q"}, as_released(result)) and found.turns == 6


def test_cases_without_trajectory_and_turn_are_judged(tmp_path: Path) -> None:
    texts = dict.fromkeys(("question", "previous_code", "feedback", "current_code", "patch"), "x")
    rows = [{"id": id_, **texts, "all_acc": [1.0, 0.0], "public_all_acc": [0.5, 1.0]} for id_ in ("a", "b", "a")]
    write_jsonl(tmp_path / "cases.jsonl", rows)
    cases = read_cases(tmp_path / "cases.jsonl", InvalidLines(skip=False))
    assert [case["judge_seq_id"] for case in cases] == ["a-0", "b-0", "a-1"]
    assert [case["all_acc"] for case in cases] == [[1.0, 0.0]] * 3
