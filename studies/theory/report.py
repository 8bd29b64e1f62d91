"""``cobalt theory report``: measured policies side by side, as tables and figures."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cobalt.commands.console import print_summary
from cobalt.commands.flags import CommandConfig
from cobalt.commands.lifecycle import recorded_run
from cobalt.errors import InputError
from studies.theory.bounds import bounds_of
from studies.theory.measures import read_measures
from studies.theory.pictures import all_pictures
from studies.theory.tables import all_tables


@dataclass(frozen=True, kw_only=True)
class TheoryReportConfig(CommandConfig):
    """Tables and figures of measured policies: the gap beside its bounds, distances, the cost of a failure, repair."""

    input_files: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-i"])]
    """Outputs of `cobalt theory measure`, in the order in which they are to be shown; a file's name is its policy's."""
    output_dir: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for report.md, report.json, a CSV for each table, a PNG and an SVG for each figure."""


def main(config: TheoryReportConfig) -> None:
    """Read, write, print the first table."""
    policies = [read_measures(path) for path in config.input_files]
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two input files are named {name}; a file's name is its policy's")
    if len({policy.turns for policy in policies}) > 1:
        raise InputError(f"the files differ in turns: {', '.join(f'{p.name} {p.turns}' for p in policies)}")
    bounds = {policy.name: bounds_of(policy) for policy in policies}
    page = config.output_dir / "report.md"
    with recorded_run("cobalt theory report", asdict(config), config.input_files, {page: {}}) as run:
        tables = all_tables(policies, bounds)
        pictures = all_pictures({table.key: table for table in tables})
        for table in tables:
            (config.output_dir / f"{table.key}.csv").write_text(table.to_csv(), encoding="utf-8")
        for picture in pictures:
            picture.write(config.output_dir)
        in_json = json.dumps({table.key: table.to_json() for table in tables}, indent=2, ensure_ascii=False)
        (config.output_dir / "report.json").write_text(in_json + "\n", encoding="utf-8")
        sections = [f"![{picture.alt}]({picture.key}.png)" for picture in pictures]
        sections += [table.to_markdown_section() for table in tables]
        page.write_text("\n\n".join(["# The bound, measured", *sections]) + "\n", encoding="utf-8")
        run.counts = {"policies": len(policies), "tables": len(tables), "figures": len(pictures)}
    print(tables[0].to_markdown_section())
    print_summary("cobalt theory report", {**run.counts, "page": page})
