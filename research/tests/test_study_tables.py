"""The tables of the study on a real model, from the counts that are kept."""

import json

import pytest

from cobalt import statistics
from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluations
from cobalt.tables import show
from research.real.study_tables import (
    ARMS,
    COST_FILE,
    FOLDER,
    TEACHER_FILE,
    collect,
    main_table,
    set_table,
    tables_of_tests,
    teacher_table,
)


def kept():
    scores = {arm: [one.problems for one in read_evaluations(FOLDER / f"{arm}.counts.json.gz")] for arm in ARMS}
    return scores, json.loads((FOLDER / COST_FILE).read_text())


def test_the_page_shows_what_the_counts_give():
    scores, costs = kept()
    page = (FOLDER.parent / "STUDY.md").read_text()
    for row in main_table(scores, costs):
        told = [row["arm"], row["trainings"] or "–", row["first program"], row["within 2"]]
        assert f"| {' | '.join(map(str, told))} | " in page
    for row in tables_of_tests(scores):
        assert f"| {row['Cobalt minus']} | {show(row['points'])} |" in page
    for row in teacher_table(json.loads((FOLDER / TEACHER_FILE).read_text())):
        assert " | ".join(str(cell or "–") for cell in list(row.values())[1:]) in page


def test_the_sets_hold_all_problems(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 10)
    scores, _ = kept()
    sizes = [int(title.rpartition("(")[2].rstrip(")")) for title in list(set_table(scores)[0])[1:]]
    assert sum(sizes) == len(scores["base"][0]) == 893


def test_nothing_is_overwritten_from_a_folder_that_lacks_an_arm(tmp_path):
    (tmp_path / "base-0").mkdir()
    with pytest.raises(InputError, match=f"for {', '.join(list(ARMS)[1:])}"):
        collect(tmp_path)
