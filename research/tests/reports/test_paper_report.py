"""The whole experiment in one report: tests of gains, seeds, costs, reuse."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from report_files import FLAGS, SECONDS, START, tables_of, write_evaluation, write_scores
from scipy.stats import ttest_ind

from cobalt.errors import InputError
from cobalt.statistics import mean_estimate
from research.reports.p_values import holm

T_OF_TWO = 12.706
"""Student's t of two values, which half their distance is multiplied by."""


def test_the_family_of_tests_is_the_trained_runs_on_the_primary_endpoint(tables: dict) -> None:
    rows = tables["primary_tests_shifted"]["rows"]
    over = [("Cobalt", "base"), ("Cobalt", "single-turn GRPO"), ("Cobalt", "GRPO-MT"), ("GRPO-MT", "single-turn GRPO")]
    assert [(row["run"], row["over"]) for row in rows] == over
    base, *family, pair = rows
    assert [row["Holm"] for row in family] == holm([row["p"] for row in family])
    assert base["Holm"] is None and pair["Holm"] is None and min(row["p"] for row in rows) >= 2 / 301
    assert base["Welch"] is None, "it has one repetition"


def test_the_primary_endpoint_by_hand(tmp_path: Path) -> None:
    """Of two problems: turns 1 to 8 of nine are the endpoint. Welch's t by its formula, over two repetitions each."""
    tenth = [0] * 9 + [1]  # turn 9 does not count
    ours = [[[1] + [1] * 4 + [0] * 5, tenth], [[0] + [1] * 8 + [0], tenth]]
    theirs = [[tenth, tenth], [[0, 1] + [0] * 8, tenth]]
    files = [
        f"{name}:shifted={write_evaluation(tmp_path / f'{name}{seed}.jsonl', solved_PT)}"
        for name, repetitions in {"base": [[tenth, tenth]], "ours": ours, "theirs": theirs}.items()
        for seed, solved_PT in enumerate(repetitions)
    ]
    tables = tables_of(tmp_path, *files, method="ours", pairs=("theirs=base",))
    rows = {row["run"]: row for row in tables["primary_shifted"]["rows"]}
    assert (rows["ours"]["mean"]["value"], rows["ours"]["of each repetition"]) == (37.5, "25.0, 50.0")
    assert "turns 1 to 8" in tables["primary_shifted"]["title"]
    (_, over_theirs, further) = tables["primary_tests_shifted"]["rows"]
    assert over_theirs["difference"]["value"] == 37.5 - 6.25 / 2
    assert over_theirs["Welch"] == pytest.approx(ttest_ind([25, 50], [0, 6.25], equal_var=False).pvalue)
    assert (further["run"], further["over"], further["Holm"]) == ("theirs", "base", None)


def test_the_report_from_counts_is_the_report_from_the_files(
    paper_files: list[str], tables: dict, paper: Path, tmp_path: Path
) -> None:
    """Every cell of every table to the last digit; what evaluated files are not needed for is given as before."""
    counts = sorted((paper / "counts").iterdir())
    assert len(counts) == len(START) * 4
    heads = [json.loads(path.read_text()) for path in counts]
    others = [spec for spec in paper_files if not any(f":{head['set']}=" in spec for head in heads)]
    again = [f"{head['arm']}:{head['set']}={path}" for head, path in zip(heads, counts, strict=True)]
    order = list(dict.fromkeys(spec.partition("=")[0] for spec in paper_files))
    files = sorted([*again, *others], key=lambda spec: order.index(spec.partition("=")[0]))
    assert tables_of(tmp_path, *files, **FLAGS) == tables
    for path in counts:
        assert (tmp_path / "out" / "counts" / path.name).read_text() == path.read_text()


def test_learning_is_told_by_the_number_of_programs_before(tables: dict, paper: Path) -> None:
    first, second = [row for row in tables["learning_by_turn"]["rows"] if row["run"] == "Cobalt"]
    assert (first["programs before"], first["solved"], first["kept"]) == (0, "20.0 → 20.0", None)
    assert (second["solved"], second["broken"], second["repaired"]) == ("40.0 → 40.0", "50.0 → 50.0", "10.0 → 20.0")
    assert (paper / "learning_by_turn.png").is_file()


