"""The study of wordings on a real model: what is counted, and what the model is shown."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from cobalt.prompts import COBALT
from cobalt.records.rows import Evaluated, Problem, read_rows
from research.real.counts import COUNTS, Answer, counts_of, joined, rows, useful, with_ids_once
from research.real.wordings import Batches, run_plan, shown_call

RIGHT, WRONG = "```python\ndef twice(n):\n    return 2 * n\n```", "```python\ndef twice(n):\n    return 2\n```"
NONE = "The program passes, so nothing has to change."


def by_turn(*answers: Answer) -> list[dict[str, int]]:
    return [dict(zip(COUNTS, row, strict=True)) for row in counts_of([list(answers)], len(answers))]


def test_a_missing_program_after_public_success_is_counted_and_the_submitted_one_stays():
    first, second = by_turn(Answer(RIGHT, 9, hidden=1, public=1), Answer(NONE, 5, hidden=0, public=0))
    assert first["right"] == first["submitted"] == 1 and first["passed"] == 0
    assert (second["passed"], second["passed_no_program"], second["passed_right"], second["kept"]) == (1, 1, 1, 0)
    assert (second["right"], second["submitted"], second["tokens"]) == (0, 1, 5)


def test_repairs_and_repeats_count_only_after_a_failed_public_test():
    wrong = Answer(WRONG, 9, hidden=0, public=0.5)
    _, again, fixed = by_turn(wrong, wrong, Answer(RIGHT, 9, hidden=1, public=1))
    assert (again["failed"], again["repaired"], again["failed_repeated"]) == (1, 0, 1)
    assert (fixed["failed"], fixed["repaired"], fixed["failed_repeated"], fixed["submitted"]) == (1, 1, 0, 1)


def test_arguments_are_shown_as_a_call_in_python():
    assert shown_call("f", '[1, null]\n"a\\nb"\ntrue') == "f([1, None], 'a\\nb', True)"


def test_a_stage_goes_on_from_the_first_answers_of_another_and_shows_calls(tmp_path):
    tests = {"inputs": ["1", "2", "3"], "outputs": ["2", "4", "6"], "fn_name": "twice"}
    public, hidden = (
        {**tests, "inputs": tests["inputs"][s], "outputs": tests["outputs"][s]} for s in (slice(2), slice(2, 3))
    )
    names = ("test_cases", "public_test_cases", "hidden_test_cases")
    row = {"id": "p-43", "question": "Double it.", "instruction": "", "starter_code": "def twice(n):"}
    row |= {name: json.dumps(value) for name, value in zip(names, (tests, public, hidden), strict=True)}
    (tmp_path / "problems.jsonl").write_text(json.dumps(row))
    (tmp_path / "own.json").write_text(json.dumps(asdict(COBALT)))
    stage = {"prompts": "own.json", "samples": 1, "turns": 2, "problems": "dev"}
    stages = [{"name": "plain", **stage}, {"name": "calls", "first": "plain", "calls": True, **stage}]
    (tmp_path / "plan.json").write_text(json.dumps(stages))
    asked = []

    def generate(conversations):
        asked.extend(conversations)
        return [Answer(WRONG if len(messages) == 2 else RIGHT, 7) for messages in conversations]

    problems = list(read_rows(tmp_path / "problems.jsonl", Problem))
    batches = Batches(generate, ThreadPoolExecutor(1))
    asyncio.run(run_plan(batches, tmp_path / "plan.json", problems, tmp_path, {"model": "fake"}))
    assert [len(messages) for messages in asked] == [2, 4, 4]
    assert "Input:\n2\n" in asked[1][-1]["content"] and "Input:\ntwice(2)\n" in asked[2][-1]["content"]
    record = json.loads((tmp_path / "calls.counts.json").read_text())
    assert record["counts"][0][1][COUNTS.index("repaired")] == 1
    (evaluated,) = read_rows(tmp_path / "calls.jsonl", Evaluated)
    assert evaluated.all_pass_rates == [[0.0, 1.0]] and len(evaluated.conversations[0]) == 6


def test_parts_of_a_run_are_joined_and_each_list_of_ids_is_stored_once():
    def run(model: str, ids: list[str], right: int) -> dict:
        counts = [[[4, right, *([0] * (len(COUNTS) - 2))]] for _ in ids]
        return {"model": model, "stage": {"name": "again", "turns": 1}, "columns": list(COUNTS), "infra_errors": 0,
                "seconds": 1, "ids": ids, "counts": counts}  # fmt: skip

    stored = with_ids_once(joined([run("a", ["y"], 1), run("b", ["x", "y"], 4), run("a", ["x"], 3)]))
    a, b = stored["runs"]
    assert stored["ids"] == [["x", "y"]]
    assert a["counts"] == [[[4, 3, 0, 0, 0, 0]], [[4, 1, 0, 0, 0, 0]]]
    assert useful(a, ["x", "y"]) == ["x", "y"] and useful(b, ["x", "y"]) == []
    (of_a, of_b) = rows(stored["runs"])
    assert (of_a[3].split()[0], of_b[3].split()[0]) == ("50.0", "100.0")
    assert of_a[-2].split()[0] == "50.0" and of_b[-2] == ""  # (1 * 3/3 + 3 * 1/3) of 4 wrong answers; no wrong ones
