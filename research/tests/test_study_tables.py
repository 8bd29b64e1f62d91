"""The tables of the study on a real model, from the counts that are kept."""

import gzip
import json
from dataclasses import replace

import pytest

from cobalt import statistics
from cobalt.errors import InputError
from cobalt.evaluation.files import BY_TURN, read_evaluations, write_counts
from cobalt.tables import show
from research.real.study_tables import (
    COST_FILE,
    FOLDER,
    HACKING_FILE,
    LONG_FILE,
    RATES,
    SMALL,
    STAGES_FILE,
    STUDIES,
    SUMMARY,
    TEACHER_FILE,
    collect,
    hacking_table,
    kept,
    long_table,
    main_table,
    rate,
    rates_table,
    set_table,
    stages_table,
    tables_of_tests,
    teacher_table,
)


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_page_shows_what_the_counts_give(folder):
    scores, costs = kept(folder)
    page = (FOLDER.parent / "STUDY.md").read_text()
    for row in main_table(scores, costs):
        told = [row["arm"], row["trainings"] or "–", row["first program"], row["within 2"]]
        assert f"| {' | '.join(map(str, told))} | {show(row['submitted within 3'])} |" in page
    for row in tables_of_tests(scores):
        assert f"| {row['Cobalt minus']} | {show(row['points'])} | {show(row['Welch'])} |" in page


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_page_shows_what_each_learning_rate_gives(folder):
    page = (FOLDER.parent / "STUDY.md").read_text().replace("*", "")
    for row in rates_table(folder, kept(folder)[0]):
        assert f"| {' | '.join(map(show, row.values()))} |" in page


def test_the_page_tells_of_conversations_that_go_on_after_success():
    (large, trained), (small,) = long_table(FOLDER), long_table(SMALL)
    page = (FOLDER.parent / "STUDY.md").read_text()
    assert f"the base has {large['1']} % at the first, {large['3']} at the third, {large['9']} at the ninth" in page
    assert f"a training of Cobalt {trained['1']},\n  {trained['3']} and {trained['9']}" in page
    assert f"the base has {small['1']} % at the first, {small['3']} at the third, and the same to the ninth" in page
    assert list(small.values())[3:] == [small["3"]] * 7


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_page_shows_what_wrong_public_tests_do(folder):
    page = (FOLDER.parent / "STUDY.md").read_text()
    scores, _ = kept(folder)
    for row in hacking_table(json.loads((folder / HACKING_FILE).read_text()), scores):
        assert f"| {' | '.join(map(show, row.values()))} |" in page


def test_the_page_shows_the_seconds_of_each_stage():
    page = (FOLDER.parent / "STUDY.md").read_text()
    stages = json.loads((SMALL / STAGES_FILE).read_text())
    for row in stages_table(stages):
        assert f"| {' | '.join(map(show, row.values()))} |" in page
    assert all(str(seconds) in page for seconds in stages["before"].values())


def test_the_page_shows_the_trainings_with_feedback_as_teacher():
    page = (FOLDER.parent / "STUDY.md").read_text()
    for row in teacher_table(json.loads((FOLDER / TEACHER_FILE).read_text())):
        assert " | ".join(str(cell or "–") for cell in list(row.values())[1:]) in page


def test_arms_are_paired_by_problem_whatever_the_order_of_their_counts():
    scores, _ = kept(SMALL)
    mixed = {**scores, "base": [problems[::-1] for problems in scores["base"]]}
    assert rate(mixed, "cobalt", 2, "base").estimate == rate(scores, "cobalt", 2, "base").estimate
    mixed["base"] = [problems[1:] for problems in scores["base"]]
    with pytest.raises(InputError, match="base: no counts of problem"):
        rate(mixed, "cobalt", 2, "base")


