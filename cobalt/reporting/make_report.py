"""``make_report.py``: from result files of named runs to one HTML page, Markdown, CSV, PNG and JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.commands.console import print_summary
from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.figures import colours_of
from cobalt.reporting.bill import bill_table
from cobalt.reporting.examples import pick_examples
from cobalt.reporting.hacking_tables import category_table, hacking_table, judge_free_table, turn_tables
from cobalt.reporting.material import CONDITIONS, Material, read_material
from cobalt.reporting.origins import origins_table
from cobalt.reporting.page import render_html, render_markdown
from cobalt.reporting.pictures import Picture, all_pictures
from cobalt.reporting.published import published_table
from cobalt.reporting.runs import parse_runs
from cobalt.reporting.score_tables import gain_table, pass1_table, perturbation_cost_table, repair_table
from cobalt.reporting.training_tables import cost_table, reward_table
from cobalt.tables import Table


@dataclass(frozen=True, kw_only=True)
class ReportConfig(CommandConfig):
    """Tables and figures from the result files of any number of named runs."""

    files: tuple[str, ...]
    """NAME:KIND=PATH, any number. KIND: clean, perturbed (eval_multi_turn.py), hacking (extract_turn_level_errors.py),
    judged (run_llm_judge.py), log (metrics.jsonl of training, or veRL's console log), control (eval_multi_turn.py after
    run_multi_turn_*.py --feedback_from other_problem), cost (cobalt report cost). Several files of one NAME:KIND are
    repetitions, for example training seeds."""
    output_dir: Path
    """Folder for report.html, report.md, report.json, and a CSV or PNG for each table or figure."""
    title: str = "Cobalt results"
    baseline: str | None = None
    """Run that the others are compared with; default: the first one named."""
    published: bool = False
    """Also show the paper's published figures, which are of other models, data and hardware."""


def make_report(config: ReportConfig) -> None:
    """Run the command."""
    runs = parse_runs(config.files)
    baseline = config.baseline or runs[0].name
    material = read_material(runs, baseline)
    paths = {run.name: [path for files in run.files.values() for path in files] for run in runs}
    inputs = [path for of_run in paths.values() for path in of_run]
    page = config.output_dir / "report.html"
    with recorded_run("make_report", asdict(config), inputs, {page: {"files": config.files}}) as run:
        tables = [*all_tables(material, config.published), origins_table(runs)]
        pictures = all_pictures(material, colours_of(list(paths)))
        _write(config.output_dir, tables, pictures)
        examples = pick_examples(material)
        listed = {name: [str(path) for path in of_run] for name, of_run in paths.items()}
        _write_text(page, render_html(config.title, baseline, tables, pictures, listed, examples))
        _write_text(
            config.output_dir / "report.md", render_markdown(config.title, baseline, tables, pictures, examples)
        )
        _write_text(config.output_dir / "report.json", _to_json(config.title, baseline, tables))
        run.counts = {"runs": len(runs), "files": len(inputs), "tables": len(tables), "figures": len(pictures)}
    print_summary("Report", {**run.counts, "page": page})


def all_tables(material: Material, published: bool) -> list[Table]:
    """The tables that the material allows, in the order of the report."""
    tables: list[Table | None] = []
    for condition in CONDITIONS:
        if material.scores[condition]:
            tables += [pass1_table(material, condition), gain_table(material, condition)]
    tables += [repair_table(material)]
    tables += [perturbation_cost_table(material), hacking_table(material), judge_free_table(material)]
    tables += [*turn_tables(material), category_table(material)]
    tables += [bill_table(material.bills) if material.bills else cost_table(material)]
    tables += [reward_table(material), published_table(material) if published else None]
    return [table for table in tables if table is not None]


def _write(folder: Path, tables: list[Table], pictures: list[Picture]) -> None:
    for table in tables:
        _write_text(folder / f"{table.key}.csv", table.to_csv())
    for picture in pictures:
        (folder / f"{picture.key}.png").write_bytes(picture.png)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _to_json(title: str, baseline: str, tables: list[Table]) -> str:
    content: dict[str, Any] = {"title": title, "baseline": baseline}
    content["tables"] = {table.key: table.to_json() for table in tables}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
