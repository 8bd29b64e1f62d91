"""The tables of the study on a real model, from the counts that are kept."""

import json

import pytest

from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluations
from research.real.study_tables import ARMS, COST_FILE, FOLDER, collect, main_table, set_table, tables_of_tests


def kept():
    scores = {arm: [one.problems for one in read_evaluations(FOLDER / f"{arm}.counts.json.gz")] for arm in ARMS}
    return scores, json.loads((FOLDER / COST_FILE).read_text())


def test_the_page_shows_what_the_counts_give():
    scores, costs = kept()
    page = (FOLDER.parent / "STUDY.md").read_text()
    for row in main_table(scores, costs):
        assert f"| {row['arm']} | {row['first program']} | {row['within 2']} |" in page
    for row in tables_of_tests(scores):
        points = row["points"]
        assert f"| {row['Cobalt minus']} | {points.value:.1f} [{points.low:.1f}, {points.high:.1f}] |" in page


def test_the_sets_hold_all_problems():
    scores, _ = kept()
    sizes = [int(title.rpartition("(")[2].rstrip(")")) for title in list(set_table(scores)[0])[1:]]
    assert sum(sizes) == len(scores["base"][0]) == 893


def test_nothing_is_overwritten_from_a_folder_that_lacks_an_arm(tmp_path):
    (tmp_path / "base-0").mkdir()
    with pytest.raises(InputError, match="for rft, single_turn, grpo_online, cobalt"):
        collect(tmp_path)
