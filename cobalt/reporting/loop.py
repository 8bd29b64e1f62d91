"""What one turn of the whole loop achieved: ``python -m cobalt.reporting.loop``, the last step of the quickstart.

Base and trained policy on the same problems, each with its own feedback and with that of another problem (a control:
what is gained from *reading* feedback must vanish there). Reads outputs of ``eval_multi_turn.py``; writes
``<output>.md``, ``.json`` and ``.png``. Values in percent, differences in points, 95 % bootstrap intervals over
problems, differences paired by problem.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.evaluation.scores import ProblemScores, read_scores
from cobalt.evaluation.summary import Numbers, compare, summarise
from cobalt.records import Manifest, read_jsonl
from cobalt.reporting.figures import COLOURS, DPI
from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import Cell, Table

PERCENT = 100.0
INCHES = (6.4, 4.2)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Write one table and one figure: Pass@1 per turn of the base and the trained policy, and the controls."""

    base: Path
    """Evaluated base policy."""
    trained: Path
    """Evaluated trained policy, on the same problems."""
    base_first_turn: Path
    """The base policy's single-turn file: Pass@n at turn 0 over all of its samples."""
    base_control: Path
    """Evaluated base policy that was shown another problem's feedback."""
    trained_control: Path
    """Evaluated trained policy that was shown another problem's feedback."""
    output: Path
    """Where to write, without a suffix."""


@dataclass(frozen=True)
class Policy:
    """One policy's numbers, with its own feedback and in the control."""

    scores: list[ProblemScores]
    numbers: Numbers
    control: Numbers


def main(flags: LoopConfig) -> None:
    """Read the files, write the three, print the tables."""
    base, trained = _policy(flags.base, flags.base_control), _policy(flags.trained, flags.trained_control)
    differences = compare(trained.scores, base.scores)
    tables = [
        pass1_table(base, trained, differences),
        skill_table(base, trained, first_turn_row(flags.base_first_turn)),
    ]
    inputs = [path for name, path in asdict(flags).items() if name != "output"]
    manifest = Manifest(flags.output.with_suffix(".md"), "cobalt.reporting.loop", asdict(flags), {}, inputs)
    manifest.refuse_other_content()
    manifest.start()
    markdown = "\n\n".join(f"## {table.title}\n\n{table.note}\n\n{table.to_markdown()}" for table in tables) + "\n"
    flags.output.with_suffix(".md").write_text(markdown)
    flags.output.with_suffix(".json").write_text(json.dumps([table.to_json() for table in tables], indent=2) + "\n")
    draw({"base": base, "trained": trained}, flags.output.with_suffix(".png"))
    manifest.done()
    print(markdown)


def _policy(own: Path, control: Path) -> Policy:
    scores = read_scores(own)
    for path, read in ((own, scores), (control, read_scores(control))):
        if not any(problem.solved_NT for problem in read):
            raise InputError.at(path, None, "holds no evaluated sample")
    return Policy(scores, summarise(scores), summarise(read_scores(control)))


def _scaled(numbers: Numbers) -> Cell:
    """An estimate in percent or points."""
    if numbers["value"] is None:
        return None
    low, high = (None if numbers[side] is None else PERCENT * numbers[side] for side in ("low", "high"))
    return Estimate(PERCENT * numbers["value"], low, high)


def pass1_table(base: Policy, trained: Policy, differences: Numbers) -> Table:
    """Pass@1 per turn, side by side."""
    columns = zip(base.numbers["pass_at_1"], trained.numbers["pass_at_1"], differences["pass_at_1"], strict=False)
    rows: list[list[Cell]] = [
        [first["turn"], *map(_scaled, (first, second, third))] for first, second, third in columns
    ]
    note = (
        f"Hidden tests, {differences['problems']} problems, {base.numbers['samples']} and "
        f"{trained.numbers['samples']} samples. Turn t = number of feedbacks seen."
    )
    return Table("pass1", "Pass@1 per turn (%)", note, ("turn", "base", "trained", "trained - base"), rows)


def first_turn_row(path: Path) -> list[Cell]:
    """Whether any of a single-turn file's n samples passes all tests, over problems: what sharpening could reach."""
    solved_PN = [
        [all(result["passing"]) for result in record["exec_results"] if result.get("infra_error") is None]
        for record in read_jsonl(path, ("id", "exec_results"))
    ]
    estimate = mean_estimate([float(any(solved_N)) for solved_N in solved_PN if solved_N])
    return [f"Pass@{max(map(len, solved_PN))} at turn 0", _scaled(asdict(estimate)), None]


def skill_table(base: Policy, trained: Policy, first_turn: list[Cell]) -> Table:
    """What tells repair from feedback apart from a sharper first guess."""
    rows: list[list[Cell]] = []

    def add(name: str, number: Any) -> None:
        rows.append([name, *(_scaled(number(policy)) for policy in (base, trained))])

    last = base.numbers["gain"]["to_turn"]
    add(f"gain, turn 0 to {last}", lambda policy: policy.numbers["gain"])
    add(f"gain, turn 0 to {last}, another problem's feedback", lambda policy: policy.control["gain"])
    for index in range(last):
        name = f"solved at turn {index + 1}, if unsolved at {index}"
        add(name, lambda policy, index=index: policy.numbers["solved_after_unsolved"][index])
    rows.append(first_turn)
    for name, turn in (("first", 0), ("last", -1)):
        add(
            f"repeats its failed program, {name} feedback",
            lambda policy, turn=turn: policy.numbers["repeats"][turn]["after_failure"],
        )
    note = "Gains in points, the rest in percent. With another problem's feedback the gain from reading it must vanish."
    return Table("skill", "Repair, or only a sharper first guess?", note, ("", "base", "trained"), rows)


def draw(policies: dict[str, Policy], path: Path) -> None:
    """Pass@1 per turn: own feedback as lines with bands, the control dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    axes = figure.subplots()
    for (name, policy), colour in zip(policies.items(), COLOURS, strict=False):
        rows = policy.numbers["pass_at_1"]
        turns = [row["turn"] for row in rows]
        axes.plot(turns, _percents(rows, "value"), marker="o", color=colour, label=name)
        axes.fill_between(turns, _percents(rows, "low"), _percents(rows, "high"), color=colour, alpha=0.15)
        control = policy.control["pass_at_1"]
        label = f"{name}, another problem's feedback"
        axes.plot([row["turn"] for row in control], _percents(control, "value"), "--", color=colour, label=label)
    axes.set(xlabel="turn (feedbacks seen)", ylabel="Pass@1, hidden tests (%)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _percents(rows: Sequence[Numbers], name: str) -> list[float]:
    """One value per turn; an interval that is not defined (one problem) is drawn as its value."""
    return [PERCENT * (row["value"] if row[name] is None else row[name]) for row in rows]


if __name__ == "__main__":
    from cobalt.commands.entry import run

    run(LoopConfig, main)
