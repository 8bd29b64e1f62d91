"""Evaluated files with known programs, and the report that is made of files."""

import json
from pathlib import Path
from typing import Any

from cobalt.records import write_jsonl
from studies.reports.make_report import ReportConfig, make_report

VALIDATION = "val-core/code_taco_verified/acc/mean@1"


def tables_of(folder: Path, *files: str, **flags: Any) -> dict:
    """The tables of the report on ``files``, which is made in ``folder``/out."""
    make_report(ReportConfig(files=files, output_dir=folder / "out", **flags))
    return json.loads((folder / "out" / "report.json").read_text())["tables"]


def write_evaluation(path: Path, solved_PT: list[list[int]], same_programs: bool = False) -> Path:
    """One sample per problem, whose programs are all the same or all different."""
    rows = []
    for number, solved_T in enumerate(solved_PT):
        numbers = [0 if same_programs else turn for turn in range(len(solved_T))]
        messages = [{"role": "assistant", "content": f"```python\nprint({value})\n```"} for value in numbers]
        rates = [float(value) for value in solved_T]
        rows.append({"id": number, "conversations": [messages], "all_pass_rates": [rates]})
    write_jsonl(path, rows)
    return path
