"""``make_report.py``: from result files of named runs to one HTML page, Markdown, CSV, JSON, PNG and SVG."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.commands.console import print_summary
from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from cobalt.evaluation.counts import SUFFIX, Evaluation, write_counts
from cobalt.figures import Picture
from cobalt.tables import Table
from studies.reports.material import Material, read_material
from studies.reports.origins import files_table, origins_table
from studies.reports.page import Section, render_html, render_markdown
from studies.reports.primary import parse_pairs
from studies.reports.runs import NamedRun, parse_runs
from studies.reports.sections import all_sections


@dataclass(frozen=True, kw_only=True)
class ReportConfig(CommandConfig):
    """Tables and figures from the result files of any number of named runs."""

    files: tuple[str, ...]
    """NAME:KIND=PATH, any number. KIND: clean, shifted (the same on a second test set), perturbed (eval_multi_turn.py),
    hacking (extract_turn_level_errors.py), judged (run_llm_judge.py), log (metrics.jsonl of training, or veRL's console
    log), control (eval_multi_turn.py after run_multi_turn_*.py --feedback_from other_problem), cost (cobalt report
    cost). Several files of one NAME:KIND are repetitions, for example training seeds. A *.counts.json file stands for
    all of those that it was made from."""
    output_dir: Path
    """Folder for report.html, report.md, report.json, a CSV for each table, a PNG and an SVG for each figure, and
    counts/, from which the tables of Pass@1 can be made again."""
    title: str = "Cobalt results"
    baseline: str | None = None
    """Run that the others are compared with; default: the first one named."""
    method: str | None = None
    """Run that is tested against each of the others; against trained ones with Holm's correction. Default: none."""
    pairs: tuple[str, ...] = ()
    """FIRST=SECOND, names of runs: further tests, outside that family."""


def make_report(config: ReportConfig) -> None:
    """Run the command."""
    runs = parse_runs(config.files)
    material = read_material(runs, config.baseline or runs[0].name, config.method, parse_pairs(config.pairs, runs))
    paths = {run.name: [path for files in run.files.values() for path in files] for run in runs}
    inputs = [path for of_run in paths.values() for path in of_run]
    counts = counts_files(runs)
    page = config.output_dir / "report.html"
    with recorded_run("make_report", asdict(config), inputs, {page: {"files": config.files}}) as run:
        sections = all_sections(material)
        sections.append(Section("Where the numbers come from", [files_table(runs), origins_table(runs)]))
        tables = [table for section in sections for table in section.tables]
        pictures = [picture for section in sections for picture in section.pictures]
        listed = {name: [str(path) for path in of_run] for name, of_run in paths.items()}
        opening = _opening(material)
        _write(config.output_dir, tables, pictures)
        for name, (run_name, kind, evaluations) in counts.items():
            write_counts(config.output_dir / "counts" / name, run_name, kind, evaluations)
        _write_text(page, render_html(config.title, opening, sections, listed))
        _write_text(config.output_dir / "report.md", render_markdown(config.title, opening, sections))
        _write_text(config.output_dir / "report.json", _to_json(config.title, material, tables))
        run.counts = {"runs": len(runs), "files": len(inputs), "tables": len(tables), "figures": len(pictures)}
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


def _opening(material: Material) -> str:
    compared = f"Baseline: {material.baseline}." + (f" Method: {material.method}." if material.method else "")
    return (
        f"{compared} Intervals are 95 % bootstrap intervals over problems and, for runs with several repetitions "
        "(training seeds), over these."
    )


def _write(folder: Path, tables: list[Table], pictures: list[Picture]) -> None:
    for table in tables:
        _write_text(folder / f"{table.key}.csv", table.to_csv())
    for picture in pictures:
        picture.write(folder)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _to_json(title: str, material: Material, tables: list[Table]) -> str:
    content: dict[str, Any] = {"title": title, "baseline": material.baseline, "method": material.method}
    content["tables"] = {table.key: table.to_json() for table in tables}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
