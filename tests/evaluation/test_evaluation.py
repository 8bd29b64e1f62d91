"""Hidden-test evaluation: rates, exclusions, retries, summary numbers, comparison, report files."""

import asyncio
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import MultiplyingService, ScriptedEngine, make_plan, opened, read_rows, run_plan, write_problems

from cobalt.errors import InputError, SetupError
from cobalt.evaluation.evaluate import EvaluationConfig, evaluate_record, main
from cobalt.evaluation.files import (
    NOT_RECORDED,
    ProblemScores,
    counts_path,
    problem_scores,
    read_evaluation,
    read_evaluations,
    source_of,
    verdict_rule,
)
from cobalt.evaluation.summary import Difference, compare, render_markdown, summarise, to_json
from cobalt.extraction import extract_code
from cobalt.figures import Curve, pass1_picture
from cobalt.records import TestCases, write_jsonl
from cobalt.records.rows import Evaluated
from cobalt.serving.execution import ExecutionService
from cobalt.statistics import Estimate

Row = dict[str, Any]


def program(factor: int | None) -> str:
    return "no program" if factor is None else f"```python\nk={factor}\n```"


def scores(
    id_: Any, factors_NT: list[list[int | None]], rates_NT: list[list[float | None]], **fields: Any
) -> ProblemScores:
    """Those of an evaluated record whose samples hold the programs ``k=factor``."""
    conversations = [
        [{"role": role, "content": program(f)} for f in factors for role in ("assistant", "user")]
        for factors in factors_NT
    ]
    row = {"id": id_, "conversations": conversations, "all_pass_rates": rates_NT, **fields}
    return problem_scores(Evaluated.read(row))


def values(estimates: Iterable[Estimate | None]) -> list[float | None]:
    return [None if estimate is None else estimate.value for estimate in estimates]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> MultiplyingService:
    return serve(monkeypatch)


def serve(monkeypatch: pytest.MonkeyPatch) -> MultiplyingService:
    service = MultiplyingService()
    monkeypatch.setattr("cobalt.evaluation.evaluate.service_of", lambda config: opened(ExecutionService(service)))
    return service


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, MultiplyingService]]:
    """A folder with trajectories, ``turns.jsonl``, which are evaluated in ``out.jsonl``; and what has run them."""
    folder = tmp_path_factory.mktemp("evaluation")
    source = write_problems(folder / "problems.jsonl", 6)
    plan = make_plan(source, folder / "turns.jsonl", num_completions=5, num_turns=3)
    asyncio.run(run_plan(plan, ScriptedEngine(), MultiplyingService()))
    with pytest.MonkeyPatch.context() as patch:
        service = serve(patch)
        evaluate(folder / "turns.jsonl", folder / "out.jsonl")
    yield folder, service


@pytest.fixture
def trajectories(made: tuple[Path, MultiplyingService], tmp_path: Path) -> Path:
    """They alone, to be changed."""
    for file in made[0].glob("turns.jsonl*"):
        shutil.copy(file, tmp_path)
    return tmp_path / "turns.jsonl"


@pytest.fixture
def evaluated(made: tuple[Path, MultiplyingService], trajectories: Path) -> Path:
    """The output of the same folder, to be changed."""
    for file in made[0].glob("out.jsonl*"):
        shutil.copy(file, trajectories.parent)
    return trajectories.with_name("out.jsonl")


def evaluate(source: Path, output: Path, **flags: Any) -> list[Row]:
    main(EvaluationConfig(input_file=source, output_file=output, **flags))
    return read_rows(output)


def test_rates_are_those_of_the_hidden_tests_and_equal_programs_run_once(made: tuple[Path, MultiplyingService]) -> None:
    folder, service = made
    assert sum(service.runs.values()) <= 6 * 5, "four programs and none"
    for row in read_rows(folder / "out.jsonl"):
        hidden = TestCases.parse(row["hidden_test_cases"])
        for messages, rates in zip(row["conversations"], row["all_pass_rates"], strict=True):
            texts = [m["content"] for m in messages if m["role"] == "assistant"]
            expected = [asyncio.run(MultiplyingService().run(extract_code(text), hidden)).pass_rate for text in texts]
            assert rates == expected
        assert len(row["all_pass_rates"]) == 5
        assert "clean_public_pass_rates" not in row


