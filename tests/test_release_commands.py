"""The commands of the original release's README as they stand there, one after the other, on files of its formats.

Models and programs are the scripted ones. What each command writes is brought to the release's form before the next:
without manifests, hashes, verdicts and usage, and without the raw responses of APIs.
"""

import asyncio
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import exit_code
from quickly import made_quickly
from scripted import MultiplyingService, ScriptedEngine, opened, problem_rows, read_rows
from test_livecodebench import lcb_row
from tokenizers_for_tests import make_tokenizer

from cobalt.evaluation import evaluate
from cobalt.hacking import judging
from cobalt.hacking.cases import find_cases
from cobalt.inference import engines
from cobalt.inference import run as inference
from cobalt.records import write_jsonl
from cobalt.records.manifest import manifest_path
from cobalt.records.rows import MultiTurn
from cobalt.serving.execution import ExecutionService

ROOT = Path(__file__).resolve().parents[1]
PROBLEMS = 2
KEYS = "--openai_api_key K --aws_access_key_id K --aws_secret_access_key K --aws_region_name us-west-2"
OPEN = "--max_tokens 6144"
API = f"--model_name bedrock/m {KEYS}"
COMMANDS = {
    "data/lcb_v6.jsonl": "preproc/preproc_lcb_test6.py",
    "ptb.jsonl": "preproc/run_perturbation.py --input_file problems.jsonl --output_file ptb.jsonl",
    "single.jsonl": f"run_single_turn_vllm.py --input_file ptb.jsonl --output_file single.jsonl {OPEN}",
    "multi.jsonl": f"run_multi_turn_vllm.py --input_file single.jsonl --output_file multi.jsonl {OPEN} "
    "--enable_thinking",
    "api_single.jsonl": f"run_single_turn_litellm.py --input_file ptb.jsonl --output_file api_single.jsonl {API}",
    "api_multi.jsonl": f"run_multi_turn_litellm.py --input_file api_single.jsonl --output_file api_multi.jsonl {API} "
    "--feedback_tests perturbed",
    "eval.jsonl": "eval_multi_turn.py --input_file multi.jsonl --output_file eval.jsonl",
    "api_eval.jsonl": "eval_multi_turn.py --input_file api_multi.jsonl --output_file api_eval.jsonl",
    "contexts.jsonl": "preproc/process_multi_turn_taco.py --input_file eval.jsonl --output_file contexts.jsonl "
    "--model_name tokenizer",
    "val.jsonl": "preproc/process_multi_turn_taco.py --input_file eval.jsonl --output_file val.jsonl "
    "--model_name tokenizer --is_test",
    "cases.jsonl": "extract_turn_level_errors.py --data_file ptb.jsonl --input_file api_eval.jsonl "
    "--output_file cases.jsonl",
    "judged.jsonl": "run_llm_judge.py --model_name gpt-5-2025-08-07 --input_file released_cases.jsonl "
    "--output_file judged.jsonl --openai_api_key K",
}
"""By the file that is looked at. The API's run of the perturbed problems says so, which is this project's flag."""
ONE_EACH = ("ptb.jsonl", "single.jsonl", "multi.jsonl", "api_single.jsonl", "api_multi.jsonl", "eval.jsonl")
CASE = dict.fromkeys(("question", "previous_code", "feedback", "current_code", "patch"), "x")
RELEASED_CASES = [{"id": id_, **CASE, "all_acc": [1.0, 0.0], "public_all_acc": [0.5, 1.0]} for id_ in ("a", "b", "a")]


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


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, int]]]:
    """The folder in which the commands ran, and the exit code of each."""
    folder = tmp_path_factory.mktemp("release")
    write_jsonl(folder / "problems.jsonl", [{**row, "question": "Multiply."} for row in problem_rows(PROBLEMS)])
    write_jsonl(folder / "test6.jsonl", [lcb_row("q")])
    write_jsonl(folder / "released_cases.jsonl", RELEASED_CASES)
    make_tokenizer().save_pretrained(folder / "tokenizer")
    service = MultiplyingService()
    with made_quickly(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for module in (inference, evaluate):
            patch.setattr(module, "service_of", lambda _: opened(ExecutionService(service)))
        patch.setattr(engines, "open_openai_engine", lambda *_: opened(ScriptedEngine()))
        for module in (engines, judging):
            patch.setattr(module, "open_litellm_engine", lambda *_: opened(ScriptedEngine()))
        yield folder, {name: _run(folder / name, command) for name, command in COMMANDS.items()}


def _run(output: Path, command: str) -> int:
    script, *flags = shlex.split(command)
    if code := exit_code(ROOT / script, script, *flags):
        return code
    if output.exists():
        left_out = ("raw_responses",) if output.name.startswith("api_") else ()
        ours = read_rows(output)
        write_jsonl(Path(f"{output}.ours"), ours)
        write_jsonl(output, [as_released(record, *left_out) for record in ours])
        manifest_path(output).unlink()
    return 0


@pytest.mark.parametrize("name", COMMANDS)
def test_the_releases_command_runs(name: str, codes: tuple[Path, dict[str, int]]) -> None:
    assert codes[1][name] == 0
    if name in ONE_EACH:
        assert [row["id"] for row in read_rows(codes[0] / name)] == list(range(PROBLEMS))


def test_contexts_votes_and_problems_are_made_of_them(codes: tuple[Path, dict[str, int]]) -> None:
    folder = codes[0]
    assert read_rows(folder / "contexts.jsonl") and read_rows(folder / "val.jsonl")
    judged = read_rows(folder / "judged.jsonl")
    assert [case["judge_seq_id"] for case in judged] == ["a-0", "b-0", "a-1"], "cases without trajectory and turn"
    assert [case["all_acc"] for case in judged] == [[1.0, 0.0]] * 3
    assert len(read_rows(folder / "data/lcb_v6.jsonl")) == 1


def test_runs_of_apis_give_the_rates_and_the_cases_of_other_runs(codes: tuple[Path, dict[str, int]]) -> None:
    """They have no raw responses."""
    names = ("ptb.jsonl", "api_multi.jsonl.ours", "api_eval.jsonl")
    for data, ours, released in zip(*(read_rows(codes[0] / name) for name in names), strict=True):
        execution = ExecutionService(MultiplyingService())
        whole = asyncio.run(evaluate.evaluate_record(MultiTurn.read(ours), None, execution))
        assert whole["all_pass_rates"] == released["all_pass_rates"]
        found = find_cases(data, as_released(whole))
        assert found == find_cases(data, released) and found.turns > 0
