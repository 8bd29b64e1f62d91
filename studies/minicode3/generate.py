"""``cobalt minicode3 generate``: MiniCode 3's problems in TACO's raw row format, with the fields of MiniCode's."""

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
from cobalt.records import write_jsonl
from cobalt.records.manifest import recorded_run
from studies.minicode.generate import SHIFTED
from studies.minicode3.problems import sample_problem
from studies.minicode3.programs import Variant, write_program

DIFFICULTIES = {3: "EASY", 4: "MEDIUM", 5: "MEDIUM_HARD", 6: "HARD"}


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(CommandConfig):
    """Generate MiniCode 3's problems, which take three to six steps, into one JSONL file."""

    output_file: OutputFile = Path("data/minicode3.jsonl")
    """Raw rows (JSONL), for preproc_taco.py."""
    num_problems: NotNegative = 1000
    """Training problems."""
    dev_size: NotNegative = 200
    """Dev problems, of compositions that no training problem has."""
    shifted_size: NotNegative = 0
    """Problems of a shifted test set: six steps, or pairs of neighbouring steps that train and dev do not have. They
    belong to no split; generate them to a file of their own."""
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
                yield {
                    "id": f"minicode3-{split}-{len(seen):05d}",
                    "source": "minicode3",
                    "difficulty": DIFFICULTIES[len(problem.pipeline)],
                    "question": problem.statement,
                    "starter_code": "",
                    "input_output": (problem.public + problem.hidden).to_json(),
                    "solutions": json.dumps([write_program(problem.pipeline, variant) for variant in Variant]),
                    "split": None if split == SHIFTED else split,
                    "fully_specified": problem.fully_specified,
                }
                seen.add(problem.statement)
                bar.update()


def main(config: GenerateConfig) -> None:
    content = {name: getattr(config, name) for name in ("num_problems", "dev_size", "seed", "shifted_size")}
    if not any((config.num_problems, config.dev_size, config.shifted_size)):
        raise InputError("--num_problems, --dev_size and --shifted_size are all 0: nothing to generate")
    with recorded_run("cobalt minicode3 generate", asdict(config), [], {config.output_file: content}) as run:
        run.counts = {"written": write_jsonl(config.output_file, generate_rows(**content))}
    print_summary(f"MiniCode 3: {config.output_file}", run.counts)
