"""The report of arms: repair and repeated programs, bills side by side, learning curves over what was paid."""

import json
from pathlib import Path

import pytest
from test_bill import step, write_collection, write_training

from cobalt.records import write_jsonl
from studies.reports.bill import CostConfig
from studies.reports.bill import main as write_bill
from studies.reports.make_report import ReportConfig, make_report

VALIDATION = "val-core/code_taco_verified/acc/mean@1"


def write_evaluation(path: Path, solved_PT: list[list[int]], same_programs: bool = False) -> Path:
    """One sample per problem, whose programs are all the same or all different."""
    rows = []
    for number, solved_T in enumerate(solved_PT):
        numbers = [0 if same_programs else turn for turn in range(len(solved_T))]
        messages = [{"role": "assistant", "content": f"```python\nprint({value})\n```"} for value in numbers]
        rates = [float(value) for value in solved_T]
        rows.append({"id": number, "conversations": [messages], "all_pass_rates": [rates]})
    write_jsonl(path, rows)
    return path


def write_arm(folder: Path, solved_PT: list[list[int]], same_programs: bool, collection: tuple[Path, ...]) -> list[str]:
    folder.mkdir()
    write_training(folder / "training", [{"step": 0, VALIDATION: 0.25}, step(1), step(2, **{VALIDATION: 0.5})])
    write_bill(CostConfig(training=folder / "training", collection=collection, output=folder / "cost.json"))
    files = {
        "clean": write_evaluation(folder / "measured.jsonl", solved_PT, same_programs),
        "control": write_evaluation(folder / "control.jsonl", [row[:2] for row in [[1, 0, 0]] * len(solved_PT)]),
        "cost": folder / "cost.json",
        "log": folder / "training" / "metrics.jsonl",
    }
    return [f"{folder.name}:{kind}={path}" for kind, path in files.items()]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    collected = write_collection(tmp_path / "train.jsonl", 100)
    ours = write_arm(tmp_path / "ours", [[0, 1, 1], [0, 0, 1]], False, (collected,))
    theirs = write_arm(tmp_path / "theirs", [[1, 1, 1], [0, 0, 0]], True, ())
    make_report(ReportConfig(files=(*ours, *theirs), output_dir=tmp_path))
    return tmp_path


def test_what_is_gained_by_reading_and_what_is_repeated(report: Path) -> None:
    ours, theirs = json.loads((report / "report.json").read_text())["tables"]["repair"]["rows"]
    assert (ours["own feedback"]["value"], ours["another problem's"]["value"]) == (50, -100)
    assert (ours["repeats, first"], theirs["repeats, first"], theirs["repeats, last"]) == (0, 100, 100)


def test_bills_stand_side_by_side(report: Path) -> None:
    rows = {row[""]: row for row in json.loads((report / "report.json").read_text())["tables"]["bill"]["rows"]}
    assert (rows["GPU-s: collection"]["ours"], rows["GPU-s: collection"]["theirs"]) == (100, 0)
    assert rows["GPU-s in all"]["ours"] == rows["GPU-s in all"]["theirs"] + 100
    alone = rows["GPU-s per example, without collection"]
    assert alone["ours"] == alone["theirs"] == rows["GPU-s per example"]["theirs"] < rows["GPU-s per example"]["ours"]


def test_learning_curves_are_drawn(report: Path) -> None:
    assert (report / "learning.png").read_bytes().startswith(b"\x89PNG") and (report / "learning.svg").is_file()
    assert "learning" in (report / "report.html").read_text()