def test_a_problem_without_samples_is_left_out(tmp_path, monkeypatch):
    """All of them met an infrastructure failure."""
    monkeypatch.setattr(statistics, "RESAMPLES", 10)
    problems = kept(SMALL)[0]["base"][0]
    lost = replace(
        problems[0], samples=0, excluded=4, submitted_T=None, **dict.fromkeys(map("{}_T".format, BY_TURN), ())
    )
    with_lost, without = ({"base": [[*first, *problems[1:]]]} for first in ([lost], []))
    assert rate(with_lost, "base", 2).estimate == rate(without, "base", 2).estimate
    evaluation = replace(read_evaluations(SMALL / LONG_FILE.format("base"))[0], problems=with_lost["base"][0])
    write_counts(tmp_path / "base.long.counts.json", "base", "long", [evaluation])
    (tmp_path / LONG_FILE.format("base")).write_bytes(gzip.compress((tmp_path / "base.long.counts.json").read_bytes()))
    assert len(long_table(tmp_path)) == 1


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_sets_hold_all_problems(folder, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 10)
    scores, _ = kept(folder)
    sizes = [int(title.rpartition("(")[2].rstrip(")")) for title in list(set_table(scores)[0])[1:]]
    assert sum(sizes) == len(scores["base"][0]) == 893


def test_an_arm_is_collected_and_the_others_stay(tmp_path, monkeypatch):
    study, out = tmp_path / "study", tmp_path / "out"
    monkeypatch.setitem(STUDIES, study, ["base", "dpo"])
    monkeypatch.setitem(RATES, study, RATES[SMALL])
    (out / "dpo-0" / "done").mkdir(parents=True)
    (out / "dpo-0" / "done" / "train").write_text("70\n")
    counts = gzip.decompress((SMALL / "dpo.counts.json.gz").read_bytes())
    (out / "dpo-0" / "test.jsonl.counts.json").write_bytes(counts)
    study.mkdir()
    (study / "base.counts.json.gz").write_bytes((SMALL / "base.counts.json.gz").read_bytes())
    (out / "base-0").mkdir()
    (out / "base-0" / "long.jsonl.counts.json").write_bytes(counts)
    (out / "base-0" / SUMMARY).write_text('{"abandoned": 3}')
    (study / HACKING_FILE).write_text('{"dpo": [{}]}')
    (study / COST_FILE).write_text('{"collection": [{"gpu_seconds": 1}]}')
    (study / STAGES_FILE).write_text('{"base": [{"asked": 2}]}')
    collect(out, study)
    assert json.loads((study / HACKING_FILE).read_text()) == {"dpo": [{}], "base": [{"abandoned": 3}]}
    (long,) = read_evaluations(study / LONG_FILE.format("base"))
    assert long.problems == kept(SMALL)[0]["dpo"][0]
    assert kept(study) == ({arm: kept(SMALL)[0][arm] for arm in ("base", "dpo")}, {"collection": [{"gpu_seconds": 1}]})
    assert json.loads((study / STAGES_FILE).read_text()) == {"base": [{"asked": 2}], "dpo": [{"train": 70}]}


def test_rates_are_collected_with_what_was_asked(tmp_path, monkeypatch):
    study, out = tmp_path / "study", tmp_path / "out"
    monkeypatch.setitem(STUDIES, study, ["base", "dpo"])
    monkeypatch.setitem(RATES, study, RATES[SMALL])
    study.mkdir()
    for folder, test_set, source in (
        ("dpo-1", "dev", "dpo.dev"),
        ("dpo_3e-6-0", "dev", "dpo_3e-6.dev"),
        ("dpo_3e-6-0", "test", "dpo_3e-6.test"),
    ):
        (out / folder).mkdir(parents=True, exist_ok=True)
        counts = gzip.decompress((SMALL / "rates" / f"{source}.counts.json.gz").read_bytes())
        (out / folder / f"{test_set}.jsonl.counts.json").write_bytes(counts)
    collect(out, study)
    assert {file.name for file in study.glob("**/*.gz")} == {
        f"{name}.counts.json.gz" for name in ("dpo.dev", "dpo_3e-6.dev", "dpo_3e-6.test")
    }


def test_arms_that_were_not_asked_the_test_problems_are_collected(tmp_path, monkeypatch):
    study, arm = tmp_path / "study", tmp_path / "out" / "base-0"
    monkeypatch.setitem(STUDIES, study, ["base"])
    monkeypatch.setitem(RATES, study, {})
    study.mkdir()
    arm.mkdir(parents=True)
    (arm / "long.jsonl.counts.json").write_bytes(gzip.decompress((SMALL / LONG_FILE.format("base")).read_bytes()))
    collect(tmp_path / "out", study)
    assert long_table(study) == long_table(SMALL)


def test_a_folder_without_an_arm_is_refused(tmp_path):
    with pytest.raises(InputError, match="for any of base, rft"):
        collect(tmp_path, FOLDER)
