"""The report of one evaluated file: Markdown, JSON and a figure with Pass@1 per turn."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Numbers = dict[str, Any]

FIGURE_INCHES = (6.0, 4.0)
FIGURE_DPI = 150


def report_path(output: Path, suffix: str) -> Path:
    """Where the report of ``output`` lives; ``suffix`` is md, json or png."""
    return output.with_name(f"{output.name}.report.{suffix}")


def write_report(output: Path, numbers: Numbers) -> str:
    """Write the three files beside ``output``; returns the Markdown."""
    markdown = render_markdown(numbers)
    report_path(output, "json").write_text(json.dumps(numbers, indent=2) + "\n")
    report_path(output, "md").write_text(markdown)
    draw(numbers, report_path(output, "png"))
    return markdown


def render_markdown(numbers: Numbers) -> str:
    """All tables; Pass@1 and shares in percent, differences in points, with 95 % intervals over problems."""
    parts = [
        f"# {numbers['file']}\n",
        f"{numbers['problems']} problems, {numbers['samples']} samples, {numbers['turns']} turns; "
        f"{numbers['excluded_infra']} samples excluded after infrastructure failures. "
        f"Checker `{numbers['execution']['checker']}`. "
        "Turn t = number of feedbacks seen; 95 % bootstrap intervals over problems.\n",
        _turn_table(numbers),
    ]
    if numbers["gain"]:
        gain = numbers["gain"]
        parts.append(f"Gain from turn 0 to turn {gain['to_turn']}: {_points(gain)} points.\n")
    if "compare" in numbers:
        parts.append(_compare_table(numbers["compare"]))
    parts.append(_pass_at_k_table(numbers["pass_at_k"]))
    for title, key in (("Difficulty", "by_difficulty"), ("Platform", "by_platform")):
        parts.append(_breakdown_table(title, numbers[key]))
    return "\n".join(parts)


def _turn_table(numbers: Numbers) -> str:
    later = zip(numbers["solved_after_unsolved"], numbers["repeats"], strict=True)
    shares = [["", "", ""]] + [
        [_percent(solved), _percent(repeats["all"]), _percent(repeats["after_failure"])] for solved, repeats in later
    ]
    rows = [
        [row["turn"], _percent(row), _change(row["relative_change"]), *share]
        for row, share in zip(numbers["pass_at_1"], shares, strict=False)
    ]
    return _table(
        ["Turn", "Pass@1", "vs turn 0", "solved, if unsolved before", "repeated program", "repeated, if it failed"],
        rows,
    )


def _compare_table(compared: Numbers) -> str:
    title = f"Difference to {compared['other']} ({compared['problems']} common problems)\n\n"
    rows = [[row["turn"], _points(row)] for row in compared["pass_at_1"]]
    return title + _table(["Turn", "Pass@1 difference (points)"], rows)


def _pass_at_k_table(pass_at_k: Numbers) -> str:
    turns = len(next(iter(pass_at_k.values()), []))
    rows = [[f"Pass@{k}", *(_percent(row, interval=False) for row in rows_T)] for k, rows_T in pass_at_k.items()]
    return _table(["", *(f"turn {turn}" for turn in range(turns))], rows)


def _breakdown_table(title: str, groups: Numbers) -> str:
    turns = max((len(rows) for rows in groups.values()), default=0)
    rows = [
        [name, rows_T[0]["problems"] if rows_T else 0, *(_percent(row, interval=False) for row in rows_T)]
        for name, rows_T in groups.items()
    ]
    return _table([title, "problems", *(f"turn {turn}" for turn in range(turns))], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _percent(number: Numbers, interval: bool = True) -> str:
    if number["value"] is None:
        return "–"
    text = f"{100 * number['value']:.1f}"
    return (
        f"{text} [{100 * number['low']:.1f}, {100 * number['high']:.1f}]"
        if interval and number["low"] is not None
        else text
    )


def _points(number: Numbers) -> str:
    text = f"{100 * number['value']:+.1f}"
    return text if number["low"] is None else f"{text} [{100 * number['low']:+.1f}, {100 * number['high']:+.1f}]"


def _change(relative: float | None) -> str:
    return "–" if relative is None else f"{100 * relative:+.0f} %"


def draw(numbers: Numbers, path: Path) -> None:
    """Pass@1 per turn with its interval as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=FIGURE_INCHES, dpi=FIGURE_DPI, layout="constrained")
    axes = figure.subplots()
    rows = numbers["pass_at_1"]
    turns = [row["turn"] for row in rows]
    values = [100 * row["value"] for row in rows]
    axes.plot(turns, values, marker="o")
    if rows and rows[0]["low"] is not None:
        low, high = ([100 * row[side] for row in rows] for side in ("low", "high"))
        axes.fill_between(turns, low, high, alpha=0.2)
    axes.set(xlabel="turn (feedbacks seen)", ylabel="Pass@1, hidden tests (%)", title=numbers["file"], xticks=turns)
    axes.grid(alpha=0.3)
    figure.savefig(path)
