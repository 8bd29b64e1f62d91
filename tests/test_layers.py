"""The house: each room has a floor of its own, imports point down only, cost little low down, and do nothing."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from cobalt.__main__ import HELP

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "cobalt"
FLOORS = (
    "sandbox", "errors", "fences", "extraction", "records", "statistics", "tables", "figures", "prompts",
    "completion", "perturbation", "rewards", "bandit", "cli", "viewer", "sampler", "serving", "inference", "evaluation",
    "hacking", "preproc", "training", "__main__",
)  # fmt: skip
"""From the ground up: a room imports from those before it."""
LIGHT = FLOORS[: FLOORS.index("sampler")]
INSIDE = PACKAGE / "sandbox" / "inside"  # runs as scripts within the sandbox, where there is no package
OWN_TEXT = {PACKAGE / "sandbox" / "probe_program.py", *INSIDE.glob("*.py")}
"""Texts of programs and scripts that weigh each import: theirs stand where they are cheapest."""
APPS = ("remote_reward_server", "vllm_engine_actor")
"""Entries that Ray Serve imports."""
HEAVY = ("matplotlib", "ray", "torch", "transformers", "datasets", "vllm", "verl", "litellm")
LATE = {
    "asyncio": "40 ms before which Ctrl-C is a traceback",
    "PIL": "comes with matplotlib",
    "datasets": "seconds; not in every environment",
    "grpc": "comes with ray",
    "httpx": "comes with litellm",
    "huggingface_hub": "seconds",
    "litellm": "seconds; its settings must be made before",
    "matplotlib": "a second; commands without figures do without it",
    "numpy": "MiniCode's world is made without it",
    "omegaconf": "in the training environment only",
    "openai": "comes with litellm",
    "peft": "in the training environment only",
    "psutil": "comes with vllm",
    "pyarrow": "in the data environment only",
    "ray": "seconds; commands without a service do without it",
    "rich": "at the end of a command",
    "safetensors": "comes with transformers",
    "scipy": "seconds",
    "tensordict": "in the training environment only",
    "tiktoken": "downloads when it is used",
    "tokenizers": "MiniCode's world is made without it",
    "torch": "seconds; not in every environment",
    "tqdm": "when a bar is shown",
    "transformers": "seconds; not in every environment",
    "trl": "of the extra dpo",
    "tyro": "a library user needs no flags",
    "uvicorn": "of the extra sandbox",
    "verl": "in the training environment only",
    "vllm": "in an environment of its own",
    "wandb": "seconds",
}
"""Packages that may be imported inside a function, and why."""


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}
ROOMS = {name: name.split(".")[1] for name in MODULES}


def _imports(node: ast.AST, within_function: bool = False) -> Iterator[tuple[str, bool]]:
    """Imported modules of a tree, and whether the import stands within a function; those for type checkers left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, within_function) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and child.level == 0:
            for alias in child.names:
                module = f"{child.module}.{alias.name}"
                yield (module if module in MODULES else child.module), within_function
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, within_function or is_function)


IMPORTS = {name: set(_imports(ast.parse(path.read_text()))) for name, path in MODULES.items()}


def test_imports_point_down_only() -> None:
    assert set(ROOMS.values()) == set(FLOORS), "every room has a floor, and every floor a room"
    found = [(name, module, module.split(".")) for name in MODULES for module, _ in IMPORTS[name]]
    floors = [
        (name, module, FLOORS.index(parts[1]) - FLOORS.index(ROOMS[name]))
        for name, module, parts in found
        if parts[0] == "cobalt" and len(parts) > 1 and parts[1] != ROOMS[name]
    ]
    assert not [(name, module) for name, module, height in floors if height >= 0]
    assert not [(name, module) for name, module, parts in found if parts[0] == "research"]


def test_no_circle_between_files() -> None:
    graph = {
        name: {module for module, _ in imports if module in MODULES and module != name}
        for name, imports in IMPORTS.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_within_functions_only_listed_packages_are_imported() -> None:
    wrong = [
        f"{name} imports {module} within a function"
        for name, imports in IMPORTS.items()
        if MODULES[name] not in OWN_TEXT
        for module, within_function in imports
        if within_function and module.split(".")[0] not in ("cobalt", *LATE)
    ]
    assert not wrong


def test_importing_does_nothing_and_loads_no_heavy_package_for_light_rooms_and_helps() -> None:
    """``cobalt dpo --help`` took 4.5 s."""
    light = [name for name, path in MODULES.items() if ROOMS[name] in LIGHT and path.parent != INSIDE]
    entries = sorted(path.stem for path in [*ROOT.glob("*.py"), *(ROOT / "preproc").glob("*.py")])
    statements = [
        *(f"import {name}" for name in light),
        "from cobalt.__main__ import load_command",
        *(f"load_command({name!r})" for name in HELP),
        *(f"import {entry}" for entry in entries if entry not in APPS),
    ]
    code = f"""
import sys
sys.path.insert(0, "preproc")
for statement in {statements!r}:
    exec(statement)
    loaded = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]
    assert not loaded, f"{{statement}} loads {{loaded}}"
import {", ".join(APPS)}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_installed_verl_is_found_beside_our_verl_folder() -> None:
    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        pytest.skip("veRL is not installed")
    assert "site-packages" in found.origin
