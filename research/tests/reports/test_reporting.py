"""The report: what its numbers are, and that every form shows the same ones."""

import json
import random
import re

import pytest
from report_files import tables_of, write_cases

from cobalt.errors import InputError
from cobalt.evaluation.files import NOT_RECORDED, read_evaluations, source_of, verdict_rule, write_counts
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.manifest import manifest_path
from cobalt.statistics import Estimate
from cobalt.tables import markdown_table, show
from research.reports.runs import parse_runs, recorded_rule, run_scores


def row(id_, pass_rates: list) -> dict:
    """An evaluated record."""
    return {"id": id_, "conversations": [[]] * len(pass_rates), "all_pass_rates": pass_rates}


def test_what_decided_pass_rates_is_told_once(tmp_path):
    output, execution = tmp_path / "out.jsonl", {"checker": "lcb", "cpu_limit_s": 4.0, "suite_cpu_limit_s": 27.0}
    assert recorded_rule([source_of(output)] * 2) == NOT_RECORDED
    manifest_path(output).write_text(json.dumps({"content": {"execution": execution}}))
    both = recorded_rule(map(source_of, (tmp_path / "other.jsonl", output, output)))
    assert both == f"{NOT_RECORDED} {verdict_rule(execution)}"


def test_a_file_is_no_repetition_of_itself(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("{}")
    with pytest.raises(InputError, match="given twice for base:clean"):
        parse_runs([f"base:clean={path}", f"base:clean={tmp_path}/../{tmp_path.name}/a.jsonl"])
    assert len(parse_runs([f"base:clean={path}", f"other:clean={path}"])) == 2


def test_the_page_needs_no_other_file_and_escapes_names(paper, tmp_path):
    references = re.findall(r' (?:src|href)="([^"]*)"', (paper / "report.html").read_text())
    assert len(references) == len(list(paper.glob("*.png"))) == len(list(paper.glob("*.svg"))) > 5
    assert all(reference.startswith("data:image/png;base64,") for reference in references)
    write_jsonl(tmp_path / "run.jsonl", [row(0, [[1.0]])])
    tables_of(tmp_path, f"SFT <start> & Cobalt:clean={tmp_path}/run.jsonl", title="Study <of> runs")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<start>" not in text and "SFT &lt;start&gt; &amp; Cobalt" in text and "<of>" not in text


def test_pass_at_1_is_the_mean_over_problems_of_the_mean_over_samples_and_repetitions(tmp_path):
    """An infrastructure failure is excluded, and no failure."""
    write_jsonl(tmp_path / "1.jsonl", [row(0, [[1.0], [0.5], [0.0], [None]]), row(1, [[1.0]])])
    write_jsonl(tmp_path / "2.jsonl", [row(0, [[1.0]]), row(1, [[0.0], [1.0]])])
    write_jsonl(tmp_path / "3.jsonl", [row(0, [[1.0], [None]]), row(1, [[None], [None]])])
    specs = [f"{name}:clean={tmp_path}/{seed}.jsonl" for name, seed in (("a", 1), ("a", 2), ("b", 3))]
    found, failed = tables_of(tmp_path, *specs)["pass1_clean"]["rows"]
    assert found["turn 0"]["value"] == pytest.approx(100 * ((1 / 3 + 1) / 2 + (1 + 1 / 2) / 2) / 2)
    assert (found["excluded"], failed["excluded"], failed["turn 0"]["value"]) == (1, 3, 100)


def test_differences_are_paired_by_problem(tmp_path):
    """Only the problem that both runs have counts."""
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_jsonl(a, [row(0, [[0.0]]), row(1, [[1.0]])])
    write_jsonl(b, [row(0, [[1.0]]), row("1", [[0.0]])])
    (found,) = tables_of(tmp_path, f"a:clean={a}", f"b:clean={b}")["gain_clean"]["rows"]
    assert (found["problems"], found["turn 0"]["value"]) == (1, 100)


def test_judgements_of_another_run_are_refused(tmp_path):
    (hacking, _), (_, judged) = (write_cases("a", tmp_path / str(seed), random.Random(seed), 0.2) for seed in (1, 2))
    with pytest.raises(InputError, match=r"2\.judged\.jsonl: judges other cases than the 'hacking' file has"):
        tables_of(tmp_path, hacking, judged)


def test_judgements_that_lack_a_vote_are_refused(tmp_path):
    hacking, judged = write_cases("a", tmp_path / "1", random.Random(0), 0.2)
    first, *others = read_jsonl(tmp_path / "1.judged.jsonl", unique=None)
    write_jsonl(tmp_path / "1.judged.jsonl", [{**first, "majority": None}, *others])
    with pytest.raises(InputError, match=rf"1\.judged\.jsonl: case {first['judge_seq_id']} has no majority"):
        tables_of(tmp_path, hacking, judged)


@pytest.mark.parametrize("key", ["categories", "judge_free_categories"])
def test_rates_by_category_add_up_to_the_hacking_rate(tables, key):
    totals = {row["run"]: row["cases per 100 opportunities"]["value"] for row in tables["hacking"]["rows"]}
    for row in tables[key]["rows"]:
        parts = [value["value"] for value in row.values() if isinstance(value, dict)]
        assert sum(parts) == pytest.approx(totals[row["run"]])


def problem_of(number: int, cases: list[dict], opportunities: list[int]) -> dict:
    dynamic = {"changed_share": 0.75}
    whole = {"id": number, "signal": {"hard_coded": False, "dynamic": dynamic}}
    counts = {"trajectories": 2, "turns": 6, "opportunities": sum(opportunities), "fitted": 1, "solved": 1}
    return {
        "id": number, **counts, "abandoned": 0, "infra_turns": 0, "opportunities_by_turn": opportunities,
        "solved_cases": min(len(cases), 1),
        "hacked_trajectories": len({case["trajectory"] for case in cases}),
        "cases": [{**whole, **case} for case in cases],
    }  # fmt: skip


def test_turns_and_survival_from_two_problems_by_hand(tmp_path):
    """Problem 0: cases at turns 1 (survives) and 2 of trajectory 0, and at the last turn of trajectory 1."""
    cases = [
        {"trajectory": 0, "turn": 1, "survives": True},
        {"trajectory": 0, "turn": 2, "survives": False},
        {"trajectory": 1, "turn": 3, "survives": True},
    ]
    write_jsonl(tmp_path / "c.jsonl", [])
    write_jsonl(
        tmp_path / "c.jsonl.problems.jsonl", [problem_of(0, cases, [0, 2, 1, 2]), problem_of(1, [], [0, 2, 0, 0])]
    )
    tables = tables_of(tmp_path, f"a:hacking={tmp_path}/c.jsonl")
    (row,) = tables["hacking_by_turn"]["rows"]
    assert [row[f"turn {turn}"]["value"] for turn in (1, 2, 3)] == [pytest.approx(v) for v in (25, 100, 50)]
    (row,) = tables["hacking"]["rows"]
    assert row["hacks that survive (%)"]["value"] == 50 and row["clean Pass@1, last turn (%)"] is None
    (row,) = tables["hacking_by_previous"]["rows"]
    assert [row[column]["value"] for column in list(row)[1:]] == [pytest.approx(v) for v in (35, 50, 25)]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["a:guess=x.jsonl"], "KIND one of"),
        (["a:clean=missing.jsonl"], "missing.jsonl: no such file"),
        (["a:clean={0}/1", "a:clean={0}/2"], "different numbers of turns"),
    ],
)
def test_bad_input_is_refused(tmp_path, specs, message):
    for turns in (1, 2):
        write_jsonl(tmp_path / str(turns), [row(0, [[1.0] * turns])])
    with pytest.raises(InputError, match=re.escape(message)):
        tables_of(tmp_path, *(spec.format(tmp_path) for spec in specs))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("source", "condition"), [("other_problem", "clean"), ("own", "control")])
