"""Reading evaluated problems: rates, nulls, ragged arrays."""

import json
from pathlib import Path
from typing import Any

import pytest
from evaluated import evaluated, json_tests
from hypothesis import given
from hypothesis import strategies as st
from scripted import MultiplyingService, ScriptedEngine, make_plan, run_plan, write_problems

from cobalt.bandit.builder import solved_at_once
from cobalt.bandit.evaluated import combined_pass_rate, parse_problem
from cobalt.evaluation.evaluate import evaluate_record
from cobalt.records.rows import MultiTurn
from cobalt.serving.execution import ExecutionService


def row(num_trajectories: int = 3, num_turns: int = 2, **fields: Any) -> dict:
    hidden_NT, public_NT = [[0.25] * num_turns] * num_trajectories, [[0.5] * num_turns] * num_trajectories
    return evaluated("p7", hidden_NT, public_NT, **fields)


def conversation(num_turns: int) -> list[dict[str, str]]:
    return row(1, num_turns)["conversations"][0]


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_rate_is_the_share_of_all_tests_passed(num_hidden: int, num_public: int, data: st.DataObject) -> None:
    hidden = data.draw(st.integers(0, num_hidden))
    public = data.draw(st.integers(0, num_public))
    num_tests = num_hidden + num_public
    rate = combined_pass_rate(hidden / num_hidden, public / num_public, num_tests, num_public)
    assert rate == (hidden + public) / num_tests


def test_the_number_of_public_tests_comes_from_the_data() -> None:
    one_public = parse_problem(row(test_cases=json_tests(5), public_test_cases=json_tests(1)))
    assert one_public.trajectories[0].pass_rates_T[0] == pytest.approx((0.25 * 4 + 0.5) / 5)


def test_trajectories_with_a_null_are_left_out_and_counted() -> None:
    problem = parse_problem(row(all_pass_rates=[[0.5, 1], [0.5, None], [0, 1.0]]))
    assert [trajectory.index for trajectory in problem.trajectories] == [0, 2]
    assert problem.infra_dropped == 1
    assert parse_problem(row(public_pass_rates=[[None, 1, 1], [1, 1, None]])).infra_dropped == 2


