"""What one turn of the whole loop achieved: ``cobalt report loop``, the last step of the quickstart.

Base and trained policy on the same problems, each with its own feedback and with that of another problem (a control:
what is gained from *reading* feedback must vanish there). Reads outputs of ``eval_multi_turn.py``; writes
``<output>.md``, ``.json``, ``.png`` and ``.svg``. Values in percent, differences in points, 95 % bootstrap intervals
over problems, differences paired by problem.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from cobalt.evaluation.counts import Evaluation, read_evaluation
from cobalt.evaluation.summary import Comparison, Gain, Summary, compare, summarise
from cobalt.evaluation.verdict_rule import recorded_rule
from cobalt.figures import Curve, Picture, pass1_picture
from cobalt.records import read_jsonl
from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import Cell, Table, in_percent


@dataclass(frozen=True, kw_only=True)
class LoopConfig(CommandConfig):
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
    """One policy's scores and numbers, with its own feedback and in the control."""

    evaluation: Evaluation
    own: Summary
    control: Summary
    gain: Gain
    control_gain: Gain


def main(config: LoopConfig) -> None:
    """Read the files, write the report, print the tables."""
    base, trained = _policy(config.base, config.base_control), _policy(config.trained, config.trained_control)
    differences = compare(trained.evaluation.problems, base.evaluation.problems, other="base")
    tables = [
        turn_table(base, trained, differences, recorded_rule(policy.evaluation.source for policy in (base, trained))),
        skill_table(base, trained, first_turn_row(config.base_first_turn)),
    ]
    markdown = "\n\n".join(table.to_markdown_section() for table in tables) + "\n"
    text, data = (config.output.with_suffix(suffix) for suffix in (".md", ".json"))
    flags = asdict(config)
    inputs = [path for name, path in flags.items() if name != "output"]
    with recorded_run("cobalt report loop", flags, inputs, {text: {}}):
        text.write_text(markdown)
        data.write_text(json.dumps([table.to_json() for table in tables], indent=2) + "\n")
        loop_picture(tables[0], text.stem).write(text.parent)
    print(markdown)


def _policy(own_path: Path, control_path: Path) -> Policy:
    evaluation = read_evaluation(own_path)
    own, control = summarise(evaluation.problems), summarise(read_evaluation(control_path).problems)
    return Policy(evaluation, own, control, _gain_of(own_path, own), _gain_of(control_path, control))


def _gain_of(path: Path, summary: Summary) -> Gain:
    if not summary.samples:
        raise InputError.at(path, None, "holds no evaluated sample")
    if summary.gain is None:
        raise InputError.at(path, None, "holds a single turn: nothing was repaired")
    return summary.gain


def loop_picture(table: Table, key: str) -> Picture:
    """Pass@1 by turn, from the first of the two tables."""
    curves = [Curve(name, table.estimates(name)) for name in ("base", "trained")]
    return pass1_picture(key, "Pass@1 by turn, before and after training", curves)


def turn_table(base: Policy, trained: Policy, differences: Comparison, rule: str) -> Table:
    """Pass@1 per turn, side by side; ``rule``: what decided the verdicts."""
    columns = zip(base.own.pass_at_1, trained.own.pass_at_1, differences.pass_at_1, strict=False)
    rows: list[list[Cell]] = [[cells[0].turn, *(in_percent(cell.estimate) for cell in cells)] for cells in columns]
    note = (
        f"Hidden tests, {differences.problems} problems, {base.own.samples} and "
        f"{trained.own.samples} samples. Turn t = number of feedbacks seen. {rule}"
    )
    return Table("pass1", "Pass@1 per turn (%)", note, ("turn", "base", "trained", "trained - base"), rows)


def first_turn_row(path: Path) -> list[Cell]:
    """Whether any of a single-turn file's n samples passes all tests, over problems: what sharpening could reach."""
    solved_PN = [
        [all(result["passing"]) for result in record["exec_results"] if result.get("infra_error") is None]
        for record in read_jsonl(path, ("id", "exec_results"))
    ]
    estimate = mean_estimate([float(any(solved_N)) for solved_N in solved_PN if solved_N])
    return [f"Pass@{max(map(len, solved_PN))} at turn 0", in_percent(estimate), None]


def skill_table(base: Policy, trained: Policy, first_turn: list[Cell]) -> Table:
    """What tells repair from feedback apart from a sharper first guess."""
    rows: list[list[Cell]] = []

    def add(name: str, estimate_of: Callable[[Policy], Estimate | None]) -> None:
        rows.append([name, *(in_percent(estimate_of(policy)) for policy in (base, trained))])

    last = base.gain.to_turn
    add(f"gain, turn 0 to {last}", lambda policy: policy.gain.estimate)
    add(f"gain, turn 0 to {last}, another problem's feedback", lambda policy: policy.control_gain.estimate)
    for index in range(last):
        name = f"solved at turn {index + 1}, if unsolved at {index}"
        add(name, lambda policy, index=index: policy.own.solved_after_unsolved[index].estimate)
    rows.append(first_turn)
    for name, place in (("first", 0), ("last", -1)):
        add(
            f"repeats its failed program, {name} feedback",
            lambda policy, place=place: policy.own.repeats[place].after_failure.estimate,
        )
    note = "Gains in points, the rest in percent. With another problem's feedback the gain from reading it must vanish."
    return Table("skill", "Repair, or only a sharper first guess?", note, ("", "base", "trained"), rows)
