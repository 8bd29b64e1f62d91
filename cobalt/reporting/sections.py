"""The parts of a report, in the paper's order; a part appears if files for it are given."""

from collections.abc import Iterable, Mapping, Sequence

from cobalt.reporting.bill import bill_table
from cobalt.reporting.examples import Example, pick_examples
from cobalt.reporting.gain_tables import Gains, gain_table, gains_over_baseline, horizon_table, method_table
from cobalt.reporting.hacking_tables import (
    category_table,
    hacking_table,
    judge_free_table,
    previous_table,
    repetitions_table,
    turn_tables,
)
from cobalt.reporting.material import CONDITIONS, SETS, Material
from cobalt.reporting.page import Section
from cobalt.reporting.pictures import (
    Picture,
    gain_pictures,
    hacking_picture,
    learning_picture,
    pass1_pictures,
    reward_picture,
)
from cobalt.reporting.primary import primary_tables
from cobalt.reporting.published import published_table
from cobalt.reporting.score_tables import pass1_table, perturbation_cost_table, repair_table
from cobalt.reporting.training_tables import cost_table, reach_table, reuse_table, reward_table
from cobalt.tables import Table


def all_sections(material: Material, colours: Mapping[str, str], published: bool) -> list[Section]:
    """Those that the material allows; ``colours`` by run."""
    gains = {condition: gains_over_baseline(material, condition) for condition in CONDITIONS}
    pass1 = pass1_pictures(material, colours)
    sections = [
        _main_results(material, gains, pass1),
        _training_cost(material, colours),
        _horizon(material, gains, colours),
        _wrong_feedback(material, gains, pass1, colours),
        _section("Data reuse", [reuse_table(material)]),
        _section("Published figures", [published_table(material) if published else None]),
    ]
    return [section for section in sections if section.tables]


def _section(
    title: str,
    tables: Iterable[Table | None],
    pictures: Iterable[Picture | None] = (),
    examples: Sequence[Example] = (),
) -> Section:
    """Without what there is nothing for."""
    shown = [table for table in tables if table is not None]
    return Section(title, shown, [picture for picture in pictures if picture is not None], examples)


def _main_results(material: Material, gains: Mapping[str, Gains], pass1: Mapping[str, Picture]) -> Section:
    tables: list[Table | None] = []
    for condition in SETS:
        tables += [pass1_table(material, condition), gain_table(material, condition, gains[condition])]
        tables += [method_table(material, condition), *primary_tables(material, condition)]
    tables.append(repair_table(material))
    return _section("Main results", tables, [pass1.get(condition) for condition in SETS])


def _training_cost(material: Material, colours: Mapping[str, str]) -> Section:
    bills = bill_table(material.bills, material.method) if material.bills else None
    logs = cost_table(material) if not material.logs.keys() <= material.bills.keys() else None
    pictures = [learning_picture(material, colours), reward_picture(material, colours) if material.logs else None]
    return _section("Training cost", [bills, logs, reach_table(material), reward_table(material)], pictures)


def _horizon(material: Material, gains: Mapping[str, Gains], colours: Mapping[str, str]) -> Section:
    tables = {condition: horizon_table(material, condition) for condition in SETS}
    shown = {condition: gains[condition] for condition, table in tables.items() if table is not None}
    return _section("Beyond the turns of training", tables.values(), gain_pictures(material, shown, colours))


def _wrong_feedback(
    material: Material, gains: Mapping[str, Gains], pass1: Mapping[str, Picture], colours: Mapping[str, str]
) -> Section:
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
    pictures = [pass1.get("perturbed"), hacking_picture(material, colours) if material.hacking else None]
    return _section("Wrong feedback and reward hacking", tables, pictures, pick_examples(material))
