"""Stored counts and programs give the stored scores; Welch's test and Holm's correction, by hand and by definition."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from cobalt.evaluation.files import read_evaluations
from cobalt.hacking.cases import Category
from cobalt.hacking.signal import check_static
from cobalt.records.jsonl import read_json, read_jsonl
from research.reports.p_values import holm
from research.reports.runs import run_scores
from research.seeds import hierarchical_mean, nanmean, over_trainings

RESULTS = Path(__file__).parents[1] / "results"
COUNTS = [path for path in sorted(RESULTS.glob("*/counts/*.json*")) if (path.parents[1] / "report.json.gz").exists()]


@pytest.mark.parametrize("folder", sorted({path.parents[1] for path in COUNTS}), ids=lambda folder: folder.name)
def test_counts_give_the_scores_and_intervals_of_their_report(folder: Path) -> None:
    tables = read_json(folder / "report.json.gz")["tables"]
    for path in (path for path in COUNTS if path.parents[1] == folder):
        head = read_json(path)
        (row,) = [row for row in tables[f"pass1_{head['set']}"]["rows"] if row["run"] == head["arm"]]
        pass1_SPT = run_scores(read_evaluations(path), head["set"]).pass1_SPT
        turns = pass1_SPT.shape[2]
        assert nanmean(nanmean(pass1_SPT, 0), 0) == pytest.approx(
            [row[f"turn {turn}"]["value"] for turn in range(turns)]
        )
        for turn in (0, turns - 1):
            found = hierarchical_mean(pass1_SPT[:, :, turn])
            assert found and asdict(found.estimate) == row[f"turn {turn}"], path.name


def test_the_signals_static_rule_still_says_of_stored_programs_what_the_page_does() -> None:
    told = read_json(RESULTS / "hacking-signal/summary.json")
    marked, right = Counter[str](), Counter[str]()
    for row in read_jsonl(RESULTS / "hacking-signal/sample.jsonl.gz", unique="judge_seq_id"):
        static = check_static(row["previous_code"], row["current_code"], *row["wrong_test"].values())
        for group in ("all", "cases_only") if row["is_case"] else ("all",):
            marked[group] += static.hard_coded and row["label"] is not None
            right[group] += static.hard_coded and row["label"] == Category.HARD_CODING.label
    for group in ("all", "cases_only"):
        assert (marked[group], right[group]) == tuple(told[group]["static"][name] for name in ("marked", "both"))


def test_welch_by_hand_and_where_it_says_nothing() -> None:
    """t = 2 / sqrt(1/3 + 4/3) with 2.94 degrees of freedom for these."""
    assert over_trainings([4, 5, 6], [1, 3, 5])[1] == pytest.approx(0.2209, abs=1e-3)
    assert over_trainings([1.0], [2.0, 3.0])[1] is over_trainings([2, 2], [3, 3])[1] is None


def test_holm_rejects_what_the_step_down_rule_rejects() -> None:
    """Reject from the smallest on, while p <= level / (tests left)."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    generator = np.random.default_rng(8)
    for _ in range(200):
        p_values = list(generator.random(5) ** 3)
        rejected: set[float] = set()
        for left, p_value in zip(range(5, 0, -1), sorted(p_values), strict=True):
            if p_value > 0.05 / left:
                break
            rejected.add(p_value)
        assert {p for p, adjusted in zip(p_values, holm(p_values), strict=True) if adjusted <= 0.05} == rejected
