"""Draws idea.svg, the idea of Cobalt in three steps: ``python docs/figures/idea.py``."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from cobalt.figures import FULL, GREYS, OURS, finished, new_figure, styled

HEIGHT = 2.75
PROGRAM, PASSED = 0.28, "#4B8B5A"
"""Side of a program's box, in inches; the colour of a pass."""
PALE, LINE = "#F4F4F4", 0.8
ROWS = (1.86, 1.36, 0.86)
"""Heights of what stands below each other."""
TRAJECTORIES = ("fp", "ffp", "fff")
"""Fate of each program: it fails or passes its public tests."""


@styled()
def main() -> None:
    """Three columns, from left to right."""
    figure = new_figure(FULL, HEIGHT)
    figure.set_layout_engine("none")  # places are in inches
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, FULL), ylim=(0, HEIGHT))
    axes.axis("off")
    _frame(axes, 0.06, 2.02, "1  Collect once", "offline")
    _frame(axes, 2.40, 1.92, "2  Cut", "partial trajectories")
    _frame(axes, 4.64, 2.20, "3  Write one program for each", "online GRPO")
    for x in (2.10, 4.34):
        _arrow(axes, (x, ROWS[1]), (x + 0.27, ROWS[1]), GREYS[3], 1.6)

    for y, fates in zip(ROWS, TRAJECTORIES, strict=True):
        _trajectory(axes, 0.20, y, fates)
    _note(axes, 1.07, "a reference model plays all turns,\nwith feedback from tests")

    for y, fates in zip(ROWS, ("", "f", "ff"), strict=True):
        end = _trajectory(axes, 2.52, y, fates)
        _program(axes, end, y, "?", OURS, "white")
    _note(axes, 3.36, "each prefix is a prompt that\nends where a program is due")

    _program(axes, 4.78, ROWS[1], "?", OURS, "white")
    for y, fate in zip(ROWS, "pfp", strict=True):
        _arrow(axes, (4.78 + PROGRAM, ROWS[1]), (5.46, y), OURS, 0.9)
        _program(axes, 5.48, y, "y", OURS, OURS)
        _mark(axes, 5.48 + PROGRAM, y + PROGRAM / 2, fate)
        axes.text(5.92, y, "high reward" if fate == "p" else "low reward", va="center", color=GREYS[3], fontsize=8)
    axes.text(5.06, ROWS[0] - 0.02, "policy", ha="center", va="center", color=OURS, fontsize=8)
    _note(axes, 5.74, "a contextual bandit: one program,\none reward, no later turn to play")
    picture = finished(
        figure,
        "idea",
        "Trajectories are collected once, cut into partial trajectories, and the policy writes one program for each",
    )
    Path(__file__).with_name("idea.svg").write_bytes(picture.svg)


def _frame(axes: Axes, x: float, width: float, title: str, subtitle: str) -> None:
    box = FancyBboxPatch((x, 0.08), width, HEIGHT - 0.16, "round,pad=0,rounding_size=0.08", fc="white", ec=GREYS[0])
    box.set_linewidth(LINE)
    axes.add_patch(box)
    axes.text(x + 0.12, HEIGHT - 0.26, title, weight="bold", fontsize=8.5, va="center")
    axes.text(x + 0.12, HEIGHT - 0.48, subtitle, fontsize=8, va="center", color=OURS)


def _trajectory(axes: Axes, x: float, y: float, fates: str) -> float:
    """Problem, then programs with their feedback; returns where the next program would stand."""
    _program(axes, x, y, "x", GREYS[3], PALE, is_problem=True)
    x += PROGRAM + 0.16
    for fate in fates:
        axes.plot([x - 0.16, x], [y, y], color=GREYS[1], lw=LINE)
        _program(axes, x, y, "y", GREYS[3], "white")
        _mark(axes, x + PROGRAM, y + PROGRAM / 2, fate)
        x += PROGRAM + 0.16
    return x


def _program(axes: Axes, x: float, y: float, name: str, edge: str, face: str, is_problem: bool = False) -> None:
    style = f"{'circle' if is_problem else 'round'},pad=0" + ("" if is_problem else ",rounding_size=0.04")
    axes.add_patch(FancyBboxPatch((x, y - PROGRAM / 2), PROGRAM, PROGRAM, style, fc=face, ec=edge, lw=LINE, zorder=2))
    colour = "white" if face == OURS else edge
    axes.text(x + PROGRAM / 2, y, f"${name}$", ha="center", va="center", color=colour, fontsize=9, zorder=3)


def _mark(axes: Axes, x: float, y: float, fate: str) -> None:
    """A tick or a cross: drawn, since not every font has them."""
    size = 0.045
    colour = PASSED if fate == "p" else GREYS[3]
    axes.add_patch(
        FancyBboxPatch((x - 0.075, y - 0.075), 0.15, 0.15, "circle,pad=0", fc="white", ec=colour, lw=0.7, zorder=4)
    )
    strokes = (
        [([-1, -0.2, 1], [0, -0.8, 0.9])] if fate == "p" else [([-0.8, 0.8], [-0.8, 0.8]), ([-0.8, 0.8], [0.8, -0.8])]
    )
    for xs, ys in strokes:
        axes.plot([x + size * dx for dx in xs], [y + size * dy for dy in ys], color=colour, lw=1.1, zorder=5)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=8, color=colour, lw=width, shrinkA=0, shrinkB=0)
    )


def _note(axes: Axes, x: float, text: str) -> None:
    axes.text(x, 0.34, text, ha="center", va="center", color=GREYS[3], fontsize=7.8, linespacing=1.3)


if __name__ == "__main__":
    main()
