"""``make_report.py``: from result files of named runs to one HTML page, Markdown, CSV, PNG and JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.commands.console import print_summary
from cobalt.records import Manifest
from cobalt.reporting.figures import Picture, all_pictures, run_colours
from cobalt.reporting.hacking_tables import category_table, hacking_table
from cobalt.reporting.material import CONDITIONS, Material, read_material
from cobalt.reporting.page import render_html, render_markdown
from cobalt.reporting.published import published_table
from cobalt.reporting.runs import parse_runs
from cobalt.reporting.score_tables import gain_table, pass1_table, perturbation_cost_table
from cobalt.reporting.training_tables import cost_table, reward_table
from cobalt.tables import Table


@dataclass(frozen=True)
class ReportConfig:
    """Tables and figures from the result files of any number of named runs."""

    files: tuple[str, ...]
    """NAME:KIND=PATH, any number. KIND: clean, perturbed (eval_multi_turn.py), hacking (extract_turn_level_errors.py),
    judged (run_llm_judge.py), log (metrics.jsonl of training, or veRL's console log). Several files of one NAME:KIND
    are repetitions, for example training seeds."""
    output_dir: str
    """Folder for report.html, report.md, report.json, and a CSV or PNG for each table or figure."""
    title: str = "Cobalt results"
    baseline: str | None = None
    """Run that the others are compared with; default: the first one named."""


def make_report(config: ReportConfig) -> None:
    """Run the command."""
    runs = parse_runs(config.files)
    baseline = config.baseline or runs[0].name
    material = read_material(runs, baseline)
    folder = Path(config.output_dir)
    inputs = [path for run in runs for paths in run.files.values() for path in paths]
    manifest = Manifest(folder / "report.html", "make_report", asdict(config), {"files": config.files}, inputs)
    manifest.refuse_other_content()
    manifest.start()
    tables = all_tables(material)
    pictures = all_pictures(material, run_colours([run.name for run in runs]))
    listed = {run.name: [str(path) for paths in run.files.values() for path in paths] for run in runs}
    _write(folder, tables, pictures)
    _write_text(folder / "report.html", render_html(config.title, baseline, tables, pictures, listed))
    _write_text(folder / "report.md", render_markdown(config.title, baseline, tables, pictures))
    _write_text(folder / "report.json", _to_json(config.title, baseline, tables))
    manifest.counts = {"runs": len(runs), "files": len(inputs), "tables": len(tables), "figures": len(pictures)}
    manifest.done()
    print_summary("Report", {**manifest.counts, "page": folder / "report.html"})


def all_tables(material: Material) -> list[Table]:
    """The tables that the material allows, in the order of the report."""
    tables: list[Table | None] = []
    for condition in CONDITIONS:
        if material.scores[condition]:
            tables += [pass1_table(material, condition), gain_table(material, condition)]
    tables += [perturbation_cost_table(material), hacking_table(material), category_table(material)]
    tables += [cost_table(material), reward_table(material), published_table(material)]
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
