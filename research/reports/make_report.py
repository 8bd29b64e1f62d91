"""``research report``: from result files of named runs to one HTML page, Markdown, JSON, PNG and SVG."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary
from cobalt.cli.flags import CommandConfig
from cobalt.errors import InputError
from cobalt.evaluation.files import SUFFIX, Evaluation, write_counts
from cobalt.figures import Picture
from cobalt.records.jsonl import write_whole
from cobalt.records.manifest import recorded_run
from research.reports import scores
from research.reports.bill import bill_table
from research.reports.hacking_tables import hacking_tables
from research.reports.page import Section, Table, render_html, write_report
from research.reports.pictures import pictures_of, training_pictures
from research.reports.runs import CONDITIONS, SETS, Material, NamedRun, origin_tables, parse_runs, read_material
from research.reports.training_tables import cost_table, reach_table, reuse_table, reward_table, turns_table
from research.seeds import FEW_TRAININGS


@dataclass(frozen=True, kw_only=True)
class ReportConfig(CommandConfig):
    """Tables and figures from the result files of any number of named runs."""

    files: tuple[str, ...]
    """NAME:KIND=PATH, any number. KIND: clean, shifted (the same on a second test set), perturbed (eval_multi_turn.py),
    hacking (extract_turn_level_errors.py), judged (run_llm_judge.py), log (metrics.jsonl of training, or veRL's console
    log), control (eval_multi_turn.py after run_multi_turn_*.py --feedback_from other_problem), cost (report
    cost). Several files of one NAME:KIND are repetitions, for example training seeds. A *.counts.json file stands for
    all of those that it was made from."""
    output_dir: Path
    """Folder for report.html, report.md, report.json, a PNG and an SVG for each figure, and
    counts/, from which the tables of Pass@1 can be made again."""
    title: str = "Cobalt results"
    baseline: str | None = None
    """Run that the others are compared with; default: the first one named."""
    method: str | None = None
    """Run that is tested against each of the others; against trained ones with Holm's correction. Default: none."""
    pairs: tuple[str, ...] = ()
    """FIRST=SECOND, names of runs: further tests, outside that family."""


def make_report(config: ReportConfig) -> None:
    runs = parse_runs(config.files)
    material = read_material(runs, config.baseline or runs[0].name, config.method, config.pairs)
    paths = {run.name: [str(path) for files in run.files.values() for path in files] for run in runs}
    inputs = [path for of_run in paths.values() for path in of_run]
    counts = counts_files(runs)
    page = config.output_dir / "report.html"
    with recorded_run("research report", asdict(config), inputs, {page: {"files": config.files}}) as run:
        sections = [*all_sections(material), Section("Where the numbers come from", origin_tables(runs))]
        compared = f"Baseline: {material.baseline}." + (f" Method: {material.method}." if material.method else "")
        opening = (
            f"{compared} Intervals of 95 % are over problems and, for runs with several repetitions (training seeds), "
            f"over these. They are of the bootstrap. Where a run has two to {FEW_TRAININGS - 1} repetitions, they are "
            "of Student's t over these (Welch's, of a difference), joined with the interval over problems. To read "
            "trajectories and hacking cases, run: cobalt view FILE."
        )
        tables = {table.key: table.to_json() for section in sections for table in section.tables}
        content = {"title": config.title, "baseline": material.baseline, "method": material.method, "tables": tables}
        write_report(page.with_suffix(".md"), sections, content, config.title, opening)
        write_whole(page, render_html(config.title, opening, sections, paths))
        for name, (run_name, kind, evaluations) in counts.items():
            write_counts(config.output_dir / "counts" / name, run_name, kind, evaluations)
        figures = sum(len(section.pictures) for section in sections)
        run.counts = {"runs": len(runs), "files": len(inputs), "tables": len(tables), "figures": figures}
    print_summary("Report", {**run.counts, "page": page})


def counts_files(runs: Sequence[NamedRun]) -> dict[str, tuple[str, str, list[Evaluation]]]:
    """By file name: run, kind and what was read. Raises ``InputError`` for two runs whose files would be the same."""
    files: dict[str, tuple[str, str, list[Evaluation]]] = {}
    for run in runs:
        for kind, evaluations in run.evaluations.items():
            name = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-") + f".{kind}{SUFFIX}"
            if name in files:
                raise InputError(f"runs '{files[name][0]}' and '{run.name}' differ in signs only; rename one")
            files[name] = (run.name, kind, evaluations)
    return files


def all_sections(material: Material) -> list[Section]:
    """The parts of a report, in the paper's order; a part and a table appear if files for them are given."""

    def section(title: str, *tables: Table, pictures: Sequence[Picture] = ()) -> Section:
        shown = [table for table in tables if table.rows]
        return Section(title, shown, [*pictures_of(shown), *pictures])

    pass1 = {condition: scores.pass1_table(material, condition) for condition in CONDITIONS}
    main: list[Table] = []
    for condition in SETS:
        main += [pass1[condition], *scores.difference_tables(material, condition)]
        main += scores.primary_tables(material, condition)
    sections = [
        section("Main results", *main, scores.repair_table(material)),
        section(
            "Training cost",
            bill_table(material.bills, material.method),
            cost_table(material),
            reach_table(material),
            reward_table(material),
            turns_table(material),
            pictures=training_pictures(material.logs),
        ),
        section("Beyond the turns of training", *(scores.horizon_table(material, condition) for condition in SETS)),
        section(
            "Wrong feedback and reward hacking",
            pass1["perturbed"],
            next(scores.difference_tables(material, "perturbed")),
            scores.perturbation_cost_table(material),
            *hacking_tables(material),
        ),
        section("Data reuse", reuse_table(material)),
    ]
    return [section for section in sections if section.tables]
