"""Figures drawn again from the JSON of reports."""

import json
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.figures import OURS
from research.figures import METHODS
from research.reports.redraw import RedrawConfig, main, pictures_in

RESULTS = Path(__file__).parents[3] / "research" / "results"
SWEEP = RESULTS / "open-questions-h200" / "kl.json"


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        (
            RESULTS / "paper-in-miniature" / "report.json",
            "pass1_clean gain_clean pass1_shifted gain_shifted learning pass1_perturbed hacking",
        ),
        (RESULTS / "bound-h200" / "report.json", "gap distance failure_cost"),
        (SWEEP, "kl"),
        (RESULTS / "open-questions-h200" / "stop.json", "stop"),
        (RESULTS / "hacking-h200" / "sweep-clean.json", "sweep-clean"),
    ],
)
def test_each_kind_of_report_is_drawn_and_cobalt_has_its_colour_in_all(path: Path, keys: str) -> None:
    pictures = pictures_in(path)
    assert [picture.key for picture in pictures] == keys.split()
    for picture in pictures:
        assert path.with_name(f"{picture.key}.png").is_file()
        if path.parent.name != "bound-h200":  # its policies are shades of Cobalt
            assert OURS.lower().encode() in picture.svg
    in_all = [picture for picture in pictures if b"base, in every panel" in picture.svg]
    assert all(METHODS["base"].colour.lower().encode() in picture.svg for picture in in_all)


def test_both_formats_lie_beside_the_json(tmp_path: Path) -> None:
    (tmp_path / SWEEP.name).write_bytes(SWEEP.read_bytes())
    main(RedrawConfig(input_files=(tmp_path / SWEEP.name,)))
    assert {path.name for path in tmp_path.iterdir()} == {"kl.json", "kl.png", "kl.svg"}


def test_the_condition_of_a_sweep_is_on_its_axis() -> None:
    (picture,) = pictures_in(RESULTS / "hacking-h200" / "sweep-perturbed.json")
    assert b"Pass@1, perturbed feedback (%)" in picture.svg


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", "is no report's JSON"),
        ("no JSON", "cannot be drawn"),
        (json.dumps({"columns": ["a"]}), "cannot be drawn: KeyError"),
        ("[]", "cannot be drawn: KeyError|is no report"),
    ],
)
def test_what_is_no_report_is_refused_before_anything_is_written(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "kl.json").write_bytes(SWEEP.read_bytes())
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=complaint):
        main(RedrawConfig(input_files=(tmp_path / "kl.json", tmp_path / "x.json")))
    assert not list(tmp_path.glob("*.png"))
