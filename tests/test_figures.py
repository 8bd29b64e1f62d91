"""Pass@1 figures: what is drawn where, and that drawing alone needs matplotlib."""

import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from cobalt import figures
from cobalt.figures import COLOURS, Curve, colours_of, pass1_png
from cobalt.statistics import Estimate

BANDED = Curve([Estimate(10, 5, 15), None, Estimate(30, 20, 40)], "own", COLOURS[1])
CONTROL = Curve([Estimate(10, 5, 15), Estimate(12, 6, 18)], "other", COLOURS[1], is_control=True)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that became PNGs."""
    found: list[Figure] = []
    png_bytes = figures.png_bytes
    monkeypatch.setattr(figures, "png_bytes", lambda figure: found.append(figure) or png_bytes(figure))
    return found


def test_a_line_joins_the_turns_that_have_a_value(drawn: list[Figure]) -> None:
    pass1_png([BANDED, CONTROL])
    own, control = drawn[0].axes[0].lines
    assert (list(own.get_xdata()), list(own.get_ydata())) == ([0, 2], [10, 30])
    assert list(control.get_ydata()) == [10, 12]


def test_a_control_is_dashed_and_has_no_band(drawn: list[Figure]) -> None:
    pass1_png([BANDED])
    pass1_png([CONTROL])
    (own,), (control,) = (figure.axes[0].lines for figure in drawn)
    assert (own.get_linestyle(), control.get_linestyle()) == ("-", "--")
    assert own.get_color() == control.get_color()
    assert [len(figure.axes[0].collections) for figure in drawn] == [1, 0]


def test_many_curves_have_bars_side_by_side_instead_of_bands(drawn: list[Figure]) -> None:
    curves = [Curve(BANDED.percents_T, str(index), colour) for index, colour in enumerate(COLOURS[:6])]
    pass1_png([*curves, CONTROL])
    (axes,) = drawn[0].axes
    assert len(axes.containers) == 6 and len({container[0].get_xdata()[0] for container in axes.containers}) == 6
    (bars,) = axes.containers[0][2]
    (low, high), _ = ([point[1] for point in segment] for segment in bars.get_segments())
    assert (low, high) == (5, 15)


def test_a_colour_that_comes_again_is_dotted(drawn: list[Figure]) -> None:
    names = [f"run {number}" for number in range(len(COLOURS) + 2)]
    pass1_png(
        [
            Curve([Estimate(number, 0, 99)], name, colour)
            for number, (name, colour) in enumerate(colours_of(names).items())
        ]
    )
    styles = [bars.lines[0].get_linestyle() for bars in drawn[0].axes[0].containers]
    assert styles == ["-"] * len(COLOURS) + [":"] * 2


def test_labels_lie_beside_the_axes(drawn: list[Figure]) -> None:
    pass1_png([Curve(BANDED.percents_T, f"{index} {'long ' * 9}") for index in range(7)])
    (legend,) = drawn[0].legends
    assert not legend.get_window_extent().overlaps(drawn[0].axes[0].get_window_extent())
    assert drawn[0].bbox.containsx(legend.get_window_extent().x0)
    assert len(legend.get_texts()) == 7


def test_a_curve_without_a_label_needs_no_legend(drawn: list[Figure]) -> None:
    pass1_png([Curve([])])
    assert not drawn[0].legends


def test_equal_curves_are_equal_bytes() -> None:
    assert pass1_png([BANDED, CONTROL], "t") == pass1_png([BANDED, CONTROL], "t")


def test_the_first_names_have_colours_of_their_own() -> None:
    names = [str(index) for index in range(len(COLOURS) + 1)]
    colours = colours_of(names)
    assert len({colours[name] for name in names[:-1]}) == len(COLOURS)
    assert colours[names[-1]] == colours[names[0]]


def test_importing_the_style_loads_no_matplotlib() -> None:
    code = "import sys, cobalt.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
