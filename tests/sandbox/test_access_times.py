"""Times of last access: once refreshed, readers leave no trace in them."""

import os
import time
from pathlib import Path

import pytest

from cobalt.sandbox.access_times import refresh

YEAR_S = 365 * 24 * 3600


def _age(path: Path) -> Path:
    """Last read and written a year ago."""
    os.utime(path, (time.time() - YEAR_S, time.time() - YEAR_S))
    return path


def _changed_by_reading(path: Path) -> bool:
    before = path.stat().st_atime_ns
    if path.is_dir():
        os.listdir(path)
    else:
        path.read_bytes()
    return path.stat().st_atime_ns != before


@pytest.fixture
def files(tmp_path):
    """A file, a directory and a file in it, all old."""
    (tmp_path / "package").mkdir()
    (tmp_path / "module.py").write_text("1")
    (tmp_path / "package" / "__init__.py").write_text("1")
    if not _changed_by_reading(_age(tmp_path / "module.py")):
        pytest.skip("this file system keeps no times of access")
    return [_age(tmp_path / name) for name in ("package/__init__.py", "package", "module.py")]


def test_reading_changes_no_time_of_access_once_they_are_refreshed(files):
    refresh([str(files[1]), str(files[2])])
    assert [_changed_by_reading(path) for path in files] == [False, False, False]


def test_without_it_reading_leaves_a_note(files):
    assert [_changed_by_reading(path) for path in files] == [True, True, True]
