"""Imports point one way only, cost little below `serving`, and do nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cobalt"
LAYERS = [
    {"errors", "cli", "records", "prompts", "extraction", "model_identity"},
    {"rewards", "bandit", "perturbation", "statistics"},
    {"sandbox"},
    {"serving"},
    {"inference", "evaluation", "hacking", "preparation", "minicode", "reporting"},
    {"training", "train"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LIGHT = [name for name, level in LEVEL.items() if level < LEVEL["serving"]]
INSIDE = PACKAGE / "sandbox" / "inside"  # runs as scripts within the sandbox, where there is no package
HEAVY = ("ray", "torch", "transformers", "datasets", "vllm", "verl", "litellm")


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            if node.module == "cobalt":
                names.update(f"cobalt.{alias.name}" for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("cobalt.")}


def test_every_room_has_a_layer() -> None:
    assert {_room(path) for path in _modules()} <= set(LEVEL)


def test_imports_point_one_way_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports cobalt.{name}"
        for path in _modules()
        for name in _imports(path)
        if LEVEL[name] > LEVEL[_room(path)]
    ]
    assert not wrong


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)


def _module_names(rooms: list[str]) -> list[str]:
    paths = [
        path for path in _modules() if _room(path) in rooms and path.name != "__main__.py" and path.parent != INSIDE
    ]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


def test_light_layers_import_neither_ray_nor_torch() -> None:
    code = f"""
import importlib, sys
for name in {_module_names(LIGHT)!r}:
    importlib.import_module(name)
    loaded = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]
    assert not loaded, f"{{name}} loads {{loaded}}"
"""
    done = _python(code)
    assert done.returncode == 0, done.stderr


ENTRIES = sorted([*ROOT.glob("*.py"), *(ROOT / "preproc").glob("*.py")])


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda path: path.name)
def test_entries_are_thin_and_importing_one_does_nothing(entry: Path) -> None:
    assert len(entry.read_text().splitlines()) < 80
    done = _python(f"import sys; sys.path.insert(0, {str(entry.parent)!r}); import {entry.stem}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_installed_verl_is_found_beside_our_verl_folder() -> None:
    pytest.importorskip("verl")
    done = _python("import verl; print(verl.__file__)")
    assert "site-packages" in done.stdout, done.stderr
