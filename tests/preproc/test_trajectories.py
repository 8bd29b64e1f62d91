"""Saved rollouts in each framework's layout: run again, evaluated, cut into contexts; wrong ones are named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import SharedExecutor, manifest_of, one_complaint, read_rows, run_cobalt, write_rows

from cobalt.bandit.evaluated import parse_problem
from cobalt.evaluation.evaluate import EvaluationConfig
from cobalt.evaluation.evaluate import main as evaluate
from cobalt.preproc.trajectories import Statements
from cobalt.prompts import ALL_PASSED, feedback_of_message, problem_instruction
from cobalt.records import TestCases

QUESTION = "Read a number.\nPrint three  times this number."
RIGHT = "```python\nprint(3 * int(input()))\n```"
WRONG = "```python\nprint(2 * int(input()))\n```"
NEAR = "```python\nprint(min(6, 3 * int(input())))\n```"
THEIR_FEEDBACK = "Their own words about the failed test."
Chat = list[dict[str, Any]]


def problem(id_: Any = "triple", question: str = QUESTION) -> dict[str, Any]:
    tests = TestCases(("1", "2", "5"), ("3", "6", "15"))
    row = {"id": id_, "difficulty": "EASY", "question": question, "instruction": problem_instruction(question)}
    parts = {"test_cases": tests, "public_test_cases": tests.select([0, 1]), "hidden_test_cases": tests.select([2])}
    return {**row, **{name: part.to_json() for name, part in parts.items()}}


def chat(*answers: Any, question: str = QUESTION) -> Chat:
    messages = [{"role": "system", "content": "Their system message."}]
    messages += [{"role": "user", "content": f"Solve this.\n\nProblem: {question.replace('  ', ' ')}\n\nUse Python."}]
    for answer in answers:
        said = answer if isinstance(answer, dict) else {"content": answer}
        messages += [{"role": "assistant", **said}, {"role": "user", "content": THEIR_FEEDBACK}]
    return messages


def of_chat(messages: Chat) -> dict:
    return {"messages": messages}


def of_results(messages: Chat) -> dict:
    row = {"example_id": 0, "prompt": messages[:2], "completion": messages[2:], "reward": 0.5, "task": "default"}
    return {**row, "is_completed": True, "metrics": {}, "timing": {"total_ms": 3.0}}


def trace_of(messages: Chat, **fields: Any) -> dict:
    nodes = [
        {"message": message, "sampled": message["role"] == "assistant", **({"parent": place - 1} if place else {})}
        for place, message in enumerate(messages)
    ]
    return {
        "version": 1,
        "task": {"type": "Task", "data": {"idx": 3}},
        "agent": {"name": "solver"},
        "nodes": nodes,
        **fields,
    }


def of_episode(messages: Chat) -> dict:
    judge = trace_of(chat("good", question=QUESTION), agent={"name": "judge", "trainable": False})
    task = {"type": "Task", "data": {"idx": 3, "name": "triple"}}
    return {"id": "e", "env": {"id": "own"}, "task": task, "ok": True, "traces": [trace_of(messages), judge]}


def of_rllm(messages: Chat) -> dict:
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    steps = [{"chat_completions": messages[: place + 1], "reward": 0.0} for place in places]
    return {"id": "t:0", "task": {"id": "triple"}, "trajectories": [{"name": "solver", "steps": steps}]}


LAYOUTS: dict[str, tuple[str, Callable[[Chat], dict]]] = {
    "openai-messages": ("openai-messages", of_chat),
    "verifiers-results": ("verifiers", of_results),
    "verifiers-trace": ("verifiers", trace_of),
    "prime-rl": ("prime-rl", of_episode),
    "rllm": ("rllm", of_rllm),
}


def run_import(folder: Path, layout: str, *files: object, problems: list[dict] | None = None) -> tuple[int, list[dict]]:
    source = write_rows(folder / "problems.jsonl", [problem()] if problems is None else problems)
    output = folder / "out.jsonl"
    flags = ("--from", layout, "--problems", source, "--output", output, "--executor", "local")
    code = run_cobalt("data", "trajectories", *files, *flags)
    return code, read_rows(output) if code == 0 else []


def counts_of(folder: Path) -> dict[str, Any]:
    return manifest_of(folder / "out.jsonl")["counts"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layouts_answers_run_again_and_get_our_feedback(tmp_path: Path, sandbox: SharedExecutor, name: str) -> None:
    layout, made = LAYOUTS[name]
    rows = list(map(made, (chat(WRONG, NEAR, RIGHT), chat(RIGHT), chat(WRONG))))
    if name == "rllm":  # a file for each episode
        source = tmp_path / "run"
        for place, row in enumerate(rows):
            path = source / "episodes" / f"episode_{place:06d}_triple.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row, indent=2))
    elif name == "openai-messages":
        pq.write_table(pa.Table.from_pylist(rows), source := tmp_path / "in.parquet")
    else:
        source = write_rows(tmp_path / "in.jsonl", rows)
    code, (record,) = run_import(tmp_path, layout, source)
    assert code == 0 and counts_of(tmp_path)["kept"] == 3
    assert record["public_pass_rates"] == [[0, 1, 0], [1, 1, 0], [1, 1, 0]], "passing ends it"
    assert record["raw_responses"] == [[WRONG, RIGHT, WRONG], [NEAR, "", ""], ["", "", ""]]
    assert counts_of(tmp_path)["answers left out"] == 1
    for messages, answers in zip(record["conversations"], ([WRONG, NEAR], [RIGHT], [WRONG]), strict=True):
        assert messages[1]["content"] == problem()["instruction"]
        assert [message["content"] for message in messages if message["role"] == "assistant"] == answers
        passed = feedback_of_message(messages[-1]["content"]) == ALL_PASSED
        assert passed == (answers[-1] != WRONG) and THEIR_FEEDBACK not in str(messages)


def test_the_next_stages_take_the_output_as_their_own(tmp_path: Path) -> None:
    rows = [of_chat(chat(WRONG, NEAR)), of_chat(chat(RIGHT)), of_chat(chat(WRONG))]
    assert run_import(tmp_path, "openai-messages", write_rows(tmp_path / "in.jsonl", rows))[0] == 0
    evaluated = tmp_path / "evaluated.jsonl"
    evaluate(EvaluationConfig(input_file=tmp_path / "out.jsonl", output_file=evaluated, executor="local"))
    (row,) = read_rows(evaluated)
    assert row["all_pass_rates"] == [[0, 0], [1, 1], [0, 0]], "the last program counts at later turns"
    assert [one.pass_rates_T for one in parse_problem(row).trajectories] == [(0, pytest.approx(2 / 3)), (1,), (0,)]


def test_what_cannot_be_used_is_counted_by_its_reason(tmp_path: Path, sandbox: SharedExecutor) -> None:
    call = {"content": None, "tool_calls": [{"id": "1", "name": "python", "arguments": "{}"}]}
    branched = trace_of(chat(RIGHT, RIGHT))
    branched["nodes"][4]["parent"] = 1
    traces = [
        trace_of(chat(RIGHT), stop_condition="error"),
        branched,
        trace_of(chat(call)),
        trace_of(chat()),
        trace_of(chat(RIGHT, question=f"{QUESTION} Then add one.")),
        trace_of(chat(RIGHT), agent={"trainable": False}),
        trace_of(chat({"content": RIGHT, "reasoning_content": f"Perhaps {WRONG}"})),
    ]
    episode = {"id": "e", "task": {"data": {}}, "traces": traces}
    code, (record,) = run_import(tmp_path, "prime-rl", write_rows(tmp_path / "traces.jsonl", [episode]))
    counts = {name: count for name, count in counts_of(tmp_path).items() if name.startswith(("dropped", "kept"))}
    assert code == 0 and len(counts) == 7 and set(counts.values()) == {1}
    assert record["raw_responses"] == [[f"<think>Perhaps {WRONG}</think>{RIGHT}"]]
    assert record["public_pass_rates"] == [[1]], "the program is that of the answer"


def test_a_row_can_name_its_problem(tmp_path: Path, sandbox: SharedExecutor) -> None:
    rows = [{**of_chat(chat(RIGHT, question="Hidden words.")), "info": {"id": id_}} for id_ in (1, "1", 2)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    code, records = run_import(tmp_path, "openai-messages", source, "--id_field", "info.id", problems=[problem(1)])
    assert code == 0 and [len(record["conversations"]) for record in records] == [1]
    assert counts_of(tmp_path)["dropped: of none of the problems"] == 2, "1 and '1' are different ids"


def test_the_longest_statement_in_a_prompt_is_the_problem() -> None:
    statements = Statements({"short": "times this number.", "triple": QUESTION, "other": "Print a number."})
    assert statements.find(chat()[1]["content"]) == "triple"
    assert statements.find("times this number. Again.") is None


def test_a_rerun_keeps_what_is_there_and_redoes_what_grew(tmp_path: Path, sandbox: SharedExecutor) -> None:
    problems = [problem(), problem("again", "Say it three times.")]
    rows = [of_chat(chat(WRONG)), of_chat(chat(RIGHT, question="Say it three times."))]
    source = write_rows(tmp_path / "in.jsonl", rows)
    _, first = run_import(tmp_path, "openai-messages", source, problems=problems)
    assert counts_of(tmp_path)["programs_run"] == 2
    write_rows(source, [*rows, of_chat(chat(RIGHT))])
    _, grown = run_import(tmp_path, "openai-messages", source, problems=problems)
    assert grown[1] == first[1] and len(grown[0]["conversations"]) == 2
    assert counts_of(tmp_path)["programs_run"] == 2, "those of the problem that grew"


WRONG_ROWS: dict[str, tuple[str, Any, str]] = {
    "another layout": ("verifiers", of_chat(chat(RIGHT)), "missing field 'completion', 'traces' or 'nodes'"),
    "no messages": ("openai-messages", {"prompt": "x"}, "missing field 'messages'"),
    "no trajectories": ("rllm", trace_of(chat(RIGHT)), "missing field 'trajectories'"),
    "no list": ("openai-messages", {"messages": 3}, "field 'messages' must be a list of objects"),
    "no role": ("openai-messages", {"messages": [{"content": "x"}]}, "a message has no 'role'"),
    "no text": ("openai-messages", {"messages": [{"role": "user", "content": 3}]}, "a text or a list of parts"),
    "nobody's": ("verifiers", of_results(chat(RIGHT, question="Other.")), "no trajectory is left of 1: 1 x dropped"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_wrong_row_is_named(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    layout, row, complaint = WRONG_ROWS[name]
    assert run_import(tmp_path, layout, write_rows(tmp_path / "in.jsonl", [row]))[0] == 2
    assert complaint in (line := one_complaint(capsys)) and "in.jsonl" in line
    assert not (tmp_path / "out.jsonl").exists() and not (tmp_path / "out.jsonl.manifest.json").exists()


def test_an_episode_that_cannot_be_read_is_named_or_skipped(
    tmp_path: Path, sandbox: SharedExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    (episodes := tmp_path / "episodes").mkdir()
    write_rows(episodes / "episode_1.json", [of_rllm(chat(RIGHT))])
    (episodes / "episode_2.json").write_text("[" * 100_000)
    assert run_import(tmp_path, "rllm", episodes)[0] == 2
    assert "episode_2.json: line 1: not valid JSON" in one_complaint(capsys)
    code, (record,) = run_import(tmp_path, "rllm", episodes, "--skip_invalid")
    assert code == 0 and len(record["conversations"]) == counts_of(tmp_path)["skipped invalid"] == 1


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path, sandbox: SharedExecutor) -> None:
    (episodes := tmp_path / "episodes").mkdir()
    (tmp_path / "link").symlink_to(episodes)
    file = write_rows(episodes / "episode_1.json", [of_rllm(chat(RIGHT))])
    code, (record,) = run_import(tmp_path, "rllm", file, episodes, tmp_path / "link", file)
    assert code == 0 and len(record["conversations"]) == 1


def test_wrong_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.Table.from_pylist([of_chat(chat(RIGHT))]), tmp_path / "parquet.jsonl")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    complaints = {"parquet.jsonl": "a parquet file", "empty.jsonl": "holds no records", "missing.jsonl": "no such file"}
    for file, complaint in {**complaints, "folder": "no input"}.items():
        assert run_import(tmp_path, "openai-messages", tmp_path / file)[0] == 2
        assert complaint in (line := one_complaint(capsys)) and file in line
