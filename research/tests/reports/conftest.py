"""Files and report of the whole experiment: four runs, the trained ones with two training seeds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from quickly import made_quickly
from report_files import FLAGS, START, write_seed
from test_bill import write_collection

from research.reports.make_report import ReportConfig, make_report


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with made_quickly():
        yield


@pytest.fixture(scope="session")
def paper_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("paper")
    collected = write_collection(folder / "train.jsonl", 60)
    specs = []
    for name in START:
        for seed in range(1 if name == "base" else 2):
            own = (collected,) if name == "Cobalt" else ()
            specs += write_seed(folder / f"{name}-{seed}".replace(" ", "_"), name, seed, own)
    return specs


@pytest.fixture(scope="session")
def paper(paper_files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    with made_quickly():
        make_report(ReportConfig(files=tuple(paper_files), output_dir=out, **FLAGS))
    return out


@pytest.fixture(scope="session")
def tables(paper: Path) -> dict:
    return json.loads((paper / "report.json").read_text())["tables"]
