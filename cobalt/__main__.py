"""The console command ``cobalt``, or ``python -m cobalt``.

``HELP`` lists the commands: a line for the help, and behind an empty line an example. In a checkout of the project, the
commands of ``studies/`` are commands of ``cobalt``, too.
"""

import difflib
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import cobalt
from cobalt.cli.entry import exit_codes, run

ROOT = Path(__file__).resolve().parents[1]
HAS_STUDIES = (ROOT / "studies").is_dir()
EXIT_UNKNOWN = 2
HELP = {
    "sandbox check": "can this machine run programs safely?\n\ncobalt sandbox check",
    "sandbox run": "a program on tests, in the sandbox",
    "sandbox serve": "the sandbox by HTTP, also for clients of SandboxFusion",
    "service check": "can the execution service run programs?\n\ncobalt service check",
    "plan": "what collecting and training would take: hours, GPU-hours, cores, disk",
    "train": "GRPO on veRL; takes its hydra overrides\n\n"
    "bash scripts/train_grpo_multi_turn.sh trainer.total_training_steps=40",
    "watch": "the curves of a training, live in the terminal",
    "merge": "a training checkpoint to a Hugging Face model",
    "prompts-from": "the prompt set of the original release, or of a file's conversations",
    "data import": "problems of TACO, DeepCoder, Codeforces, CodeContests or veRL: filtered, verified, split\n\n"
    "cobalt data import deepcoder rows.jsonl --output_file data/deepcoder.jsonl",
    "data import livecodebench": "problems of LiveCodeBench, by date",
    "view": "trajectories as one HTML page, to look at",
}


def found(name: str) -> tuple[type[Any] | None, Callable[..., None]]:
    """The flags and the function of a command; None: it reads its arguments itself.

    What it needs is imported here, so ``python -m cobalt sandbox check`` needs nothing but Python.
    """
    match name:
        case "sandbox check":
            from cobalt.sandbox.selftest import main
        case "sandbox run":
            from cobalt.serving.stand_alone import run_program as main
        case "sandbox serve":
            from cobalt.serving.stand_alone import serve as main
        case "service check":
            from cobalt.serving.service_check import main
        case "plan":
            from cobalt.training.cost_model import main
        case "train":
            from cobalt.training.hydra_main import main
        case "watch":
            from cobalt.training.watch import watch as main
        case "merge":
            from cobalt.training.merge import merge as main
        case "prompts-from":
            from cobalt.preproc.prompts_from import main
        case "data import":
            from cobalt.preproc.taco import ImportConfig, main

            return ImportConfig, main
        case "data import livecodebench":
            from cobalt.preproc.livecodebench import LiveCodeBenchImportConfig, main

            return LiveCodeBenchImportConfig, main
        case _:
            from cobalt.viewer.page import main
    return get_type_hints(main).get("config"), main


def command(name: str) -> Callable[[], None]:
    """What the console runs and lists."""

    def start() -> None:
        config_type, main = found(name)
        if config_type is None:
            main()
        else:
            run(config_type, main)

    start.__doc__ = HELP[name]
    return start


Commands = Mapping[str, Callable[[], None]]
COMMANDS: Commands = {name: command(name) for name in HELP}


def main() -> None:
    """Run the command that the first words name, from here or from the studies of a checkout."""
    with exit_codes():
        if chosen(COMMANDS, sys.argv[1:]) is None and HAS_STUDIES:
            sys.path.insert(0, str(ROOT))
            runpy.run_module("studies", run_name="__main__", alter_sys=True)
        else:
            run_chosen(COMMANDS)


def run_chosen(commands: Commands) -> None:
    """Run the command that the first words name. Exits with 2 if there is none of that name.

    ``--help`` behind words that several commands begin with lists these.
    """
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"cobalt {cobalt.__version__}")
        return
    asks_help = words[-1:] in (["--help"], ["-h"])
    level = words[:-1] if asks_help else words
    below = {name: command for name, command in commands.items() if name.split()[: len(level)] == level}
    name = chosen(commands, words)
    if asks_help and below.keys() - {name}:
        print(overview(below))
    if name:
        sys.argv = [f"cobalt {name}", *words[len(name.split()) :]]
        commands[name]()
    elif not (asks_help and below):
        problem = f"no such command: '{' '.join(words)}'" if words else "no command given"
        near = list(below) if words and below else difflib.get_close_matches(" ".join(level), commands)
        if near:
            problem += f"; perhaps: {', '.join(near)}"
        if not HAS_STUDIES:
            problem += " (the commands of studies/ need a checkout of the project)"
        print(f"cobalt: error: {problem}; cobalt --help lists all", file=sys.stderr)
        sys.exit(EXIT_UNKNOWN)


def chosen(commands: Commands, words: Sequence[str]) -> str | None:
    """The longest name of a command that ``words`` begin with."""
    names = [name for name in commands if name.split() == list(words[: len(name.split())])]
    return max(names, key=len, default=None)


def overview(commands: Commands) -> str:
    """One line for each command: its name and the first line of its help; then an example."""
    width = max(map(len, commands))
    docs = {name: (command.__doc__ or "").partition("\n\n") for name, command in commands.items()}
    lines = [f"  cobalt {name:{width}}  {doc[0]}" for name, doc in docs.items()]
    example = next((doc[2].strip() for doc in docs.values() if doc[2]), f"cobalt {next(iter(commands))} --help")
    return "\n".join(["Commands; each takes --help:", *lines, f"Example: {example}"])


if __name__ == "__main__":
    main()
