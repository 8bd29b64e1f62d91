"""The whole experiment in one report: sections, tests of gains, costs, reuse; and every number stands in the JSON."""

import json
import random
import re
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

import pytest
from report_files import (
    FLAGS,
    SECONDS,
    START,
    TURNS,
    VALIDATION,
    tables_of,
    write_cases,
    write_evaluation,
    write_scores,
)
from scipy.stats import ttest_ind
from test_bill import step, write_training
from test_reporting import Page

from cobalt.errors import InputError
from cobalt.statistics import mean_estimate
from research.reports.make_report import ReportConfig, make_report
from research.reports.p_values import holm

T_OF_TWO = 12.706
"""Student's t of two values, which half their distance is multiplied by."""


def shown_in_markdown(text: str) -> list[list[list[str]]]:
    """Cells of each table's rows, headers left out."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[line.strip("|\n ").split(" | ") for line in block.splitlines()[2:]] for block in blocks]


def agrees(shown: str, cell: object) -> int:
    """How many numbers of a shown cell were compared with the JSON's, and found to be them, rounded."""
    if cell is None or isinstance(cell, str):
        assert shown == (cell or "–")
        return 0
    values = [value for value in cell.values() if value is not None] if isinstance(cell, dict) else [cell]
    parts = re.split(r" ?\[|, |\]", shown)[: len(values)] if isinstance(cell, dict) else [shown]
    for part, value in zip(parts, values, strict=True):
        decimal = Decimal(part.replace(",", ""))
        assert abs(float(decimal) - value) <= 0.5 * 10 ** int(decimal.as_tuple().exponent) * (1 + 1e-6), (shown, cell)
    return len(values)


def test_every_number_shown_is_one_of_the_json(paper: Path, tables: dict) -> None:
    page = Page((paper / "report.html").read_text())
    markdown = shown_in_markdown((paper / "report.md").read_text())
    assert list(page.tables) == list(tables) and len(markdown) == len(tables)
    assert [rows[0] for rows in page.tables.values()] == [table["columns"] for table in tables.values()]
    compared = 0
    for (key, (header, *rows)), lines in zip(page.tables.items(), markdown, strict=True):
        expected = [[row[column] for column in header] for row in tables[key]["rows"]]
        for form in (rows, lines):
            for shown, cells in zip(form, expected, strict=True):
                compared += sum(map(agrees, shown, cells))
                assert len(shown) == len(cells)
    assert compared > 1500


def test_the_sections_have_the_papers_order(paper: Path) -> None:
    titles = re.findall(r"^## (.*)", (paper / "report.md").read_text(), re.MULTILINE)
    assert titles == re.findall(r"<h2>(.*)</h2>", (paper / "report.html").read_text())
    assert "; ".join(titles) == (
        "Main results; Training cost; Beyond the turns of training; Wrong feedback and reward hacking; Data reuse; "
        "Where the numbers come from"
    )


def test_what_was_not_given_is_not_shown(paper_files: list[str], tmp_path: Path) -> None:
    files = [spec for spec in paper_files if ":clean=" in spec or spec.startswith("Cobalt:shifted=")]
    tables = tables_of(tmp_path, *files, method="GRPO-MT")
    shifted = {key: [row["run"] for row in tables[key]["rows"]] for key in tables if key.endswith("shifted")}
    assert shifted == {key: ["Cobalt"] for key in ("pass1_shifted", "primary_shifted", "horizon_shifted")}
    assert {"bill", "reach", "reuse", "hacking", "repair"}.isdisjoint(tables)
    given = {row["run"]: (row["clean"], row["shifted"]) for row in tables["files"]["rows"]}
    assert given["base"] == (1, None) and given["Cobalt"] == (2, 2)


def test_the_family_of_tests_is_the_trained_runs_on_the_primary_endpoint(tables: dict) -> None:
    rows = tables["primary_tests_shifted"]["rows"]
    over = [("Cobalt", "base"), ("Cobalt", "single-turn GRPO"), ("Cobalt", "GRPO-MT"), ("GRPO-MT", "single-turn GRPO")]
    assert [(row["run"], row["over"]) for row in rows] == over
    base, *family, pair = rows
    assert [row["Holm"] for row in family] == holm([row["p"] for row in family])
    assert base["Holm"] is None and pair["Holm"] is None and min(row["p"] for row in rows) >= 2 / 301
    assert base["Welch"] is None, "it has one repetition"
    columns = tables["primary_tests_shifted"]["columns"]
    assert columns[3:] == ["over trainings", "difference", "Welch", "p", "Holm"], "few repetitions"


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


