"""Evaluated files, and the counts file that stands for any number of them: numbers of samples, no programs.

A counts file holds the seeds of one arm on one set, so that tables and intervals can be made again without the
conversations. Everything that reads an evaluated file reads a counts file too; its name ends with ``.counts.json``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.evaluation.scores import FIELDS, ProblemScores, problem_scores
from cobalt.evaluation.source import Source, source_of
from cobalt.records import id_key, read_jsonl
from cobalt.records.jsonl import Record

SUFFIX = ".counts.json"
FORMAT = "cobalt counts 1"
BY_TURN = {
    "solved": "solved_T",
    "repaired": "repaired_T",
    "repeats": "repeats_T",
    "failed_repeats": "failed_repeats_T",
}
"""The file's tables [seed][problem][turn], and the fields of ``ProblemScores`` that they hold."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluated file, or one seed of a counts file."""

    path: Path
    problems: list[ProblemScores]
    feedback_tests: str | None
    """The tests that feedback came from, public or perturbed; released files do not say."""
    source: Source


def counts_path(output: Path) -> Path:
    """Where the counts of an evaluated file live."""
    return output.with_name(output.name + SUFFIX)


def read_evaluations(path: Path) -> list[Evaluation]:
    """The seeds of a counts file, or the one evaluation of a file of ``eval_multi_turn.py``. Raises ``InputError``."""
    if path.name.endswith(SUFFIX):
        return list(_read_counts(path))
    labels = set()

    def scores_of(record: Record) -> ProblemScores:
        labels.add(record.get("feedback_tests"))
        return problem_scores(record)

    problems = list(read_jsonl(path, FIELDS, parse=scores_of))
    if len(labels) > 1:
        raise InputError.at(path, None, f"its feedback came from different tests: {sorted(map(str, labels))}")
    return [Evaluation(path, problems, labels.pop(), source_of(path))]


def read_evaluation(path: Path) -> Evaluation:
    """One evaluated file. Raises ``InputError``, also for a counts file of several seeds."""
    evaluations = read_evaluations(path)
    if len(evaluations) > 1:
        raise InputError.at(path, None, f"holds {len(evaluations)} seeds; give a file of one")
    return evaluations[0]


def write_counts(path: Path, arm: str, test_set: str | None, evaluations: Sequence[Evaluation]) -> None:
    """One arm on one set, a line for each field."""
    problems_S = [{id_key(problem.id): problem for problem in found.problems} for found in evaluations]
    ids = {key: problem.id for problems in problems_S for key, problem in problems.items()}
    everything = [problem for problems in problems_S for problem in problems.values()]

    def table(field: str) -> list[list[Any]]:
        return [[getattr(problems.get(key), field, None) for key in ids] for problems in problems_S]

    content = {
        "format": FORMAT,
        "arm": arm,
        "set": test_set,
        "samples": max(problem.samples + problem.excluded for problem in everything),
        "turns": max(problem.turns for problem in everything),
        "seeds": [{"feedback_tests": found.feedback_tests, **asdict(found.source)} for found in evaluations],
        "ids": list(ids.values()),
        "valid": table("samples"),
        "excluded": table("excluded"),
        **{name: table(field) for name, field in BY_TURN.items()},
    }
    lines = (f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in content.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _read_counts(path: Path) -> Iterator[Evaluation]:
    if not path.is_file():
        raise InputError.at(path, None, "no such file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')!r}, not '{FORMAT}'")
        for seed, origin in enumerate(content["seeds"]):
            label = origin.pop("feedback_tests")
            tables = {name: content[name][seed] for name in ("valid", "excluded", *BY_TURN)}
            if any(len(table) != len(content["ids"]) for table in tables.values()):
                raise ValueError("its tables and its ids differ in length")
            problems = [
                ProblemScores(id_, valid, excluded, tuple(solved), tuple(repaired), tuple(repeats), tuple(failed))
                for id_, valid, excluded, solved, repaired, repeats, failed in zip(
                    content["ids"], *tables.values(), strict=True
                )
                if valid is not None
            ]
            for problem in problems:
                _check(problem)
            yield Evaluation(path, problems, label, Source(**origin))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError.at(path, None, f"no counts file of this version ({error}); write it anew") from error


def _check(problem: ProblemScores) -> None:
    for field in BY_TURN.values():
        counts_T = getattr(problem, field)
        if len(counts_T) != problem.turns or not all(0 <= count <= problem.samples for count in counts_T):
            raise ValueError(f"problem {problem.id!r}: {field.removesuffix('_T')} are not numbers of samples by turn")
