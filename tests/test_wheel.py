"""The wheel, installed into an empty environment: the sandbox without any package, the core with those it asks for."""

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_layers import INSIDE, LIGHT, MODULES, ROOMS
from viewed_files import evaluated_file

from cobalt.records import write_jsonl

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/", env={"HOME": "/"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def link_packages(names: list[str], site: Path) -> None:
    """These packages of the tests' own environment, and what they need, without any other one."""
    found, left = set(), names
    while left:
        if (name := left.pop()) in found:
            continue
        found.add(name)
        needed = [Requirement(text) for text in distribution(name).requires or ()]
        left += [need.name for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution(name).locate_file(top))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's folder. Only the wheel is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "cobalt", folder / "source" / "cobalt", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    quiet = ("--quiet", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-build-isolation", "-w", folder, folder / "source")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", folder / "env/bin/python", "install", *quiet, wheel)
    return folder / "env"


def test_the_sandbox_and_the_list_of_commands_need_no_package(empty: Path) -> None:
    sandbox = [name for name, path in MODULES.items() if ROOMS[name] == "sandbox" and path.parent != INSIDE]
    run(empty / "bin/python", "-I", "-c", f"import {', '.join(sandbox)}")
    listed = run(empty / "bin/cobalt", "--help")
    assert "cobalt sandbox check" in listed and "python -m research study" not in listed
    assert "Programs run in mode" in run(empty / "bin/cobalt", "sandbox", "check")


def test_the_core_needs_what_the_wheel_asks_for(empty: Path, tmp_path: Path) -> None:
    (site,) = empty.glob("lib/python*/site-packages")
    (metadata,) = site.glob("cobalt_rl-*.dist-info/METADATA")
    needed = [line.partition(": ")[2] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    link_packages([Requirement(text).name for text in needed if "extra ==" not in text], site)
    light = [name for name, path in MODULES.items() if ROOMS[name] in LIGHT and path.parent != INSIDE]
    run(empty / "bin/python", "-I", "-c", f"import {', '.join(light)}")
    assert "| in all | " in run(empty / "bin/cobalt", "plan", "--problems", "1000")
    write_jsonl(tmp_path / "some.jsonl", evaluated_file(3))
    run(empty / "bin/cobalt", "view", tmp_path / "some.jsonl")
    assert (tmp_path / "some.jsonl.html").stat().st_size > 10_000