def test_the_methods_gain_over_the_baseline_is_the_same_in_both_tables(tables: dict) -> None:
    (over_base,) = [row for row in tables["method_gain_clean"]["rows"] if row["over"] == "base"]
    (gain,) = [row for row in tables["gain_clean"]["rows"] if row["run"] == "Cobalt"]
    assert [over_base[f"turn {turn}"] for turn in range(TURNS)] == [gain[f"turn {turn}"] for turn in range(TURNS)]


def test_seeds_widen_an_interval_and_one_has_that_over_problems(tmp_path: Path) -> None:
    """All problems of a are equal, so that only the seeds differ."""
    files = [f"a:clean={write_evaluation(tmp_path / f'{solved}.jsonl', [[solved]] * 5)}" for solved in (0, 1)]
    files.append(f"b:clean={write_evaluation(tmp_path / 'b.jsonl', [[1], [0], [0], [1], [1]])}")
    several, one = tables_of(tmp_path, *files)["pass1_clean"]["rows"]
    half = T_OF_TWO * 50
    assert several["turn 0"] == pytest.approx({"value": 50, "low": 50 - half, "high": 50 + half}, rel=1e-3)
    assert several["last turn of each repetition"] == "0.0, 100.0"
    assert one["turn 0"] == asdict(mean_estimate([100, 0, 0, 100, 100]))


def test_seeds_widen_the_interval_of_a_hacking_rate_and_are_listed(tmp_path: Path) -> None:
    """All problems are equal: with seed 0 each opportunity is a case, with seed 1 none is."""
    files = [write_cases("a", tmp_path / str(seed), random.Random(0), rate)[0] for seed, rate in enumerate((1.0, 0.0))]
    tables = tables_of(tmp_path, *files)
    (row,), (listed,) = tables["hacking"]["rows"], tables["hacking_repetitions"]["rows"]
    share = 100 * (TURNS - 1) / TURNS
    half = T_OF_TWO * share / 2
    expected = {"value": share / 2, "low": share / 2 - half, "high": share / 2 + half}
    assert row["cases per 100 opportunities"] == pytest.approx(expected, rel=1e-3)
    assert listed["cases per 100 opportunities"] == f"{share:.1f}, 0.0"


def test_what_is_gained_by_reading_and_what_is_repeated(tmp_path: Path) -> None:
    control = write_evaluation(tmp_path / "control.jsonl", [[1, 0], [1, 0]])
    ours = write_evaluation(tmp_path / "ours.jsonl", [[0, 1, 1], [0, 0, 1]])
    theirs = write_evaluation(tmp_path / "theirs.jsonl", [[1, 1, 1], [0, 0, 0]], same_programs=True)
    played = {"ours": ours, "theirs": theirs}
    files = [f"{name}:{kind}" for name, path in played.items() for kind in (f"clean={path}", f"control={control}")]
    first, second = tables_of(tmp_path, *files)["repair"]["rows"]
    assert (first["own feedback"]["value"], first["another problem's"]["value"]) == (50, -100)
    assert (first["repeats, first"], second["repeats, first"], second["repeats, last"]) == (0, 100, 100)


def test_what_reaching_a_level_took(tables: dict, paper: Path) -> None:
    """Cobalt begins at 60 GPU-seconds; seeds 0 and 1 stand at 30 and 40 % after a step, and at 50 % after two."""
    rows = {row["Pass@1 (%)"]: row for row in tables["reach"]["rows"]}
    assert list(rows) == [30, 35, 40, 45, 50]
    assert (rows[30]["GRPO-MT"], rows[30]["Cobalt"]) == (SECONDS, SECONDS + 60)
    assert rows[40]["Cobalt"] == (1 + 2) / 2 * SECONDS + 60
    assert rows[50]["GRPO-MT"] == 2 * SECONDS
    assert (paper / "learning.png").read_bytes().startswith(b"\x89PNG") and (paper / "learning.svg").is_file()


