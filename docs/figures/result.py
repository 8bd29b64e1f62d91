"""Draws result.png, the README's result: ``python -m docs.figures.result``."""

from pathlib import Path

from cobalt.records.jsonl import read_json
from research.figures import pass1_picture
from research.reports.page import Table
from research.reports.pictures import turn_curves

FOLDER = Path(__file__).parent
REPORT = FOLDER.parents[1] / "research" / "results" / "paper-in-miniature" / "report.json.gz"
RUNS = ("base", "single-turn GRPO", "Cobalt", "GRPO-MT", "VeRPO-MT")


def main() -> None:
    """Pass@1 by turn on the shifted set, of the methods that the paper compares."""
    found = read_json(REPORT)["tables"]["pass1_shifted"]
    curves = turn_curves(Table.from_json("pass1_shifted", found), RUNS)
    picture = pass1_picture("result", "Pass@1 by turn on problems unlike those of training", curves)
    (FOLDER / "result.png").write_bytes(picture.png)


if __name__ == "__main__":
    main()
