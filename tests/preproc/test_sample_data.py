"""Real rows (CodeContests, TACO's raw format) and MiniCode rows to parquet, with the real sandbox.

The problems are not in the repository: ``COBALT_SAMPLE_DATA`` names the directory of ``codecontests_sample.jsonl``.
Their solutions are our own, under ``tests/data/codecontests``. No model takes part: a trajectory replays wrong programs
(some of which pass the 20 tests that are kept) and then the accepted one.
"""

import asyncio
import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import read_rows, run_command, write_rows
from tokenizers_for_tests import make_tokenizer

from cobalt.prompts import feedback_message, feedback_to_policy, first_messages, with_feedback
from cobalt.records import TestCases
from cobalt.sandbox.executor import Executor

PROGRAMS = Path(__file__).parents[1] / "data" / "codecontests"
PROBLEMS = Path(__file__).parents[2] / "assets" / "minicode" / "problems.jsonl"
NUM_TURNS = 3


@pytest.fixture(scope="module")
def raw_rows() -> list[dict]:
    directory = os.environ.get("COBALT_SAMPLE_DATA")
    if not directory:
        pytest.skip("COBALT_SAMPLE_DATA is not set: it names the directory that holds codecontests_sample.jsonl")
    rows = read_rows(Path(directory, "codecontests_sample.jsonl"))
    return [{**row, "solutions": json.dumps(solutions(row["id"]))} for row in rows]


def programs(problem: str) -> tuple[list[str], str]:
    """Wrong programs and the accepted one."""
    folder = PROGRAMS / problem
    return [path.read_text() for path in sorted(folder.glob("wrong*.py"))], (folder / "accepted.py").read_text()


def solutions(problem: str) -> list[str]:
    """The accepted program between wrong ones: verification has to find it."""
    wrong, accepted = programs(problem)
    return [*wrong[:1], accepted, *wrong[1:]]


def attempts(problem: str) -> list[str]:
    """One program per turn, the accepted one last."""
    wrong, accepted = programs(problem)
    return [*(wrong * NUM_TURNS)[: NUM_TURNS - 1], accepted]


async def replay(problems: list[dict]) -> list[dict]:
    """Evaluated problems with one trajectory each."""
    async with Executor() as executor:
        return [await replay_one(executor, problem) for problem in problems]


async def replay_one(executor: Executor, problem: dict) -> dict:
    messages, public_T, hidden_T = first_messages(problem["instruction"]), [], []
    for code in attempts(problem["id"]):
        public = await executor.run(code, problem["public_test_cases"])
        hidden = await executor.run(code, problem["hidden_test_cases"])
        messages.append({"role": "assistant", "content": f"```python\n{code}\n```"})
        tests = TestCases.parse(problem["public_test_cases"])
        messages.append(feedback_message(feedback_to_policy(with_feedback(public, tests))))
        public_T.append(public.pass_rate)
        hidden_T.append(hidden.pass_rate)
    rates = {"public_pass_rates": [[rate] for rate in public_T], "all_pass_rates": [hidden_T]}
    return {**problem, "conversations": [messages], **rates}


def prepare(directory: Path, rows: list[dict], *flags: object) -> Path:
    source, output = write_rows(directory / "raw.jsonl", rows), directory / "problems.jsonl"
    arguments = ("--input_file", source, "--output_file", output, "--executor", "local", *flags)
    assert run_command("preproc_taco", *arguments) == 0
    return output


def test_codecontests_to_multi_turn_parquet(tmp_path: Path, raw_rows: list[dict]) -> None:
    problems = read_rows(prepare(tmp_path, raw_rows, "--dev_size", 0))
    images = [row["id"] for row in raw_rows if "image" in row["question"]]
    assert [problem["id"] for problem in problems] == [row["id"] for row in raw_rows if row["id"] not in images]
    for problem in problems:
        public, hidden = (TestCases.parse(problem[f"{name}_test_cases"]) for name in ("public", "hidden"))
        assert (len(public), len(hidden)) == (4, 16)

    replayed = asyncio.run(replay(problems))
    evaluated = write_rows(tmp_path / "evaluated.jsonl", replayed)
    make_tokenizer().save_pretrained(tmp_path / "model")
    for name, flags in (("train", []), ("dev", ["--is_test"])):
        output = tmp_path / f"bandit_{name}.jsonl"
        arguments = ("--input_file", evaluated, "--output_file", output, "--model_name", tmp_path / "model", *flags)
        assert run_command("process_multi_turn_taco", *arguments) == 0
    records = read_rows(tmp_path / "bandit_train.jsonl")
    failed_at_first = {
        row["id"] for row in replayed if row["public_pass_rates"][0][0] + row["all_pass_rates"][0][0] < 2
    }
    assert {record["example_id"] for record in records} == failed_at_first
    assert {record["turn"] for record in records} == {0, 1, 2, 3}
    assert max(record["prev_best_pass_rate"] for record in records if record["turn"] == 3) == 1

    files = ("--train_data_file", tmp_path / "bandit_train.jsonl", "--val_data_file", tmp_path / "bandit_dev.jsonl")
    assert run_command("verl_preproc_multi_turn", "--local_dir", tmp_path / "verl", *files) == 0
    assert pq.read_metadata(tmp_path / "verl" / "train.parquet").num_rows == len(records)


def test_minicode_to_single_turn_parquet(tmp_path: Path) -> None:
    shipped = read_rows(PROBLEMS)
    rows = [*shipped[:10], *[row for row in shipped if row["split"] == "dev"][:3]]
    prepare(tmp_path, rows, "--license", "apache-2.0")
    train, dev = tmp_path / "problems_train.jsonl", tmp_path / "problems_dev.jsonl"
    assert [row["id"] for row in rows] == [row["id"] for row in read_rows(train) + read_rows(dev)]
    files = ("--train_data_file", train, "--val_data_file", dev)
    assert run_command("verl_preproc_single_turn", "--local_dir", tmp_path / "verl", *files) == 0
    assert pq.read_metadata(tmp_path / "verl" / "train.parquet").num_rows == 10
    assert pq.read_metadata(tmp_path / "verl" / "test.parquet").num_rows == 3
    assert "license: apache-2.0" in (tmp_path / "verl" / "train.parquet.card.md").read_text()