def test_a_level_that_is_not_reached_is_said_to_be(tmp_path: Path) -> None:
    specs = []
    for name, ends in {"a": (0.3, 0.42), "b": (0.28, 0.28)}.items():
        for seed, end in enumerate(ends):
            folder = write_training(
                tmp_path / f"{name}{seed}", [{"step": 0, VALIDATION: 0.25}, step(1, **{VALIDATION: end})]
            )
            specs.append(f"{name}:log={folder}/metrics.jsonl")
    tables = tables_of(tmp_path, *specs)
    assert "Beyond the turns" not in (tmp_path / "out" / "report.md").read_text(), "nothing was measured there"
    assert [(row["Pass@1 (%)"], row["a"], row["b"]) for row in tables["reach"]["rows"]] == [
        (30, SECONDS, "not reached"),
        (35, "reached by 1 of 2", "not reached"),
        (40, "reached by 1 of 2", "not reached"),
    ]
    assert "Training alone is counted for a, b: no 'cost' file was given." in tables["reach"]["note"]
    assert "cost" in tables and "bill" not in tables


def test_the_price_of_an_example_is_compared_with_the_methods(tables: dict) -> None:
    rows = {row[""]: row for row in tables["bill"]["rows"]}
    ratio = rows["GPU-s per example: Cobalt / this run"]
    assert (ratio["Cobalt"], ratio["GRPO-MT"]) == (1, (2 * SECONDS + 60) / (2 * SECONDS))
    assert (rows["GPU-s: collection"]["Cobalt"], rows["GPU-s: collection"]["GRPO-MT"]) == (60, 0)
    assert rows["GPU-s in all"]["Cobalt"] == rows["GPU-s in all"]["GRPO-MT"] + 60
    alone = rows["GPU-s per example, without collection"]
    assert alone["Cobalt"] == alone["GRPO-MT"] == rows["GPU-s per example"]["GRPO-MT"]


def test_collected_once_and_shared_by_two_seeds(tables: dict) -> None:
    (row,) = tables["reuse"]["rows"]
    assert (row["run"], row["trainings"], row["trainings that share"]) == ("Cobalt", 2, "2")
    assert row["collection, GPU-s"] == 60
    assert row["share of the bill, alone (%)"] == pytest.approx(100 * 60 / (60 + 2 * SECONDS))
    assert row["share of the bill, shared (%)"] == pytest.approx(100 * 30 / (30 + 2 * SECONDS))
    assert row["GPU-s per example, shared"] == pytest.approx((30 + 2 * SECONDS) / 8)


def test_gains_at_turns_learned_from_and_later_by_hand(tmp_path: Path) -> None:
    """Of two problems ours solves one at turns 0 to 3, and both from turn 4 on; the base none, then one from turn 3."""
    ours = write_evaluation(tmp_path / "ours.jsonl", [[1] * 6, [0] * 4 + [1] * 2])
    base = write_evaluation(tmp_path / "base.jsonl", [[0] * 3 + [1] * 3, [0] * 6])
    short = write_scores(tmp_path / "s.jsonl", 0.5, "", 4)
    files = (f"base:clean={base}", f"ours:clean={ours}", f"short:clean={short}")
    table = tables_of(tmp_path, *files)["horizon_clean"]
    rows = {row["run"]: [cell and cell["value"] for cell in list(row.values())[1:]] for row in table["rows"]}
    assert "; ".join(table["columns"][1:]) == (
        "gained, turn 0 to 2; gained, turn 2 to 3; gained, turn 3 to 5; over base, turns 0 to 2; over base, turn 3; "
        "over base, turns 4 to 5"
    )
    assert rows["base"] == [0, 50, 0, None, None, None]
    assert rows["ours"] == [0, 0, 50, 50, 0, 50]
    assert rows["short"][2] is None and rows["short"][5] is None and None not in rows["short"][:2]
    assert (tmp_path / "out" / "gain_clean.png").is_file()


@pytest.mark.parametrize(
    ("dropped", "flags", "message"),
    [
        ("Cobalt:cost=", {}, "run Cobalt: 2 'log' files and 1 'cost' files"),
        ("Cobalt:clean=", {}, "run Cobalt: 2 'perturbed' files and 1 'clean' files"),
        ("base:clean=", {}, "run base: 'control' files need 'clean' files beside them"),
        ("", {"method": "SFT"}, "--method SFT: no run has this name"),
        ("", {"pairs": ("GRPO-MT=SFT",)}, "--pairs GRPO-MT=SFT: not FIRST=SECOND with two of the runs"),
    ],
)
def test_files_that_do_not_match_are_refused(
    paper_files: list[str], tmp_path: Path, dropped: str, flags: dict, message: str
) -> None:
    left = list(paper_files)
    if dropped:
        left.remove(next(spec for spec in left if spec.startswith(dropped)))
    with pytest.raises(InputError, match=re.escape(message)):
        make_report(ReportConfig(files=tuple(left), output_dir=tmp_path / "out", **flags))
