"""``cobalt minicode3 generate``: MiniCode 3's problems in TACO's raw row format, with the fields of MiniCode's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import NotNegative, OutputFile
from cobalt.sandbox import TestCases
from studies.minicode.generate import GenerateConfig as MiniCodeConfig
from studies.minicode.generate import rows_of, write_problems
from studies.minicode3.problems import Problem, sample_problem
from studies.minicode3.programs import Variant, write_program

DIFFICULTIES = {3: "EASY", 4: "MEDIUM", 5: "MEDIUM_HARD", 6: "HARD"}


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(MiniCodeConfig):
    """Generate MiniCode 3's problems, which take three to six steps, into one JSONL file."""

    output_file: OutputFile = Path("data/minicode3.jsonl")
    """Raw rows (JSONL), for preproc_taco.py."""
    shifted_size: NotNegative = 0
    """Problems of a shifted test set: six steps, or pairs of neighbouring steps that train and dev do not have. They
    belong to no split; generate them to a file of their own."""


def generate_rows(num_problems: int, dev_size: int, seed: int, shifted_size: int = 0) -> Iterator[dict[str, Any]]:
    """Training rows, then dev rows, then shifted ones."""

    def of_world(problem: Problem) -> tuple[str, TestCases, list[str]]:
        solutions = [write_program(problem.pipeline, variant) for variant in Variant]
        return DIFFICULTIES[len(problem.pipeline)], problem.public + problem.hidden, solutions

    return rows_of("minicode3", (num_problems, dev_size, shifted_size), seed, sample_problem, of_world)


def main(config: GenerateConfig) -> None:
    write_problems(config, "minicode3", generate_rows)
