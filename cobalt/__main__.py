"""The console command ``cobalt``, or ``python -m cobalt``: what is not a script of its own, chosen by words.

A row of the table is imported when it is chosen: ``python -m cobalt sandbox check`` needs nothing but Python.
Exit codes are those of the commands; 2 for words that name none.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

import cobalt
from cobalt.cli.entry import run


@dataclass(frozen=True)
class Command:
    """One row of the console's table. ``main`` and ``config`` are names as ``module:attribute``."""

    summary: str
    main: str
    config: str | None = None
    """The dataclass of its flags, which ``main`` is called with; None: ``main`` reads ``sys.argv`` itself."""


COMMANDS = {
    "sandbox check": Command("can this machine run programs safely?", "cobalt.sandbox.check:main"),
    "service check": Command(
        "can the execution service run programs?",
        "cobalt.serving.service_check:main",
        "cobalt.serving.service_check:ServiceCheckConfig",
    ),
    "train": Command("GRPO on veRL; takes its hydra overrides", "cobalt.training.hydra_main:main"),
    "merge": Command(
        "a training checkpoint to a Hugging Face model",
        "cobalt.training.merge:merge",
        "cobalt.training.merge:MergeConfig",
    ),
    "prompts-from": Command(
        "the prompt set of the original release, or of a file's conversations",
        "cobalt.preproc.prompts_from:main",
        "cobalt.preproc.prompts_from:PromptsFromConfig",
    ),
    "report": Command(
        "result files of named runs to tables and figures",
        "cobalt.reporting.make_report:make_report",
        "cobalt.reporting.make_report:ReportConfig",
    ),
    "report loop": Command(
        "Pass@1 per turn before and after training", "cobalt.reporting.loop:main", "cobalt.reporting.loop:LoopConfig"
    ),
    "report figures": Command(
        "the figures of reports again, from their JSON",
        "cobalt.reporting.redraw:main",
        "cobalt.reporting.redraw:RedrawConfig",
    ),
    "report cost": Command(
        "what a training took, in all and per example", "cobalt.reporting.bill:main", "cobalt.reporting.bill:CostConfig"
    ),
    "report sweep": Command(
        "Pass@1 over the values of a setting", "cobalt.reporting.sweep:main", "cobalt.reporting.sweep:SweepConfig"
    ),
    "minicode generate": Command(
        "write MiniCode problems", "cobalt.minicode.generate:main", "cobalt.minicode.generate:GenerateConfig"
    ),
    "minicode pretrain": Command(
        "make the MiniCoder checkpoint", "cobalt.minicode.pretrain:main", "cobalt.minicode.pretrain:PretrainConfig"
    ),
    "minicode probe": Command(
        "measure a policy on MiniCode", "cobalt.minicode.probe:main", "cobalt.minicode.probe:ProbeConfig"
    ),
    "minicode signal": Command(
        "the judge-free signal against labels by construction",
        "cobalt.minicode.signal_check:main",
        "cobalt.minicode.signal_check:SignalCheckConfig",
    ),
    "study": Command("run a study of many policies; needs a checkout", "cobalt.cli.study:main"),
    "theory measure": Command(
        "J, J_step and the distance to the reference",
        "cobalt.theory.measure:main",
        "cobalt.theory.measure:MeasureConfig",
    ),
    "theory report": Command(
        "the gap between J and J_step beside its bounds",
        "cobalt.theory.report:main",
        "cobalt.theory.report:TheoryReportConfig",
    ),
}
EXIT_UNKNOWN = 2


def main() -> None:
    """Run the command that the first words name; the longest name wins."""
    words = sys.argv[1:]
    if words in (["--help"], ["-h"]):
        print(overview())
    elif words == ["--version"]:
        print(f"cobalt {cobalt.__version__}")
    elif name := chosen(words):
        call(name, words[len(name.split()) :])
    else:
        problem = f"no such command: '{' '.join(words)}'" if words else "no command given"
        print(overview(), file=sys.stderr)
        print(f"cobalt: error: {problem}", file=sys.stderr)
        sys.exit(EXIT_UNKNOWN)


def chosen(words: Sequence[str]) -> str | None:
    """The name of a command that ``words`` begin with, the longest if there are several."""
    names = [name for name in COMMANDS if name.split() == list(words[: len(name.split())])]
    return max(names, key=len, default=None)


def call(name: str, arguments: Sequence[str]) -> None:
    """Run the command ``name`` as if it were a program of its own."""
    command = COMMANDS[name]
    sys.argv = [f"cobalt {name}", *arguments]
    command_main = resolve_name(command.main)
    if command.config is None:
        command_main()
    else:
        run(resolve_name(command.config), command_main)


def overview() -> str:
    """One line for each command."""
    width = max(map(len, COMMANDS))
    lines = [f"  cobalt {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["Commands; each takes --help:", *lines])


if __name__ == "__main__":
    main()
