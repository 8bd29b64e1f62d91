"""Files as the original release writes them: without manifests, hashes, verdicts, usage; APIs without raw responses."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "inference"))
from scripted import MultiplyingService, ScriptedEngine, make_plan, opened, read_rows, run_plan, write_problems

from cobalt.commands.invalid_lines import InvalidLines
from cobalt.errors import InputError
from cobalt.evaluation import evaluate
from cobalt.evaluation.hidden import evaluate_record
from cobalt.preproc.perturbed import PerturbationConfig
from cobalt.preproc.perturbed import main as perturb
from cobalt.prompts import COBALT
from cobalt.records import write_jsonl
from cobalt.records.manifest import manifest_path
from cobalt.serving.programs import ExecutionCounter
from studies.hacking.cases import find_cases
from studies.hacking.judging import OWN, JudgeConfig, judge_cases, read_cases

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
    single = make_plan(problems, tmp_path / "s.jsonl", multi_turn=False, num_turns=0)
    asyncio.run(run_plan(single, ScriptedEngine(), MultiplyingService()))
    write_jsonl(tmp_path / "single.jsonl", map(as_released, read_rows(tmp_path / "s.jsonl")))
    multi = make_plan(tmp_path / "single.jsonl", tmp_path / "m.jsonl", first_turn_from_file=True)
    asyncio.run(run_plan(multi, ScriptedEngine(), MultiplyingService()))
    write_jsonl(tmp_path / "multi.jsonl", map(as_released, read_rows(tmp_path / "m.jsonl")))
    return tmp_path


async def _run(files: Path, **changes: Any) -> tuple[ScriptedEngine, list[dict[str, Any]]]:
    engine = ScriptedEngine()
    plan = make_plan(files / "single.jsonl", files / "multi.jsonl", first_turn_from_file=True, **changes)
    return engine, await run_plan(plan, engine, MultiplyingService())


def test_an_output_without_a_manifest_is_refused_unless_it_is_adopted(files: Path) -> None:
    before = (files / "multi.jsonl").read_bytes()
    with pytest.raises(InputError, match="exists but has no manifest"):
        asyncio.run(_run(files))
    assert (files / "multi.jsonl").read_bytes() == before and not manifest_path(files / "multi.jsonl").exists()


@pytest.mark.parametrize("left_out", [(), ("raw_responses",)])
def test_adopted_trajectories_are_not_generated_again(files: Path, left_out: tuple[str, ...]) -> None:
    records = read_rows(files / "multi.jsonl")
    write_jsonl(files / "multi.jsonl", (as_released(record, *left_out) for record in records[:3]))
    engine, written = asyncio.run(_run(files, adopt=True))
    assert len(engine.requests) == 3 * 2, "those of the problem that the file lacks"
    assert [record["id"] for record in written] == [0, 1, 2, 3]
    assert [as_released(record, *left_out) for record in written[:3]] == [
        as_released(r, *left_out) for r in records[:3]
    ]
    assert json.loads(manifest_path(files / "multi.jsonl").read_text())["counts"]["adopted"] == 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"instruction": "other"}, "field 'instruction' is not that of its input row"),
        ({"raw_responses": [["x"] * 3] * 3}, "its first turn is not that of the single-turn file"),
        ({"public_exec_results": [], "raw_responses": []}, "it does not hold 3 samples of 3 turns"),
    ],
)
def test_a_record_that_is_not_of_the_input_cannot_be_adopted(files: Path, change: dict, complaint: str) -> None:
    records = read_rows(files / "multi.jsonl")
    write_jsonl(files / "multi.jsonl", [*records[:1], {**records[1], **change}])
    before = (files / "multi.jsonl").read_bytes()
    with pytest.raises(InputError, match=f"id 1 cannot be adopted: {complaint}"):
        asyncio.run(_run(files, adopt=True))
    assert (files / "multi.jsonl").read_bytes() == before and not manifest_path(files / "multi.jsonl").exists()


def test_conversations_of_another_prompt_set_cannot_be_adopted(files: Path) -> None:
    prompts = replace(COBALT, system="Other.")
    with pytest.raises(InputError, match="id 0 cannot be adopted: mixed prompt sets"):
        asyncio.run(_run(files, adopt=True, prompts=prompts))


def test_runs_of_apis_are_evaluated(files: Path) -> None:
    for record in read_rows(files / "multi.jsonl"):
        both = [
            asyncio.run(evaluate_record(as_released(record, *left_out), None, ExecutionCounter(MultiplyingService())))
            for left_out in ((), ("raw_responses",))
        ]
        assert both[0]["all_pass_rates"] == both[1]["all_pass_rates"]


def test_adopted_evaluations_are_not_run_again(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = MultiplyingService()
    monkeypatch.setattr(evaluate, "open_execution_service", lambda executor, checker: opened(service))
    paths = {"input_file": files / "multi.jsonl", "output_file": files / "out.jsonl"}
    evaluate.main(evaluate.EvaluationConfig(**paths))
    records = read_rows(files / "out.jsonl")
    for path in files.glob("out.jsonl*"):
        path.unlink()
    write_jsonl(files / "out.jsonl", map(as_released, records))
    service.runs.clear()
    evaluate.main(evaluate.EvaluationConfig(**paths, adopt=True))
    assert not service.runs and read_rows(files / "out.jsonl") == records


def test_cases_are_found_in_runs_of_apis(files: Path) -> None:
    perturb(PerturbationConfig(input_file=files / "single.jsonl", output_file=files / "ptb.jsonl"))
    plan = make_plan(
        files / "ptb.jsonl",
        files / "pm.jsonl",
        first_turn_from_file=True,
        tests_field="perturbed_public_test_cases",
        feedback_tests="perturbed",
    )
    asyncio.run(run_plan(plan, ScriptedEngine(), MultiplyingService()))
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


def test_adopted_votes_are_not_asked_for_again(tmp_path: Path) -> None:
    texts = dict.fromkeys(("question", "previous_code", "feedback", "current_code", "patch"), "x")
    write_jsonl(tmp_path / "cases.jsonl", [{"id": id_, **texts} for id_ in ("a", "b")])
    cases = read_cases(tmp_path / "cases.jsonl", InvalidLines(skip=False))
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    votes = {"responses": ["y"], "classification": ["(1) Hard Coding"], "usage": [usage]}
    write_jsonl(tmp_path / "out.jsonl", [{**cases[0], **votes}])
    config = JudgeConfig(input_file=tmp_path / "cases.jsonl", output_file=tmp_path / "out.jsonl", adopt=True)
    engine = ScriptedEngine()
    first, second = asyncio.run(judge_cases(config, engine, cases))
    assert (first["majority"], first["responses"], first["usage"][0]["prompt_tokens"]) == ("(1) Hard Coding", ["y"], 7)
    assert {request[0][1]["content"] for request in engine.requests} == {OWN.messages(cases[1])[1]["content"]}
    assert second["majority"] == "Unknown"
