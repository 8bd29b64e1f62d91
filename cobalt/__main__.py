"""The console command ``cobalt``, or ``python -m cobalt``.

A command is a function. The first line of its docstring stands in the help, and behind an empty line an example. It
imports what it needs when it is chosen, so ``python -m cobalt sandbox check`` needs nothing but Python. In a checkout
of the project, the commands of ``studies/`` are commands of ``cobalt``, too.
"""

import difflib
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cobalt
from cobalt.cli.entry import exit_codes, run

ROOT = Path(__file__).resolve().parents[1]
HAS_STUDIES = (ROOT / "studies").is_dir()
EXIT_UNKNOWN = 2


def sandbox_check() -> None:
    """can this machine run programs safely?

    cobalt sandbox check
    """
    from cobalt.sandbox.selftest import main

    main()


def sandbox_run() -> None:
    """a program on tests, in the sandbox"""
    from cobalt.serving.stand_alone import SandboxRunConfig, run_program

    run(SandboxRunConfig, run_program)


def sandbox_serve() -> None:
    """the sandbox by HTTP, also for clients of SandboxFusion"""
    from cobalt.serving.stand_alone import SandboxServeConfig, serve

    run(SandboxServeConfig, serve)


def service_check() -> None:
    """can the execution service run programs?

    cobalt service check
    """
    from cobalt.serving.service_check import ServiceCheckConfig, main

    run(ServiceCheckConfig, main)


def train() -> None:
    """GRPO on veRL; takes its hydra overrides

    bash scripts/train_grpo_multi_turn.sh trainer.total_training_steps=40
    """
    from cobalt.training.hydra_main import main

    main()


def watch() -> None:
    """the curves of a training, live in the terminal"""
    from cobalt.training.watch import WatchConfig, watch

    run(WatchConfig, watch)


def plan() -> None:
    """what collecting and training would take: hours, GPU-hours, cores, disk"""
    from cobalt.training.cost_model import PlanConfig, main

    run(PlanConfig, main)


def merge() -> None:
    """a training checkpoint to a Hugging Face model"""
    from cobalt.training.merge import MergeConfig, merge

    run(MergeConfig, merge)


def data_import() -> None:
    """problems of TACO, DeepCoder, Codeforces, CodeContests or veRL: filtered, verified, split

    cobalt data import deepcoder rows.jsonl --output_file data/deepcoder.jsonl
    """
    from cobalt.preproc.taco import ImportConfig, main

    run(ImportConfig, main)


def import_livecodebench() -> None:
    """problems of LiveCodeBench, by date"""
    from cobalt.preproc.livecodebench import LiveCodeBenchImportConfig, main

    run(LiveCodeBenchImportConfig, main)


def prompts_from() -> None:
    """the prompt set of the original release, or of a file's conversations"""
    from cobalt.preproc.prompts_from import PromptsFromConfig, main

    run(PromptsFromConfig, main)


def view() -> None:
    """trajectories as one HTML page, to look at"""
    from cobalt.viewer.page import ViewConfig, main

    run(ViewConfig, main)


Commands = Mapping[str, Callable[[], None]]
COMMANDS: Commands = {
    "sandbox check": sandbox_check,
    "sandbox run": sandbox_run,
    "sandbox serve": sandbox_serve,
    "service check": service_check,
    "plan": plan,
    "train": train,
    "watch": watch,
    "merge": merge,
    "prompts-from": prompts_from,
    "data import": data_import,
    "data import livecodebench": import_livecodebench,
    "view": view,
}


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
    """One line for each command: its name and the first line of its function's docstring; then an example."""
    width = max(map(len, commands))
    docs = {name: (command.__doc__ or "").partition("\n\n") for name, command in commands.items()}
    lines = [f"  cobalt {name:{width}}  {doc[0]}" for name, doc in docs.items()]
    example = next((doc[2].strip() for doc in docs.values() if doc[2]), f"cobalt {next(iter(commands))} --help")
    return "\n".join(["Commands; each takes --help:", *lines, f"Example: {example}"])


if __name__ == "__main__":
    main()
