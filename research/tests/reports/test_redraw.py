"""Figures drawn again from the JSON of reports."""

from pathlib import Path

import pytest

from cobalt.figures import OURS
from research.reports.redraw import RedrawConfig, main, pictures_in

RESULTS = Path(__file__).parents[3] / "research" / "results"
VERDICTS = RESULTS / "verdicts" / "verdicts.json"


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("hacking-h200/report.json.gz", "pass1_clean gain_clean pass1_perturbed hacking"),
        ("bound-h200/report.json.gz", "gap distance failure_cost"),
        ("verdicts/verdicts.json", "verdicts"),
    ],
)
def test_each_kind_of_report_is_drawn_and_cobalt_has_its_colour_in_all(path: str, keys: str) -> None:
    pictures = pictures_in(RESULTS / path)
    assert [picture.key for picture in pictures] == keys.split()
    for picture in pictures:
        if not path.startswith("bound"):  # its policies are shades of Cobalt
            assert OURS.lower().encode() in picture.svg


def test_both_formats_lie_beside_the_json(tmp_path: Path) -> None:
    (tmp_path / VERDICTS.name).write_bytes(VERDICTS.read_bytes())
    main(RedrawConfig(input_files=(tmp_path / VERDICTS.name,)))
    assert {path.name for path in tmp_path.iterdir()} == {"verdicts.json", "verdicts.png", "verdicts.svg"}
