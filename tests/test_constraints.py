"""The locks hold what the project asks for; uv makes them, so each is consistent by itself."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from constraints.lock import LOCKS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name.removesuffix(".txt"): [name.removesuffix(".txt")] for name in LOCKS}
EXTRAS |= {
    "core": [],
    "cpu": ["train", "dpo", "hf", "api", "dev"],
}
PROMISED = [f"3.{minor}" for minor in range(20) if f"3.{minor}" in SpecifierSet(PROJECT["requires-python"])]
WITHOUT_DEPENDENCIES = ("gpu", "sglang", "paper")
"""Locks that the set-up scripts install as they are."""


def pins(lock: str, python: str) -> dict[str, str]:
    """Versions by normalized name, of the lines of a lock that apply to ``python`` on Linux."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    text = re.sub(r"\s*#.*", "", (ROOT / "constraints" / f"{lock}.txt").read_text())
    wanted = [Requirement(line) for line in text.splitlines() if line]
    return {
        canonicalize_name(one.name): next(iter(one.specifier)).version
        for one in wanted
        if one.marker is None or one.marker.evaluate({key: str(value) for key, value in environment.items()})
    }


def unmet(lock: str, locked: dict[str, str]) -> list[str]:
    """What the project asks for with the lock's extras and ``locked`` lacks."""
    asked, extras = list(map(Requirement, PROJECT["dependencies"])), list(EXTRAS[lock])
    for extra in extras:  # grows: an extra may name others as cobalt-rl[...]
        for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if one.name == PROJECT["name"]:
                extras += one.extras
            else:
                asked.append(one)
    return [str(one) for one in asked if not one.specifier.contains(locked.get(canonicalize_name(one.name), "0"))]


@pytest.mark.parametrize("lock", EXTRAS)
def test_what_the_project_asks_for_is_in_the_lock(lock: str) -> None:
    locked = pins(lock, "3.11")
    assert unmet(lock, locked) == []
    assert unmet(lock, {**locked, "tyro": "0.1"}) == ["tyro>=0.9"]


@pytest.mark.parametrize("lock", [name for name in EXTRAS if name not in ("cpu", "doors", *WITHOUT_DEPENDENCIES)])
def test_a_light_lock_has_the_verified_versions_and_is_named_in_the_index(lock: str) -> None:
    verified = pins("cpu", "3.11")
    different = {
        name: version for name, version in pins(lock, "3.11").items() if verified.get(name, version) != version
    }
    assert different == {}
    assert f"constraints/{lock}.txt" in (ROOT / "docs" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("python", PROMISED)
@pytest.mark.parametrize("lock", EXTRAS)
def test_every_lock_resolves_for_every_promised_python(lock: str, python: str) -> None:
    """For its first release, too: Debian 12 has 3.11.2."""
    file = f"constraints/{lock}.txt"
    asked = [file, "--no-deps"] if lock in WITHOUT_DEPENDENCIES else ["pyproject.toml", "--constraint", file]
    extras = [] if lock in WITHOUT_DEPENDENCIES else [f"--extra={extra}" for extra in EXTRAS[lock]]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *asked, *extras, f"--python-version={python}"]
    command += ["--python", sys.executable]  # else uv looks for one of that version
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "Failed to fetch" in done.stderr or "Network connectivity is disabled" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--chekc", 2)])
def test_locks_are_written_on_demand_only(tmp_path: Path, argument: str, code: int) -> None:
    script = tmp_path / "constraints/lock.py"
    script.parent.mkdir()
    script.write_text((ROOT / "constraints/lock.py").read_text())
    (tmp_path / "uv.py").write_text(f"open({str(tmp_path / 'called')!r}, 'w')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, script, argument], env=environment, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "called").exists()) == (code, False) and "--check" in done.stdout + done.stderr


@pytest.mark.slow
def test_the_locks_are_what_uv_gives() -> None:
    subprocess.run([sys.executable, "constraints/lock.py", "--check"], cwd=ROOT, check=True)
