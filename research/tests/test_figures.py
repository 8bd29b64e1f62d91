"""The style of figures: one line for each method, labels that do not overlap, both formats."""

from io import BytesIO
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from cobalt import figures
from cobalt.figures import OURS, STYLE, Curve
from cobalt.statistics import Estimate
from research.figures import METHODS, VARIANT, curves_figure, label_of, lines_of, pass1_picture, push_apart, series_of

BANDED = Curve("base", [Estimate(10, 5, 15), None, Estimate(30, 20, 40)])
OTHER = Curve("Cobalt", [Estimate(10, 5, 15), Estimate(12, 6, 18), Estimate(31, 25, 35)])
MANY = [Curve(name, OTHER.estimates) for name in ("base", "Cobalt", *(f"run {number}" for number in range(7)))]
draw = figures.styled()(curves_figure)


def lightness(colour: str) -> float:
    return sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), to_rgb(colour), strict=True))


def test_cobalt_alone_has_the_accent_and_the_baselines_are_greys_of_their_own() -> None:
    assert {name for name, line in METHODS.items() if line.colour == OURS} == {"Cobalt", "trained"}
    baselines = [METHODS[name] for name in ("base", "single-turn GRPO", "GRPO-MT", "VeRPO-MT")]
    assert all(len(set(to_rgb(line.colour))) == 1 for line in baselines)
    shades = sorted(lightness(line.colour) for line in baselines)
    assert min(high - low for low, high in pairwise(shades)) > 0.1
    assert len({line.dash for line in baselines}) == len({line.marker for line in baselines}) == 4


def test_a_method_looks_the_same_beside_whatever_else() -> None:
    names = list(METHODS)
    assert lines_of(names) == METHODS
    for name in names:
        assert lines_of(["something else", name])[name] == METHODS[name]
    assert len({(line.dash, line.marker) for line in METHODS.values() if line.colour == VARIANT}) == 7


def test_runs_of_no_known_method_are_told_apart_and_a_series_goes_from_pale_to_dark() -> None:
    lines = lines_of(["mine", "Cobalt, mine", "theirs"])
    assert lines["Cobalt, mine"].colour == VARIANT
    assert all(len(set(to_rgb(lines[name].colour))) == 1 for name in ("mine", "theirs"))
    assert len({(line.dash, line.marker) for line in lines.values()}) == 3
    shades = [lightness(line.colour) for line in series_of(["kl+1e-4", "kl+1e-3", "kl+1e-2"])]
    assert shades == sorted(shades, reverse=True) and len(set(shades)) == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Cobalt + perturbation", "Cobalt, wrong feedback in training"),
        ("Cobalt + off_by_one+0.3", "off by one, share 0.3"),
        ("other_problem", "another problem's output"),
        ("kl+1e-3-0", "KL $10^{-3}$"),
        ("kl+1e-4-0-step-20", "KL $10^{-4}$, step 20"),
        ("my run", "my run"),
        ("$x", r"\$x"),
    ],
)
def test_a_reader_meets_no_internal_name(name: str, words: str) -> None:
    assert label_of(name) == words


def test_a_line_joins_the_turns_that_have_a_value_over_its_band_and_cobalt_lies_on_top() -> None:
    (axes,) = draw([OTHER, BANDED], "turn", "y").axes
    own, cobalt = axes.lines[:2]
    assert cobalt.get_color() == OURS and cobalt.get_zorder() > own.get_zorder()
    assert (list(own.get_xdata()), list(own.get_ydata())) == ([0, 2], [10, 30])
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (5, 40)
    low, high = axes.get_ylim()
    assert 3 < low < 5 and 40 < high < 42


def test_labels_stand_at_the_curves_without_overlap_and_within_the_figure() -> None:
    names = ("single-turn GRPO", "Cobalt + perturbation", "GRPO-MT", "Cobalt, other reference", "Cobalt")
    ends = [[Estimate(50, 40, 60), Estimate(70 + place / 9, 60, 80)] for place in range(5)]
    figure = draw([Curve(name, end) for name, end in zip(names, ends, strict=True)], "turn", "y")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5 and not figure.legends
    for place, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0
        assert not any(box.overlaps(other) for other in (*boxes[place + 1 :], axes.get_window_extent()))
    assert not draw([BANDED], "turn", "y").axes[0].texts, "one curve needs no label"


def test_many_curves_have_panels_on_one_scale_with_the_base_and_cobalt_in_each() -> None:
    figure = draw(MANY, "turn", "y")
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == [f"run {number}" for number in range(7)]
    assert len({axes.get_ylim() for axes in panels}) == 1
    for axes in panels:
        assert {METHODS["base"].colour, OURS} <= {line.get_color() for line in axes.lines} and len(axes.lines) == 3
    unknown = draw([Curve(f"${number}", OTHER.estimates) for number in range(6)], "turn", "y", title="$t")
    unknown.draw_without_rendering()
    assert all(len(axes.lines) == 1 for axes in unknown.axes)
    assert figure.get_figwidth() == figures.FULL and draw([OTHER], "turn", "y").get_figwidth() == figures.COLUMN


def test_the_turns_learned_from_are_shaded_and_zero_is_shown() -> None:
    (axes,) = draw([BANDED], "turn", "y", shaded_to=1).axes
    assert axes.get_ylim()[0] < 0
    assert axes.patches[0].get_extents().transformed(axes.transData.inverted()).x1 == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("wanted", "heights", "places"),
    [
        ([0.2, 0.8], [0.1, 0.1], [0.2, 0.8]),
        ([0.5, 0.5], [0.2, 0.2], [0.4, 0.6]),
        ([0.6, 0.5], [0.2, 0.2], [0.65, 0.45]),
        ([0.99, 0.5], [0.2, 0.2], [0.9, 0.5]),
        ([0.0, 0.0, 0.02], [0.1, 0.3, 0.1], [0.05, 0.25, 0.45]),
        ([0.5], [2.0], [1.0]),
        ([], [], []),
    ],
)
def test_labels_are_pushed_apart_just_enough(wanted: list[float], heights: list[float], places: list[float]) -> None:
    assert push_apart(wanted, heights) == pytest.approx(places)


def test_figures_are_written_in_both_formats_without_a_date_at_the_resolution_of_print(tmp_path: Path) -> None:
    before = {name: matplotlib.rcParams[name] for name in STYLE}
    first, second = (pass1_picture("x", "alt", [BANDED, OTHER], "title") for _ in range(2))
    assert (first.png, first.svg) == (second.png, second.svg)
    first.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.png", "x.svg"]
    image = Image.open(BytesIO(first.png))
    assert image.width == figures.COLUMN * figures.DPI
    assert image.info["dpi"] == pytest.approx((figures.DPI,) * 2, abs=0.1)
    assert b">Cobalt</text>" in first.svg and b"<dc:date>" not in first.svg and b"Matplotlib" not in first.svg
    assert {name: matplotlib.rcParams[name] for name in STYLE} == before, "the style is left as it was found"


def test_every_figure_of_the_docs_is_there_in_both_formats() -> None:
    """The viewer's screenshots are no figures."""
    docs = Path(__file__).parents[2] / "docs"
    png, svg = (
        {path.with_suffix("") for path in docs.rglob(f"*.{suffix}") if path.parent.name != "viewer"}
        for suffix in ("png", "svg")
    )
    assert png == svg, "draw them: python -m research report figures"
    assert {docs / "figures/idea", docs / "figures/result"} <= png