async def test_conversations_that_an_infra_failure_ended_are_left_out(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.failing = lambda messages, seed: len(messages) == 4 and seed % 3 == 0
    plan = make_plan(write_problems(tmp_path / "in.jsonl", 5), tmp_path / "out.jsonl", max_infra_rate=1.0)
    dropped = 0
    for record in await run_plan(plan, engine, MultiplyingService()):
        execution = ExecutionService(MultiplyingService())
        problem = parse_problem(await evaluate_record(MultiTurn.read(record), None, execution))
        whole = [i for i, messages in enumerate(record["conversations"]) if len(messages) == 8]
        assert [trajectory.index for trajectory in problem.trajectories] == whole
        dropped += problem.infra_dropped
    assert 0 < dropped < 15


@pytest.mark.parametrize(
    ("fields", "perturbed", "label"),
    [
        ({"feedback_tests": "perturbed"}, False, "'feedback_tests' is 'perturbed' where 'public' is expected"),
        ({"feedback_tests": "public"}, True, "'feedback_tests' is 'public' where 'perturbed' is expected"),
        ({"feedback_from": "other_problem"}, False, "a control run"),
    ],
)
def test_runs_under_other_feedback_are_refused(fields: dict, perturbed: bool, label: str) -> None:
    with pytest.raises(ValueError, match=f"'p7'.*{label}"):
        parse_problem(row(clean_public_pass_rates=[[1.0] * 3] * 2, **fields), perturbed)


def test_perturbed_rows_use_the_clean_public_rates() -> None:
    perturbed = row(public_pass_rates=[[0.0] * 3] * 2, clean_public_pass_rates=[[1.0] * 3] * 2)
    assert parse_problem(perturbed, perturbed=True).trajectories[0].pass_rates_T[0] == pytest.approx(0.625)
    with pytest.raises(ValueError, match=r"'p7'.*clean_public_pass_rates"):
        parse_problem(row(), perturbed=True)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"conversations": [conversation(2)] * 2}, "public_pass_rates"),
        ({"conversations": [conversation(2)[:5]] * 3}, "conversations"),
        ({"conversations": [[*conversation(2)[:5], {"role": "assistant", "content": "x"}]] * 3}, "conversations"),
        ({"conversations": [[*conversation(2)[:5], {"role": "user", "content": None}]] * 3}, "conversations"),
        ({"conversations": [conversation(3)] * 3, "all_pass_rates": [[0.5, None]] * 3}, "conversations"),
        ({"public_pass_rates": [[0.5] * 3]}, "all_pass_rates"),
        ({"public_pass_rates": [[0.5] * 3, [0.5] * 2]}, "public_pass_rates"),
        ({"all_pass_rates": [[0.5, 0.5]] * 16}, "all_pass_rates"),
        ({"all_pass_rates": [[0.5, 0.5], [0.5], [0.5, 0.5]]}, "all_pass_rates"),
        ({"all_pass_rates": [[0.5, 1.5]] * 3}, "all_pass_rates"),
        ({"all_pass_rates": [[0.5, float("nan")]] * 3}, "all_pass_rates"),
        ({"all_pass_rates": [[0.5, True]] * 3}, "all_pass_rates"),
        ({"all_pass_rates": None}, "all_pass_rates"),
        ({"raw_responses": [["x"] * 3]}, "raw_responses"),
        ({"raw_responses": [["x"] * 3, ["x", "x", None]]}, "raw_responses"),
        ({"raw_responses": None}, "raw_responses"),
        ({"usage": [[None] * 3, [None] * 2]}, "usage"),
        ({"usage": 5}, "usage"),
        ({"conversations": []}, "conversations"),
        ({"test_cases": '{"inputs": [], "outputs": []}'}, "test_cases"),
        ({"public_test_cases": json_tests(8)}, "test_cases"),
    ],
)
def test_what_does_not_fit_is_refused_with_id_and_field(fields: dict, field: str) -> None:
    with pytest.raises(ValueError, match=rf"'p7'.*'{field}'"):
        parse_problem(row(**fields))


@pytest.mark.parametrize(("passing", "rate"), [([False, True], 1.0), ([True, True], 0.0)])
def test_public_tests_do_not_decide_dynamic_sampling_where_they_do_not_count(passing: list[bool], rate: float) -> None:
    made = row(1, 1, all_pass_rates=[[rate]], public_pass_rates=[[0.5]], exec_results=[{"passing": passing}])
    assert solved_at_once(parse_problem(made, hidden_only=True)) == (rate == 1)


def test_a_problem_without_a_hidden_test_of_its_own_is_refused_where_these_alone_count() -> None:
    tests = json.loads(json_tests(4))
    repeated = row(test_cases=json.dumps({name: texts * 2 for name, texts in tests.items()}))
    assert parse_problem(repeated).test_cases
    with pytest.raises(ValueError, match="'p7': no hidden test is left to score"):
        parse_problem(repeated, hidden_only=True)


@pytest.mark.parametrize("rate", [1.0, 0.0])
def test_single_turn_results_decide_dynamic_sampling_where_there_are_any(rate: float) -> None:
    def is_solved(**result: Any) -> bool:
        made = row(1, 1, all_pass_rates=[[rate]], public_pass_rates=[[rate]], exec_results=[result])
        return solved_at_once(parse_problem(made))

    assert is_solved(passing=[True, True])
    assert not is_solved(passing=[True, False]) and not is_solved(passing=[])
    assert is_solved(passing=[False], infra_error="lost") == (rate == 1), "a failed one leaves it to the rates"
    with pytest.raises(ValueError, match="'exec_results' holds no result of conversation 1"):
        parse_problem(row(2, exec_results=[{"passing": [True]}]))
    with pytest.raises(ValueError, match="'exec_results' holds no result of conversation 0"):
        parse_problem(row(2, exec_results=[None, {"passing": [True]}]))
