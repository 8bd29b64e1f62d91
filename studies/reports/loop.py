"""What one turn of the whole loop achieved: ``cobalt report loop``, the last step of the quickstart.

Base and trained policy on the same problems, each with its own feedback and with that of another problem (a control:
what is gained from *reading* feedback must vanish there). Reads outputs of ``eval_multi_turn.py``. Values in percent,
differences in points, 95 % bootstrap intervals over problems, differences paired by problem.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.evaluation.files import read_evaluation, recorded_rule
from cobalt.evaluation.summary import Gain, compare, summarise
from cobalt.figures import Curve, Picture
from cobalt.records import read_jsonl
from cobalt.records.manifest import recorded_run
from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import Cell, in_percent
from studies.figures import pass1_picture
from studies.reports.page import Section, Table, table_of, write_report


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


def main(config: LoopConfig) -> None:
    names = ("base", "trained", "base_control", "trained_control")
    evaluations = {name: read_evaluation(getattr(config, name)) for name in names}
    found = {name: summarise(evaluation.problems) for name, evaluation in evaluations.items()}
    gains: dict[str, Gain] = {}
    for name, summary in found.items():
        if not summary.samples:
            raise InputError.at(evaluations[name].path, None, "holds no evaluated sample")
        if summary.gain is None:
            raise InputError.at(evaluations[name].path, None, "holds a single turn: nothing was repaired")
        gains[name] = summary.gain
    differences = compare(evaluations["trained"].problems, evaluations["base"].problems, other="base")
    rule = recorded_rule(evaluations[name].source for name in ("base", "trained"))
    columns = zip(found["base"].pass_at_1, found["trained"].pass_at_1, differences.pass_at_1, strict=False)
    pass1 = table_of(
        config.output.with_suffix("").name,
        "Pass@1 per turn (%)",
        f"Hidden tests, {differences.problems} problems, {found['base'].samples} and {found['trained'].samples} "
        f"samples. Turn t = number of feedbacks seen. {rule}",
        [
            {
                "turn": before.turn,
                "base": in_percent(before.estimate),
                "trained": in_percent(after.estimate),
                "trained - base": in_percent(difference.estimate),
            }
            for before, after, difference in columns
        ],
    )
    rows: list[Mapping[str, Cell]] = []

    def add(name: str, estimate_of: Callable[[str], Estimate | None]) -> None:
        rows.append({"": name, **{policy: in_percent(estimate_of(policy)) for policy in ("base", "trained")}})

    last = gains["base"].to_turn
    add(f"gain, turn 0 to {last}", lambda policy: gains[policy].estimate)
    add(f"gain, turn 0 to {last}, another problem's feedback", lambda policy: gains[f"{policy}_control"].estimate)
    for index in range(last):
        name = f"solved at turn {index + 1}, if unsolved at {index}"
        add(name, lambda policy, index=index: found[policy].solved_after_unsolved[index].estimate)
    # Whether any of the n samples of the single-turn file passes all tests: what sharpening could reach.
    solved_PN = [
        [all(result["passing"]) for result in record["exec_results"] if result.get("infra_error") is None]
        for record in read_jsonl(config.base_first_turn, ("id", "exec_results"))
    ]
    reached = mean_estimate([float(any(solved_N)) for solved_N in solved_PN if solved_N])
    rows.append({"": f"Pass@{max(map(len, solved_PN))} at turn 0", "base": in_percent(reached), "trained": None})
    for name, place in (("first", 0), ("last", -1)):
        add(
            f"repeats its failed program, {name} feedback",
            lambda policy, place=place: found[policy].repeats[place].after_failure.estimate,
        )
    skill = table_of(
        f"{pass1.key}.skill",
        "Repair, or only a sharper first guess?",
        "Gains in points, the rest in percent. With another problem's feedback the gain from reading it must vanish.",
        rows,
    )
    page = config.output.with_suffix(".md")
    flags = asdict(config)
    inputs = [path for name, path in flags.items() if name != "output"]
    with recorded_run("cobalt report loop", flags, inputs, {page: {}}):
        section = Section("", [pass1, skill], [loop_picture(pass1)])
        write_report(page, [section], [pass1.to_json(), skill.to_json()])
    print("\n\n".join(table.to_markdown_section() for table in (pass1, skill)) + "\n")


def loop_picture(table: Table) -> Picture:
    """Pass@1 by turn, from the first of the two tables, which names the files."""
    curves = [Curve(name, table.estimates(name)) for name in ("base", "trained")]
    return pass1_picture(table.key, "Pass@1 by turn, before and after training", curves)
