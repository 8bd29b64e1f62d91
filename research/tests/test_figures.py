"""The style of figures: one line for each method, labels that do not overlap, both formats."""

import pytest

from cobalt import figures
from cobalt.figures import Curve
from cobalt.statistics import Estimate
from research.figures import METHODS, VARIANT, curves_figure, lines_of, push_apart

BANDED = Curve("base", [Estimate(10, 5, 15), None, Estimate(30, 20, 40)])
OTHER = Curve("Cobalt", [Estimate(10, 5, 15), Estimate(12, 6, 18), Estimate(31, 25, 35)])
MANY = [Curve(name, OTHER.estimates) for name in ("base", "Cobalt", *(f"run {number}" for number in range(7)))]
draw = figures.styled()(curves_figure)


def test_a_method_looks_the_same_beside_whatever_else() -> None:
    names = list(METHODS)
    assert lines_of(names) == METHODS
    for name in names:
        assert lines_of(["something else", name])[name] == METHODS[name]
    assert len({(line.dash, line.marker) for line in METHODS.values() if line.colour == VARIANT}) == 7


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


@pytest.mark.parametrize(
    ("wanted", "heights", "places"),
    [
        ([0.5, 0.5], [0.2, 0.2], [0.4, 0.6]),
        ([0.6, 0.5], [0.2, 0.2], [0.65, 0.45]),
        ([0.99, 0.5], [0.2, 0.2], [0.9, 0.5]),
        ([0.0, 0.0, 0.02], [0.1, 0.3, 0.1], [0.05, 0.25, 0.45]),
        ([0.5], [2.0], [1.0]),
    ],
)
def test_labels_are_pushed_apart_just_enough(wanted: list[float], heights: list[float], places: list[float]) -> None:
    assert push_apart(wanted, heights) == pytest.approx(places)


def test_panels_show_the_main_method_with_its_interval_on_the_scale_of_what_is_compared() -> None:
    starts = {"base": 40.0, "Cobalt": 90.0, **{f"arm {number}": 90.0 for number in range(5)}}
    curves = [
        Curve(name, [Estimate(start, start - 2, start + 2), Estimate(93, 91, 95)]) for name, start in starts.items()
    ]
    panels = draw(curves, "turn", "Pass@1").axes
    assert len(panels) == 6 and all(axes.get_ylim()[0] > 85 for axes in panels if axes.get_visible())
    assert {len(axes.collections) for axes in panels if axes.get_visible()} == {2}, "bands: ours, and the panel's own"
    far = [Curve("base", [Estimate(40, 38, 42)] * 2), *curves[1:]]
    assert draw(far, "turn", "Pass@1").axes[0].get_ylim()[0] < 40, "the base ends below all others"