def test_programs_are_found_as_the_run_did_it_unless_a_rule_is_asked_for(
    trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    rows = read_rows(trajectories)
    for messages in (messages for row in rows for messages in row["conversations"]):
        for message in messages[2::2]:
            message["content"] = "```python\nk=1\n```\nprints\n```\nk=2\n```"
    ran = []
    for number, (rule, flags) in enumerate(
        [("markdown", {}), ("released", {}), ("markdown", {"extraction": "released"})]
    ):
        service.runs.clear()
        write_jsonl(trajectories, [{**row, "extraction": rule} for row in rows])
        found = evaluate(trajectories, tmp_path / f"{number}.jsonl", **flags)
        ran.append(({code for code, _ in service.runs}, {row["extraction"] for row in found}))
    assert ran == [({"k=1"}, {"markdown"}), ({"k=2"}, {"released"}), ({"k=2"}, {"released"})]
    counts = json.loads((tmp_path / "0.jsonl.manifest.json").read_text())["counts"]
    assert counts["extraction_differs"] == counts["programs"] == 6 * 5 * 4


def test_perturbed_runs_get_clean_public_rates(trajectories: Path, tmp_path: Path, service: MultiplyingService) -> None:
    rows = [{**row, "feedback_tests": "perturbed"} for row in read_rows(trajectories)]
    write_jsonl(trajectories, rows)
    for row in evaluate(trajectories, tmp_path / "out.jsonl"):
        assert row["clean_public_pass_rates"] == row["public_pass_rates"], "here the tests shown were the clean ones"


def test_infra_failures_are_excluded_then_retried_alone(
    made: tuple[Path, MultiplyingService], trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    output = tmp_path / "out.jsonl"
    service.failing = lambda code: code == "k=2"
    with pytest.raises(SetupError, match="of 30 samples met an infrastructure failure"):
        evaluate(trajectories, output)
    report = json.loads((tmp_path / "out.jsonl.report.json").read_text())
    excluded = sum(None in rates for row in read_rows(output) for rates in row["all_pass_rates"])
    assert 0 < excluded == report["excluded_infra"] == 30 - report["samples"]
    again = MultiplyingService()
    service.runs, service.failing = again.runs, again.failing
    healed = evaluate(trajectories, output)
    assert {code for code, _ in service.runs} == {"k=2"}
    assert healed == read_rows(made[0] / "out.jsonl")


def test_a_damaged_record_of_an_earlier_evaluation_is_named(
    trajectories: Path, evaluated: Path, service: MultiplyingService
) -> None:
    rows = read_rows(evaluated)
    del rows[1]["all_pass_rates"]
    write_jsonl(evaluated, rows)
    with pytest.raises(InputError, match=r"out\.jsonl: line 2: field 'all_pass_rates'.*delete this line"):
        evaluate(trajectories, evaluated)


def test_the_evaluation_of_other_trajectories_is_not_replaced(
    trajectories: Path, evaluated: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    rows, other = read_rows(evaluated), tmp_path / "other.jsonl"
    write_jsonl(other, [{**row, "seed": 2} for row in read_rows(trajectories)])
    with pytest.raises(InputError, match=r"out\.jsonl: 6 of its 6 records were made from other rows.*another output"):
        evaluate(other, evaluated)
    assert read_rows(evaluated) == rows
    write_jsonl(other, [{**row, "seed": 2} if row["id"] < 3 else row for row in read_rows(trajectories)])
    assert [row.get("seed") for row in evaluate(other, evaluated)] == [2, 2, 2, None, None, None]


def test_a_turn_never_taken_stays_open(trajectories: Path, tmp_path: Path, service: MultiplyingService) -> None:
    rows = read_rows(trajectories)
    rows[0]["conversations"][1] = rows[0]["conversations"][1][:4]
    for turn in (1, 2, 3):
        rows[0]["public_pass_rates"][turn][1] = None
    write_jsonl(trajectories, rows)
    first = evaluate(trajectories, tmp_path / "out.jsonl", max_infra_rate=0.1)[0]
    assert first["all_pass_rates"][1][1:] == [None, None, None]
    service.runs.clear()
    evaluate(trajectories, tmp_path / "out.jsonl", max_infra_rate=0.1)
    assert not service.runs


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("public_pass_rates", [[1.0] * 5, [1.0] * 4], r"field 'public_pass_rates'\[1\] has 4 entries where 5"),
        ("raw_responses", None, "field 'raw_responses': "),
        ("raw_responses", 5, "field 'raw_responses': "),
        ("raw_responses", [["x"] * 5] * 3, "field 'raw_responses' has 3 entries where 4"),
        ("raw_responses", [[None] * 5] * 4, r"field 'raw_responses'\[0\]\[0\]: "),
        ("usage", 5, "field 'usage': "),
        ("feedback_from", 5, "field 'feedback_from': "),
        *(
            ("usage", [[{"completion_tokens": count}] * 5] * 4, r"field 'usage'\[0\]\[0\]\['completion_tokens'\]: ")
            for count in (None, -5, 10**30, "7")
        ),
    ],
)
def test_bad_trajectories_are_named_before_a_program_runs(
    field: str, value: Any, complaint: str, trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    rows = read_rows(trajectories)
    rows[2][field] = value
    write_jsonl(trajectories, rows)
    with pytest.raises(InputError, match=rf"turns.jsonl: line 3: {complaint}"):
        evaluate(trajectories, tmp_path / "out.jsonl")
    assert not service.runs and not list(tmp_path.glob("out*"))


def test_bad_trajectories_are_skipped_on_demand(
    trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    first, *others = read_rows(trajectories)
    write_jsonl(trajectories, [{**first, "raw_responses": None}, *others])
    assert len(evaluate(trajectories, tmp_path / "out.jsonl", skip_invalid=True)) == 5
    counts = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())["counts"]
    assert (counts["read"], counts["skipped_invalid"]) == (6, 1)


def test_rows_of_different_feedback_are_refused_before_a_program_runs(
    trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    first, *others = read_rows(trajectories)
    write_jsonl(trajectories, [{**first, "feedback_from": "other_problem"}, *others])
    with pytest.raises(InputError, match=r"turns.jsonl: its rows got different feedback"):
        evaluate(trajectories, tmp_path / "out.jsonl")
    assert not service.runs and not list(tmp_path.glob("out*"))


def test_another_checker_or_a_smaller_input_is_refused(
    trajectories: Path, evaluated: Path, service: MultiplyingService
) -> None:
    before = {path: path.read_bytes() for path in evaluated.parent.glob("out.jsonl*")}
    service.checker = "lcb"
    with pytest.raises(InputError, match="other settings"):
        evaluate(trajectories, evaluated)
    service.checker = "exact"
    write_jsonl(trajectories, read_rows(trajectories)[:2])
    with pytest.raises(InputError, match="4 of its 6 records have ids that the input lacks"):
        evaluate(trajectories, evaluated)
    assert {path: path.read_bytes() for path in evaluated.parent.glob("out.jsonl*")} == before


def test_a_conversation_that_ended_is_no_program_that_changed() -> None:
    ended, again = ([1], [0.5, 0.5]), ([2, 2], [0.5, 0.5])
    factors_NT, rates_NT = map(list, zip(ended, again, strict=True))
    repeats = summarise([scores("a", factors_NT, rates_NT)]).repeats[0]
    assert (repeats.all.count, *values([repeats.all.estimate])) == (1, 1.0)
    assert (repeats.after_failure.count, *values([repeats.after_failure.estimate])) == (1, 1.0)


def test_summary_by_hand() -> None:
    rows = [
        scores("a", [[1, 2], [1, 1]], [[0.0, 1.0], [0.5, 0.5]], difficulty="EASY", platform="x"),
        scores("b", [[3, 3], [3, 4]], [[1.0, 1.0], [1.0, 0.0]], difficulty="HARD"),
        scores("c", [[None, None], [1, 2]], [[0.0, 0.0], [None, 1.0]], difficulty="HARD"),
    ]
    summary = summarise(rows)
    assert (summary.problems, summary.samples, summary.excluded_infra, summary.turns) == (3, 5, 1, 2)
    assert values(row.estimate for row in summary.pass_at_1) == pytest.approx([(0 + 1 + 0) / 3, (0.5 + 0.5 + 0) / 3])
    assert values(row.estimate for row in summary.pass_at_k[2]) == [0.5, 1.0], "c has one sample left"
    solved = summary.solved_after_unsolved[0]
    assert (solved.turn, solved.count, *values([solved.estimate])) == (1, 3, 1 / 3)
    repeats = summary.repeats[0]
    assert values([repeats.all.estimate]) == [2 / 5], "no program is not a repeated program"
    assert values([repeats.after_failure.estimate]) == [1 / 3]
    assert values(row.estimate for row in summary.by_difficulty["HARD"]) == [0.5, 0.25]
    assert set(summary.by_platform) == {"x", "unknown"}
    assert summary.gain is not None and summary.gain.to_turn == 1
    assert summary.pass_at_1[1].relative_change == pytest.approx(0.0)


def test_an_estimate_stands_among_the_fields_of_its_row() -> None:
    """What files hold, field by field and in this order."""
    numbers = to_json(summarise([scores("a", [[1, 1], [1, 1]], [[0.0, 1.0], [0.0, 0.0]])]))
    nothing = {"low": None, "high": None}
    gain = {"from_turn": 0, "to_turn": 1, "value": 0.5, **nothing}
    solved = {"turn": 1, "value": 0.5, **nothing, "count": 2}
    later = {"turn": 1, "value": 0.5, **nothing, "problems": 1, "relative_change": None}
    found = (numbers["gain"], numbers["solved_after_unsolved"][0], numbers["pass_at_1"][1])
    assert [list(row.items()) for row in found] == [list(row.items()) for row in (gain, solved, later)]


def test_groups_with_fewer_turns_or_samples_have_no_number() -> None:
    rows = [
        scores("a", [[1, 2]], [[0.0, 1.0]], difficulty="EASY"),
        scores("b", [[1], [2]], [[0.0], [1.0]], difficulty="HARD"),
    ]
    summary = summarise(rows)
    assert values(row.estimate for row in summary.by_difficulty["HARD"]) == [0.5, None]
    assert values(row.estimate for row in summary.pass_at_k[2]) == [1.0, None]
    numbers = json.loads(json.dumps(to_json(summary), allow_nan=False))
    assert [row["value"] for row in numbers["by_difficulty"]["HARD"]] == [0.5, None]
    assert [row["value"] for row in numbers["pass_at_k"]["2"]] == [1.0, None]
    assert "| HARD | 1 | 50.0 | – |" in render_markdown("f", {"checker": "exact"}, summary)


@pytest.mark.parametrize(("value", "name"), [(0, "0"), (800, "800"), (None, "unknown"), ("", "unknown")])
def test_only_what_is_missing_is_unknown(value: Any, name: str) -> None:
    found = scores("a", [[1]], [[1.0]], difficulty=value, platform=value)
    assert (found.difficulty, found.platform) == (name, name)


def test_a_row_over_fewer_problems_says_so() -> None:
    rows = [scores("a", [[1]] * 4, [[0.0]] * 4), scores("b", [[1]], [[1.0]])]
    report = render_markdown("f", {"checker": "exact"}, summarise(rows))
    assert "| Pass@1 | 50.0 |" in report and "| Pass@2 (1 of 2 problems) | 0.0 |" in report


def test_a_sample_without_turns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"field 'all_pass_rates'\[0\]: "):
        scores("a", [[]], [[]])


def test_comparison_pairs_by_id() -> None:
    better = [scores(n, [[1]] * 4, [[1.0]] * (2 + n % 2) + [[0.0]] * (2 - n % 2)) for n in range(40)]
    base = [scores(n, [[1]] * 4, [[1.0]] * (1 + n % 2) + [[0.0]] * (3 - n % 2)) for n in range(5, 50)]
    compared = compare(better, base, other="base")
    assert (compared.problems, compared.unpaired) == (35, 15)
    assert compared.pass_at_1 == [Difference(0, Estimate(0.25, 0.25, 0.25))]


def test_a_file_without_common_problems_is_not_compared_with(
    evaluated: Path, trajectories: Path, tmp_path: Path, service: MultiplyingService
) -> None:
    write_jsonl(tmp_path / "other.jsonl", [{**row, "id": f"other {row['id']}"} for row in read_rows(evaluated)])
    with pytest.raises(InputError, match=r"other\.jsonl: --compare: it has no problem of"):
        evaluate(trajectories, tmp_path / "new.jsonl", compare=tmp_path / "other.jsonl")
    assert not (tmp_path / "new.jsonl").exists()


def test_report_files_and_a_checker_that_differs_from_that_of_another_stage(
    evaluated: Path, trajectories: Path, tmp_path: Path, service: MultiplyingService, capsys: Any
) -> None:
    evaluate(trajectories, evaluated)
    assert "note:" not in capsys.readouterr().err
    service.checker = "lcb"
    evaluate(trajectories, tmp_path / "new.jsonl", compare=evaluated)
    markdown = (tmp_path / "new.jsonl.report.md").read_text()
    assert "Difference to out.jsonl (6 common problems)" in markdown
    assert "| 3 | +0.0 [+0.0, +0.0] |" in markdown
    assert "Checker `lcb`" in markdown
    assert markdown.count("\n| ") > 15
    told, complaints = capsys.readouterr()
    assert markdown in told
    for path in (trajectories, evaluated):
        assert f"the checker is lcb here, and was exact where {path} was made" in complaints
    assert (tmp_path / "new.jsonl.report.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "new.jsonl.report.svg").is_file()
    assert json.loads((tmp_path / "new.jsonl.report.json").read_text())["compare"]["problems"] == 6


@pytest.mark.parametrize(
    "known", [[Estimate(50.0, None, None)], [Estimate(50.0, None, None), Estimate(60.0, 55.0, 65.0)], []]
)
def test_turns_without_a_value_or_an_interval_are_drawn(known: list[Estimate]) -> None:
    picture = pass1_picture("f", "Pass@1 by turn", Curve("f", [*known, None]), "f")
    assert picture.png.startswith(b"\x89PNG") and "</svg>" in picture.svg.decode()


EXECUTION = {"checker": "lcb", "cpu_limit_s": 4.0, "suite_cpu_limit_s": 27.0}


def test_what_decided_pass_rates_is_read_from_manifests_and_told_in_reports(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert verdict_rule(source_of(output).execution) == NOT_RECORDED
    Path(f"{output}.manifest.json").write_text(json.dumps({"content": {"execution": EXECUTION}}))
    assert source_of(output).execution == EXECUTION
    report = render_markdown("f", EXECUTION, summarise([scores("a", [[1]], [[0.5]])]))
    assert "Checker `lcb`; `cpu_limit_s` 4 CPU seconds" in report
    assert "`suite_cpu_limit_s` 27 for all tests" in report


def test_counts_are_written_beside_and_stand_for_the_file(made: tuple[Path, MultiplyingService]) -> None:
    output = made[0] / "out.jsonl"
    records = read_rows(output)
    raw, counts = read_evaluation(output), read_evaluation(counts_path(output))
    assert counts.source == raw.source and counts.feedback_tests == raw.feedback_tests == "public"
    no_groups = {"by_difficulty": 0, "by_platform": 0}
    assert to_json(summarise(counts.problems)) | no_groups == to_json(summarise(raw.problems)) | no_groups
    content = json.loads(counts_path(output).read_text())
    assert (content["arm"], content["samples"], content["turns"]) == ("out", 5, 4)
    solved_PNT = [[[rate == 1 for rate in rates_T] for rates_T in row["all_pass_rates"]] for row in records]
    assert content["solved"] == [[[sum(column) for column in zip(*table, strict=True)] for table in solved_PNT]]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "other", "its format is 'other'"),
        ("solved", [[[9, 0, 0, 0]] * 6], "solved are not numbers of samples by turn"),
        ("ids", ["a"], "differ in length"),
        ("seeds", [], "it holds no seed"),
        ("valid", [], r"no counts file of this version \(.*\); write it anew"),
    ],
)
def test_a_counts_file_that_does_not_fit_together_is_refused(
    evaluated: Path, field: str, value: Any, message: str
) -> None:
    path = counts_path(evaluated)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(InputError, match=message):
        read_evaluations(path)


def test_problems_are_open_for_all_workers(
    service: MultiplyingService, trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open, most = set(), 0

    async def followed(row: Any, *others: Any) -> Row:
        nonlocal most
        is_open.add(row.id)
        most = max(most, len(is_open))
        record = await evaluate_record(row, *others)
        is_open.remove(row.id)
        return record

    monkeypatch.setattr("cobalt.evaluation.evaluate.evaluate_record", followed)
    for workers, expected in ((1, 4), (2, 6)):  # of 6 problems
        service.workers, most = workers, 0
        evaluate(trajectories, tmp_path / f"{workers}.jsonl")
        assert most == expected
