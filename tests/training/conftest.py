"""The benchmark of whole steps as a module: it also knows the release's configuration."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import bench_recipe

    yield bench_recipe
    sys.modules.pop("bench_recipe")
