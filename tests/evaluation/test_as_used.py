"""What a user gets of a conversation: the submitted program, at what cost, and conversations that end with success."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scripted import MultiplyingService, ScriptedEngine, make_plan, opened, read_rows, run_plan, write_problems

from cobalt.bandit.evaluated import parse_problem
from cobalt.errors import InputError, SetupError
from cobalt.evaluation.evaluate import EvaluationConfig, main
from cobalt.evaluation.export import export_livecodebench
from cobalt.evaluation.files import MAY_LACK, counts_path, problem_scores, read_evaluation
from cobalt.evaluation.summary import compare, render_markdown, summarise
from cobalt.records import write_jsonl
from cobalt.records.rows import Evaluated
from cobalt.serving.execution import ExecutionService

TURNS = 3


def row(public_NT: list[list[float]], hidden_NT: list[list[float]], tokens_NT: list[list[int]]) -> dict[str, Any]:
    usage_NT = [[{"completion_tokens": tokens} for tokens in tokens_T] for tokens_T in tokens_NT]
    columns = [[list(values) for values in zip(*table, strict=True)] for table in (public_NT, usage_NT)]
    return {
        "id": 1,
        "conversations": [[] for _ in public_NT],
        "public_pass_rates": columns[0],
        "usage": columns[1],
        "all_pass_rates": hidden_NT,
    }


PUBLIC = [[0.5, 1, 0], [0, 0.5, 0.5], [1, 1, 1]]
HIDDEN = [[0, 1, 0], [0, 1, 1], [0.5, 1, 1]]
TOKENS = [[5, 6, 7], [1, 2, 3], [10, 20, 30]]


def test_the_first_program_that_passes_the_public_tests_is_submitted_or_else_the_last() -> None:
    scores = problem_scores(Evaluated.read(row(PUBLIC, HIDDEN, TOKENS)))
    assert scores.submitted_T == (0, 2, 2)  # the third submitted its first program, which is wrong
    assert scores.tokens_T == (5 + 1 + 10, 11 + 3 + 10, 11 + 6 + 10)
    assert (scores.solved_T, scores.kept(1), scores.kept(2)) == ((0, 3, 2), 0, 2)
    summary = summarise([scores])
    assert [rate.estimate and rate.estimate.value for rate in summary.submitted] == [0, 2 / 3, 2 / 3]
    assert summary.tokens == [16 / 3, 8, 9]
    assert [(share.count, share.estimate and share.estimate.value) for share in summary.kept] == [(0, None), (3, 2 / 3)]
    compared = compare([scores], [scores], "itself")
    assert [difference.estimate.value for difference in compared.submitted] == [0, 0, 0]
    first = render_markdown("file", {}, summary, compared).partition("| Turn")[2].splitlines()[0]
    assert first.split(" | ")[1:4] == ["submitted program", "tokens until then", "Pass@1"]


def exported(path: Path, *rows: dict[str, Any]) -> Any:
    write_jsonl(path, rows)
    return json.loads(export_livecodebench(path).read_text())


def with_programs(told: dict[str, Any]) -> dict[str, Any]:
    """Sample s holds the program ``s.t`` at turn t; the last one of the second sample is no program."""
    texts_NT = [[f"```python\n{n}.{t}\n```" for t in range(3)] for n in range(3)]
    texts_NT[1][2] = "I cannot."
    conversations = [[{"role": "assistant", "content": text} for text in texts] for texts in texts_NT]
    return {**told, "conversations": conversations[: len(told["conversations"])], "extraction": "markdown"}


def test_the_export_to_livecodebench_holds_the_submitted_programs(tmp_path: Path) -> None:
    told = with_programs(row(PUBLIC, HIDDEN, TOKENS))
    stopped = {**told, "id": "abc", "conversations": [messages[:2] for messages in told["conversations"]]}
    assert exported(tmp_path / "out.jsonl", told, stopped) == [
        {"question_id": 1, "code_list": ["0.1", "", "2.0"]},
        {"question_id": "abc", "code_list": ["0.1", "1.1", "2.0"]},
    ]
    assert (tmp_path / "out.livecodebench.json").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"source": "taco"}, "problem 2: .* no problem of LiveCodeBench"),
        ({"public_pass_rates": None}, "line 2: field 'public_pass_rates'"),
        ({"functional": "stdin", "starter_code": "class Solution:"}, "problem 2: .* import with --functional call"),
        (with_programs(row(PUBLIC[:1], HIDDEN[:1], TOKENS[:1])), "problem 2: .* as many samples of each problem"),
    ],
)
def test_what_livecodebench_would_judge_otherwise_is_refused_before_a_program_runs(
    change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path, tests = tmp_path / "turns.jsonl", {"hidden_test_cases": {"inputs": ["1"], "outputs": ["1"]}}
    told = {**with_programs(row(PUBLIC, HIDDEN, TOKENS)), **tests, "source": "livecodebench"}
    write_jsonl(path, [told, {**told, **change, "id": 2}])
    with pytest.raises(InputError, match=complaint):
        main(EvaluationConfig(input_file=path, output_file=tmp_path / "out.jsonl", export="livecodebench"))
    assert not (tmp_path / "out.jsonl").exists()


def test_infrastructure_failures_are_not_exported(tmp_path: Path) -> None:
    lost = {"all_pass_rates": [[0, 1, 0], [0, None, None], [1, 1, 1]]}
    with pytest.raises(SetupError, match="run the same command again"):
        exported(tmp_path / "out.jsonl", {**with_programs(row(PUBLIC, HIDDEN, TOKENS)), **lost})


def test_files_that_do_not_tell_have_no_submitted_program() -> None:
    told = row(PUBLIC, HIDDEN, TOKENS)
    del told["usage"]
    scores = problem_scores(Evaluated.read(told))
    assert scores.submitted_T is not None and scores.tokens_T is None
    nothing = {"prompt_tokens": 0, "completion_tokens": 0, "finish_reason": "stop", "cost": None}
    uncounted = {**told, "usage": [[nothing] * 3] * TURNS}
    assert problem_scores(Evaluated.read(uncounted)).tokens_T is None
    del told["public_pass_rates"]
    scores = problem_scores(Evaluated.read(told))
    summary = summarise([scores])
    assert scores.submitted_T is None and summary.submitted == [] == summary.tokens
    assert "| 0 | – | – |" in render_markdown("file", {}, summary)


def test_a_conversation_that_stops_at_success_is_the_other_one_up_to_there(tmp_path: Path, monkeypatch) -> None:
    """Its submitted programs are the same, and count at every later turn. It resumes, and gives contexts."""
    service = MultiplyingService()
    monkeypatch.setattr("cobalt.evaluation.evaluate.service_of", lambda config: opened(ExecutionService(service)))
    source = write_problems(tmp_path / "problems.jsonl", 6)

    def run(name: str, **flags: Any) -> tuple[list[dict[str, Any]], ScriptedEngine, Path]:
        """Evaluated rows of a run."""
        plan = make_plan(source, tmp_path / name, num_completions=5, num_turns=TURNS - 1, **flags)
        engine, output = ScriptedEngine(), tmp_path / f"{name}.evaluated"
        asyncio.run(run_plan(plan, engine, service))
        main(EvaluationConfig(input_file=plan.output_file, output_file=output))
        return read_rows(output), engine, output

    rows, engine, output = run("on")
    stopped, fewer, stopped_output = run("stop", stop_at_success=True)
    assert 0 < len(fewer.requests) < len(engine.requests) == 6 * 5 * TURNS
    asked = 0
    for whole, part in zip(rows, stopped, strict=True):
        for sample, messages in enumerate(part["conversations"]):
            turns = (len(messages) - 2) // 2
            asked += turns
            assert messages == whole["conversations"][sample][: len(messages)]
            public_T = [rates_N[sample] for rates_N in part["public_pass_rates"]]
            assert turns == next((turn + 1 for turn in range(TURNS) if public_T[turn] == 1), TURNS)
            assert set(part["all_pass_rates"][sample][turns - 1 :]) == {whole["all_pass_rates"][sample][turns - 1]}
            assert [usage_N[sample] is None for usage_N in part["usage"]] == [turn >= turns for turn in range(TURNS)]
    assert asked == len(fewer.requests)
    ours, theirs = (read_evaluation(path).problems for path in (stopped_output, output))
    for one, other in zip(ours, theirs, strict=True):
        assert (one.submitted_T, one.tokens_T) == (other.submitted_T, other.tokens_T)
        assert one.submitted_T == one.solved_T
    stored = read_evaluation(counts_path(output)).problems
    assert [[getattr(problem, f"{name}_T") for name in MAY_LACK] for problem in stored] == [
        [getattr(problem, f"{name}_T") for name in MAY_LACK] for problem in theirs
    ]

    again, engine, _ = run("stop", stop_at_success=True)
    assert again == stopped and engine.requests == []
    for record in stopped:
        for trajectory in parse_problem(record).trajectories:
            assert len(trajectory.conversation) == 2 + 2 * len(trajectory.pass_rates_T)
    short = next(record for record in stopped if min(map(len, record["conversations"])) < 2 + 2 * TURNS)
    broken = {key: value for key, value in short.items() if key != "stop_at_success"}
    with pytest.raises(ValueError, match="messages, but 3 turns in"):
        parse_problem(broken)
