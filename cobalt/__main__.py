"""The console command ``cobalt``, or ``python -m cobalt``.

``HELP`` lists the commands: a line for the help, and behind an empty line an example. The stages of the pipeline are
scripts in a checkout, which ``--help`` names first.
"""

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, get_type_hints

import cobalt
from cobalt.cli.entry import exit_codes, run

EXIT_UNKNOWN = 2
PIPELINE = """\
The pipeline, stage by stage; scripts/quickstart.sh runs all of it:
  1 problems      python preproc/preproc_taco.py, or cobalt data import
  2 trajectories  python run_single_turn_vllm.py, then run_multi_turn_vllm.py; with an API run_*_turn_litellm.py
  3 hidden tests  python eval_multi_turn.py
  4 contexts      python preproc/process_multi_turn_taco.py, then preproc/verl_preproc_multi_turn.py
  5 training      bash scripts/train_grpo_multi_turn.sh, then scripts/merge_checkpoint.sh
  6 measurement   stages 2 and 3 with the trained model"""
HELP = {
    "sandbox check": "can this machine run programs safely?\n\ncobalt sandbox check",
    "sandbox run": "a program on tests, in the sandbox",
    "sandbox serve": "the sandbox by HTTP, also for clients of SandboxFusion",
    "service check": "can the execution service run programs?\n\ncobalt service check",
    "solve": "a model writes a program and repairs it, shown turn by turn\n\n"
    "cobalt solve problem.txt --tests tests.json --api_base http://127.0.0.1:8000/v1",
    "plan": "what collecting and training would take: hours, GPU-hours, cores, disk",
    "train": "GRPO on veRL; takes its hydra overrides\n\n"
    "bash scripts/train_grpo_multi_turn.sh trainer.total_training_steps=40",
    "rft": "fine-tuning on stored answers that pass; takes hydra overrides",
    "dpo": "preference optimisation on pairs of stored answers",
    "merge": "a training checkpoint to a Hugging Face model",
    "prompts-from": "the prompt set of the original release, or of a file's conversations",
    "data import": "problems of TACO, MBPP, HumanEval, LeetCode, ... : filtered, verified, split\n\n"
    "cobalt data import deepcoder rows.jsonl --output_file data/deepcoder.jsonl",
    "data import livecodebench": "problems of LiveCodeBench, by date",
    "data trajectories": "rollouts of verifiers, prime-rl or rLLM, or chat messages, as trajectories\n\n"
    "cobalt data trajectories traces.jsonl --from prime-rl --problems problems.jsonl -o trajectories.jsonl",
    "view": "trajectories as one HTML page, to look at",
}


AT = {
    "sandbox check": "cobalt.sandbox.selftest:main",
    "sandbox run": "cobalt.serving.stand_alone:run_program",
    "sandbox serve": "cobalt.serving.stand_alone:serve",
    "service check": "cobalt.serving.service_check:main",
    "solve": "cobalt.inference.solve:main",
    "plan": "cobalt.training.cost_model:main",
    "train": "cobalt.training.hydra_main:main",
    "rft": "cobalt.training.rft:main",
    "dpo": "cobalt.training.dpo:main",
    "merge": "cobalt.training.merge:merge",
    "prompts-from": "cobalt.preproc.prompts_from:main",
    "data import": "cobalt.preproc.taco:main cobalt.preproc.taco:ImportConfig",
    "data import livecodebench": "cobalt.preproc.livecodebench:main "
    "cobalt.preproc.livecodebench:LiveCodeBenchImportConfig",
    "data trajectories": "cobalt.preproc.trajectories:main",
    "view": "cobalt.viewer.page:main",
}
"""Where the function of each command is, and its flags, where these are not those that the function names."""


def load_command(name: str) -> tuple[type[Any] | None, Callable[..., Any]]:
    """The flags and the function of a command; None: it reads its arguments itself.

    What it needs is imported here, so ``python -m cobalt sandbox check`` needs nothing but Python.
    """
    main, *flags = map(resolve_name, AT[name].split())
    return flags[0] if flags else get_type_hints(main).get("config"), main


def command(name: str) -> Callable[[], None]:
    """What the console runs and lists."""

    def start() -> None:
        config_type, main = load_command(name)
        if config_type is None:
            main()
        else:
            run(config_type, main)

    start.__doc__ = HELP[name]
    return start


Commands = Mapping[str, Callable[[], None]]
COMMANDS: Commands = {name: command(name) for name in HELP}


def main() -> None:
    """Run the command that the first words name."""
    with exit_codes():
        run_chosen(COMMANDS, "cobalt", PIPELINE)


def run_chosen(commands: Commands, program: str, opening: str = "") -> None:
    """Run the command that the first words name. Exits with 2 if there is none of that name.

    ``--help`` behind words that several commands begin with lists these; alone, it prints ``opening`` first.
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
        print("\n".join([*([opening] if opening and not level else []), overview(below, program)]))
    if name:
        sys.argv = [f"{program} {name}", *words[len(name.split()) :]]
        commands[name]()
    elif not (asks_help and below):
        problem = f"no such command: '{' '.join(words)}'" if words else "no command given"
        near = list(below) if words and below else difflib.get_close_matches(" ".join(level), commands)
        if near:
            problem += f"; perhaps: {', '.join(near)}"
        print(f"{program}: error: {problem}; {program} --help lists all", file=sys.stderr)
        sys.exit(EXIT_UNKNOWN)


def chosen(commands: Commands, words: Sequence[str]) -> str | None:
    """The longest name of a command that ``words`` begin with."""
    names = [name for name in commands if name.split() == list(words[: len(name.split())])]
    return max(names, key=len, default=None)


def overview(commands: Commands, program: str) -> str:
    """One line for each command: its name and the first line of its help; then an example."""
    width = max(map(len, commands))
    docs = {name: (command.__doc__ or "").partition("\n\n") for name, command in commands.items()}
    lines = [f"  {program} {name:{width}}  {doc[0]}" for name, doc in docs.items()]
    example = next((doc[2].strip() for doc in docs.values() if doc[2]), f"{program} {next(iter(commands))} --help")
    return "\n".join(["Commands; each takes --help:", *lines, f"Example: {example}"])


if __name__ == "__main__":
    main()
