"""``python -m research minicode generate``: MiniCode problems in TACO's raw row format.

Fields: ``id, source, difficulty, question, starter_code, input_output, solutions`` (the last two JSON strings, as in
TACO) and ``split`` (train or dev), ``fully_specified`` (false where a rule must be found from test feedback).
"""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import CommandConfig, NotNegative, OutputFile
from cobalt.errors import InputError
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.manifest import recorded_run
from research.minicode.problems import sample_problem
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
    """Training rows, then dev rows, then shifted ones. No two rows of a split have the same statement."""
    for split, count in (("train", num_problems), ("dev", dev_size), (SHIFTED, shifted_size)):
        rng = random.Random(f"{seed}-{split}")
        seen: set[str] = set()
        with progress_bar(total=count, desc=split, unit=" problems") as bar:
            while len(seen) < count:
                problem = sample_problem(rng, split)
                if problem.statement in seen:
                    continue
                solutions = [write_program(problem.pipeline, variant) for variant in Variant]
                if problem.called:
                    solutions = [write_function(problem.pipeline)]
                yield {
                    "id": f"minicode-{split}-{len(seen):05d}",
                    "source": "minicode",
                    "difficulty": DIFFICULTIES[len(problem.pipeline)] if problem.fully_specified else "HARD",
                    "question": problem.statement,
                    "starter_code": "",
                    "input_output": problem.shown(problem.public + problem.hidden).to_json(),
                    "solutions": json.dumps(solutions),
                    "split": None if split == SHIFTED else split,
                    "fully_specified": problem.fully_specified,
                }
                seen.add(problem.statement)
                bar.update()


def main(config: GenerateConfig) -> None:
    """Raises ``InputError`` if there is nothing to generate."""
    sizes = {"train": config.num_problems, "dev": config.dev_size, SHIFTED: config.shifted_size}
    if sum(sizes.values()) == 0:
        raise InputError("--num_problems, --dev_size and --shifted_size are all 0: nothing to generate")
    content = {name: getattr(config, name) for name in ("num_problems", "dev_size", "seed", "shifted_size")}
    with recorded_run("python -m research minicode generate", asdict(config), [], {config.output_file: content}) as run:
        written = write_jsonl(config.output_file, generate_rows(**content))
        hidden_rules = sum(not row["fully_specified"] for row in read_jsonl(config.output_file))
        run.counts = {"written": written, **sizes, "hidden_rule": hidden_rules}
    print_summary(f"Problems of minicode: {config.output_file}", run.counts)
