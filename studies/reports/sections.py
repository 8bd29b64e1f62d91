"""The parts of a report, in the paper's order; a part appears if files for it are given."""

from collections.abc import Iterable, Mapping, Sequence

from cobalt.figures import Picture
from cobalt.tables import Table
from studies.reports.bill import bill_table
from studies.reports.examples import Example, pick_examples
from studies.reports.gain_tables import Gains, gain_table, gains_over_baseline, horizon_table, method_table
from studies.reports.hacking_tables import (
    category_table,
    hacking_table,
    judge_free_table,
    previous_table,
    repetitions_table,
    turn_tables,
)
from studies.reports.material import CONDITIONS, SETS, Material
from studies.reports.page import Section
from studies.reports.pictures import pictures_of, reward_picture
from studies.reports.primary import primary_tables
from studies.reports.score_tables import pass1_table, perturbation_cost_table, repair_table
from studies.reports.training_tables import cost_table, reach_table, reuse_table, reward_table


def all_sections(material: Material) -> list[Section]:
    """Those that the material allows."""
    gains = {condition: gains_over_baseline(material, condition) for condition in CONDITIONS}
    sections = [
        _main_results(material, gains),
        _training_cost(material),
        _section("Beyond the turns of training", [horizon_table(material, condition) for condition in SETS]),
        _wrong_feedback(material, gains),
        _section("Data reuse", [reuse_table(material)]),
    ]
    return [section for section in sections if section.tables]


def _section(
    title: str,
    tables: Iterable[Table | None],
    pictures: Sequence[Picture] = (),
    examples: Sequence[Example] = (),
) -> Section:
    """Without what there is nothing for; ``pictures`` beside those of the tables."""
    shown = [table for table in tables if table is not None]
    return Section(title, shown, [*pictures_of(shown), *pictures], examples)


def _main_results(material: Material, gains: Mapping[str, Gains]) -> Section:
    tables: list[Table | None] = []
    for condition in SETS:
        tables += [pass1_table(material, condition), gain_table(material, condition, gains[condition])]
        tables += [method_table(material, condition), *primary_tables(material, condition)]
    tables.append(repair_table(material))
    return _section("Main results", tables)


def _training_cost(material: Material) -> Section:
    bills = bill_table(material.bills, material.method) if material.bills else None
    logs = cost_table(material) if not material.logs.keys() <= material.bills.keys() else None
    pictures = [reward_picture(material.logs)] if material.logs else []
    return _section("Training cost", [bills, logs, reach_table(material), reward_table(material)], pictures)


def _wrong_feedback(material: Material, gains: Mapping[str, Gains]) -> Section:
    tables = [
        pass1_table(material, "perturbed"),
        gain_table(material, "perturbed", gains["perturbed"]),
        perturbation_cost_table(material),
        hacking_table(material),
        repetitions_table(material),
        judge_free_table(material),
        previous_table(material),
        *turn_tables(material),
        category_table(material),
    ]
    return _section("Wrong feedback and reward hacking", tables, examples=pick_examples(material))
