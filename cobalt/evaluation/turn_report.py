"""The report of one evaluated file: Markdown, JSON and a figure with Pass@1 per turn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cobalt.evaluation.summary import Comparison, Summary, TurnRate, to_json
from cobalt.evaluation.verdict_rule import verdict_rule
from cobalt.figures import Curve, pass1_picture
from cobalt.statistics import Estimate
from cobalt.tables import PERCENT, in_percent, markdown_table, show


@dataclass(frozen=True)
class TurnReport:
    """What is reported."""

    file: str
    """Name of the evaluated file."""
    execution: dict[str, Any]
    """What decided the verdicts; checker and CPU limits are shown."""
    summary: Summary
    comparison: Comparison | None = None

    def to_json(self) -> dict[str, Any]:
        """The file's JSON."""
        compared = {"compare": to_json(self.comparison)} if self.comparison else {}
        return {"file": self.file, "execution": self.execution, **to_json(self.summary), **compared}


def report_path(output: Path, suffix: str) -> Path:
    """Where the report of ``output`` lives; ``suffix`` is md or json."""
    return output.with_name(f"{output.name}.report.{suffix}")


def write_report(output: Path, report: TurnReport) -> str:
    """Write them, and the figure as PNG and SVG, beside ``output``; returns the Markdown."""
    markdown = render_markdown(report)
    report_path(output, "json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    report_path(output, "md").write_text(markdown)
    curve = Curve(report.file, [in_percent(row.estimate) for row in report.summary.pass_at_1])
    pass1_picture(f"{output.name}.report", "Pass@1 by turn", [curve], title=report.file).write(output.parent)
    return markdown


def render_markdown(report: TurnReport) -> str:
    """All tables; Pass@1 and shares in percent, differences in points, with 95 % intervals over problems."""
    summary = report.summary
    parts = [
        f"# {report.file}\n",
        f"{summary.problems} problems, {summary.samples} samples, {summary.turns} turns; "
        f"{summary.excluded_infra} samples excluded after infrastructure failures. "
        f"{verdict_rule(report.execution)} "
        "Turn t = number of feedbacks seen; 95 % bootstrap intervals over problems.\n",
        _turn_table(summary),
    ]
    if summary.gain:
        gain = _points(summary.gain.estimate)
        parts.append(f"Gain from turn {summary.gain.from_turn} to turn {summary.gain.to_turn}: {gain} points.\n")
    if report.comparison:
        parts.append(_compare_table(report.comparison))
    parts.append(_pass_at_k_table(summary.pass_at_k))
    parts += [_breakdown_table("Difficulty", summary.by_difficulty), _breakdown_table("Platform", summary.by_platform)]
    return "\n".join(parts)


def _turn_table(summary: Summary) -> str:
    shares = [["", "", ""]] + [
        [_percent(solved.estimate), _percent(repeats.all.estimate), _percent(repeats.after_failure.estimate)]
        for solved, repeats in zip(summary.solved_after_unsolved, summary.repeats, strict=True)
    ]
    rows = [
        [str(row.turn), _percent(row.estimate), _change(row.relative_change), *share]
        for row, share in zip(summary.pass_at_1, shares, strict=False)
    ]
    return _table(
        ["Turn", "Pass@1", "vs turn 0", "solved, if unsolved before", "repeated program", "repeated, if it failed"],
        rows,
    )


def _compare_table(compared: Comparison) -> str:
    title = f"Difference to {compared.other} ({compared.problems} common problems)\n\n"
    rows = [[str(row.turn), _points(row.estimate)] for row in compared.pass_at_1]
    return title + _table(["Turn", "Pass@1 difference (points)"], rows)


def _pass_at_k_table(pass_at_k: Mapping[int, Sequence[TurnRate]]) -> str:
    turns = len(next(iter(pass_at_k.values()), []))
    rows = [[f"Pass@{k}", *_values(rates_T)] for k, rates_T in pass_at_k.items()]
    return _table(["", *(f"turn {turn}" for turn in range(turns))], rows)


def _breakdown_table(title: str, groups: Mapping[str, Sequence[TurnRate]]) -> str:
    turns = max((len(rates_T) for rates_T in groups.values()), default=0)
    rows = [[name, str(rates_T[0].problems), *_values(rates_T)] for name, rates_T in groups.items()]
    return _table([title, "problems", *(f"turn {turn}" for turn in range(turns))], rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown_table(columns, rows) + "\n"


def _values(rates_T: Sequence[TurnRate]) -> list[str]:
    """In percent, without intervals."""
    estimates = (rate.estimate for rate in rates_T)
    return [
        _percent(estimate if estimate is None else replace(estimate, low=None, high=None)) for estimate in estimates
    ]


def _percent(estimate: Estimate | None) -> str:
    return show(in_percent(estimate))


def _points(difference: Estimate) -> str:
    text = f"{PERCENT * difference.value:+.1f}"
    if difference.low is None or difference.high is None:
        return text
    return f"{text} [{PERCENT * difference.low:+.1f}, {PERCENT * difference.high:+.1f}]"


def _change(relative: float | None) -> str:
    return "–" if relative is None else f"{PERCENT * relative:+.0f} %"