def test_seeds_widen_an_interval_and_one_has_that_over_problems(tmp_path: Path) -> None:
    """All problems of a are equal, so that only the seeds differ."""
    files = [f"a:clean={write_evaluation(tmp_path / f'{solved}.jsonl', [[solved]] * 5)}" for solved in (0, 1)]
    files.append(f"b:clean={write_evaluation(tmp_path / 'b.jsonl', [[1], [0], [0], [1], [1]])}")
    several, one = tables_of(tmp_path, *files)["pass1_clean"]["rows"]
    half = T_OF_TWO * 50
    assert several["turn 0"] == pytest.approx({"value": 50, "low": 50 - half, "high": 50 + half}, rel=1e-3)
    assert several["last turn of each repetition"] == "0.0, 100.0"
    assert one["turn 0"] == asdict(mean_estimate([100, 0, 0, 100, 100]))


def test_what_is_gained_by_reading_and_what_is_repeated(tmp_path: Path) -> None:
    control = write_evaluation(tmp_path / "control.jsonl", [[1, 0], [1, 0]])
    ours = write_evaluation(tmp_path / "ours.jsonl", [[0, 1, 1], [0, 0, 1]])
    theirs = write_evaluation(tmp_path / "theirs.jsonl", [[1, 1, 1], [0, 0, 0]], same_programs=True)
    played = {"ours": ours, "theirs": theirs}
    files = [f"{name}:{kind}" for name, path in played.items() for kind in (f"clean={path}", f"control={control}")]
    first, second = tables_of(tmp_path, *files)["repair"]["rows"]
    assert (first["own feedback"]["value"], first["another problem's"]["value"]) == (50, -100)
    assert (first["repeats, first"], second["repeats, first"], second["repeats, last"]) == (0, 100, 100)


def test_what_reaching_a_level_took(tables: dict) -> None:
    """Cobalt begins at 60 GPU-seconds; seeds 0 and 1 stand at 30 and 40 % after a step, and at 50 % after two."""
    rows = {row["Pass@1 (%)"]: row for row in tables["reach"]["rows"]}
    assert list(rows) == [30, 35, 40, 45, 50]
    assert (rows[30]["GRPO-MT"], rows[30]["Cobalt"]) == (SECONDS, SECONDS + 60)
    assert rows[40]["Cobalt"] == (1 + 2) / 2 * SECONDS + 60
    assert rows[50]["GRPO-MT"] == 2 * SECONDS


def test_gains_at_turns_learned_from_and_later_by_hand(tmp_path: Path) -> None:
    """Of two problems ours solves one at turns 0 to 3, and both from turn 4 on; the base none, then one from turn 3."""
    ours = write_evaluation(tmp_path / "ours.jsonl", [[1] * 6, [0] * 4 + [1] * 2])
    base = write_evaluation(tmp_path / "base.jsonl", [[0] * 3 + [1] * 3, [0] * 6])
    short = write_scores(tmp_path / "s.jsonl", 0.5, "", 4)
    files = (f"base:clean={base}", f"ours:clean={ours}", f"short:clean={short}")
    table = tables_of(tmp_path, *files)["horizon_clean"]
    rows = {row["run"]: [cell and cell["value"] for cell in list(row.values())[1:]] for row in table["rows"]}
    assert rows["base"] == [0, 50, 0, None, None, None]
    assert rows["ours"] == [0, 0, 50, 50, 0, 50]
    assert rows["short"][2] is None and rows["short"][5] is None and None not in rows["short"][:2]
    assert (tmp_path / "out" / "gain_clean.png").is_file()


@pytest.mark.parametrize(
    ("dropped", "message"),
    [
        ("Cobalt:cost=", "run Cobalt: 2 'log' files and 1 'cost' files"),
        ("base:clean=", "run base: 'control' files need 'clean' files beside them"),
    ],
)
def test_files_that_do_not_match_are_refused(
    paper_files: list[str], tmp_path: Path, dropped: str, message: str
) -> None:
    lost = next(spec for spec in paper_files if spec.startswith(dropped))
    with pytest.raises(InputError, match=re.escape(message)):
        tables_of(tmp_path, *(spec for spec in paper_files if spec != lost))


def test_collected_once_and_shared_by_two_seeds(tables: dict) -> None:
    (row,) = tables["reuse"]["rows"]
    assert (row["run"], row["trainings that share"], row["collection, GPU-s"]) == ("Cobalt", "2", 60)
    assert row["share of the bill, shared (%)"] == pytest.approx(100 * 30 / (30 + 2 * SECONDS))
