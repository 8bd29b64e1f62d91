"""``python -m research minicode generate``: MiniCode problems in TACO's raw row format.

Fields: ``id, source, difficulty, question, starter_code, input_output, solutions`` (the last two JSON strings, as in
TACO) and ``split`` (train or dev), ``fully_specified`` (false where a rule must be found from test feedback).
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import CommandConfig, NotNegative, OutputFile
from cobalt.errors import InputError
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.manifest import recorded_run
from cobalt.sandbox import TestCases
from research.minicode.problems import Problem, sample_problem
from research.minicode.programs import Variant, write_function, write_program

DIFFICULTIES = {2: "EASY", 3: "MEDIUM", 4: "MEDIUM_HARD"}
SHIFTED = "shifted"


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(CommandConfig):
    """Generate MiniCode problems: train and dev rows in one JSONL file."""

    output_file: OutputFile = Path("data/minicode.jsonl")
    """Raw rows (JSONL), for preproc_taco.py."""
    num_problems: NotNegative = 1000
    """Training problems."""
    dev_size: NotNegative = 200
    """Dev problems, of compositions that no training problem has."""
    shifted_size: NotNegative = 0
    """Problems of a shifted test set: other operations, more steps, other words than those, and some function calls.
    They belong to no split; generate them to a file of their own."""
    seed: int = 0
    """Chooses the problems."""


def generate_rows(num_problems: int, dev_size: int, seed: int, shifted_size: int = 0) -> Iterator[dict[str, Any]]:
    """Training rows, then dev rows, then shifted ones."""

    def of_world(problem: Problem) -> tuple[str, TestCases, list[str]]:
        solutions = [write_program(problem.pipeline, variant) for variant in Variant]
        if problem.called:
            solutions = [write_function(problem.pipeline)]
        difficulty = DIFFICULTIES[len(problem.pipeline)] if problem.fully_specified else "HARD"
        return difficulty, problem.shown(problem.public + problem.hidden), solutions

    return rows_of("minicode", (num_problems, dev_size, shifted_size), seed, sample_problem, of_world)


def rows_of(
    world: str,
    sizes: Sequence[int],
    seed: int,
    sample: Callable[[random.Random, str], Any],
    of_world: Callable[[Any], tuple[str, TestCases, list[str]]],
) -> Iterator[dict[str, Any]]:
    """So many rows of train, dev and the shifted set. No two rows of a split have the same statement.

    ``sample`` draws a problem of a split; ``of_world`` gives its difficulty, tests and solutions.
    """
    for split, count in zip(("train", "dev", SHIFTED), sizes, strict=True):
        rng = random.Random(f"{seed}-{split}")
        seen: set[str] = set()
        with progress_bar(total=count, desc=split, unit=" problems") as bar:
            while len(seen) < count:
                problem = sample(rng, split)
                if problem.statement in seen:
                    continue
                difficulty, tests, solutions = of_world(problem)
                yield {
                    "id": f"{world}-{split}-{len(seen):05d}",
                    "source": world,
                    "difficulty": difficulty,
                    "question": problem.statement,
                    "starter_code": "",
                    "input_output": tests.to_json(),
                    "solutions": json.dumps(solutions),
                    "split": None if split == SHIFTED else split,
                    "fully_specified": problem.fully_specified,
                }
                seen.add(problem.statement)
                bar.update()


def write_problems(config: GenerateConfig, world: str, rows: Callable[..., Iterator[dict[str, Any]]]) -> None:
    """``rows``: ``generate_rows`` of ``world``. Raises ``InputError`` if there is nothing to generate."""
    sizes = {"train": config.num_problems, "dev": config.dev_size, SHIFTED: config.shifted_size}
    if sum(sizes.values()) == 0:
        raise InputError("--num_problems, --dev_size and --shifted_size are all 0: nothing to generate")
    content = {name: getattr(config, name) for name in ("num_problems", "dev_size", "seed", "shifted_size")}
    with recorded_run(f"cobalt {world} generate", asdict(config), [], {config.output_file: content}) as run:
        written = write_jsonl(config.output_file, rows(**content))
        hidden_rules = sum(not row["fully_specified"] for row in read_jsonl(config.output_file))
        run.counts = {"written": written, **sizes, "hidden_rule": hidden_rules}
    print_summary(f"Problems of {world}: {config.output_file}", run.counts)


def main(config: GenerateConfig) -> None:
    write_problems(config, "minicode", generate_rows)