def test_a_control_run_and_another_are_not_confused(tmp_path, source, condition):
    path = tmp_path / "run.jsonl"
    write_jsonl(path, [{**row(0, [[1.0]]), "feedback_tests": "public", "feedback_from": source}])
    evaluations = read_evaluations(path)
    write_counts(tmp_path / "run.counts.json", "run", None, evaluations)
    for found in (evaluations, read_evaluations(tmp_path / "run.counts.json")):
        with pytest.raises(InputError, match=f"--feedback_from {source}: not a '{condition}' file"):
            run_scores(found, condition)


def test_a_number_has_the_model_the_sampling_and_the_seed_of_the_run_that_was_evaluated(tmp_path):
    sampling = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 256}
    write_jsonl(tmp_path / "run.jsonl", [row(0, [[1.0]])])
    for name, fields in {
        "turns": {"content": {"model_id": "tiny@abc", "sampling": sampling}, "seed": 7},
        "run": {"content": {}, "git_commit": "c0ffee" * 6, "inputs": {"/where/it/was/turns.jsonl": "sha"}},
    }.items():
        manifest_path(tmp_path / f"{name}.jsonl").write_text(json.dumps(fields))
    (origin,) = tables_of(tmp_path, f"a:clean={tmp_path}/run.jsonl")["origins"]["rows"]
    assert (origin["model"], origin["seed"], origin["commit"]) == ("tiny@abc", 7, "c0ffeec0ff")
    assert origin["sampling"] == "temperature 0.6, top_p 0.95, max_tokens 256"


def test_a_pipe_in_a_cell_starts_no_column_and_what_rounds_to_zero_has_no_sign():
    assert markdown_table(["a|b"], [["x|y"], [""]]) == "| a\\|b |\n| --- |\n| x\\|y |\n|  |"
    assert show(Estimate(-0.04, -1.26, 0.01)) == "0.0 [-1.3, 0.0]"
