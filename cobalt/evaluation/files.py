"""Evaluated files, and the counts files that stand for them: numbers of samples, no programs.

A counts file (``*.counts.json``) holds the seeds of one arm on one set, so that tables and intervals can be made again
without the conversations. Everything that reads an evaluated file reads a counts file too.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.records import id_key
from cobalt.records.jsonl import T, read_json, write_whole
from cobalt.records.manifest import manifest_path, read_manifest
from cobalt.records.rows import Evaluated, Rates, read_rows, responses_of
from cobalt.records.training_run import START_MODEL

UNKNOWN = "unknown"
SUFFIX = ".counts.json"
FORMAT = "cobalt counts 1"
BY_TURN = ("solved", "repaired", "repeats", "failed_repeats")
"""The file's tables [seed][problem][turn], each of the field of ``ProblemScores`` with ``_T`` behind its name."""
MAY_LACK = ("submitted", "tokens", "asked", "failed_asked")
"""More of these, null where the rows do not tell; older files lack them."""
COMMIT_DIGITS = 10


@dataclass(frozen=True)
class ProblemScores:
    """One problem. Each tuple holds numbers of samples by turn; all are empty if no sample is left."""

    id: Any
    samples: int
    excluded: int
    """Samples left out after an infrastructure failure; not among ``samples``."""
    solved_T: tuple[int, ...]
    """Pass all hidden tests."""
    repaired_T: tuple[int, ...]
    """Of those, unsolved at the turn before (0 at turn 0)."""
    repeats_T: tuple[int, ...]
    """Have the program of the turn before (0 at turn 0)."""
    failed_repeats_T: tuple[int, ...]
    """Of those, unsolved at the turn before."""
    submitted_T: tuple[int, ...] | None = None
    """Samples whose submitted program passes all hidden tests. A user submits the first program that passes all tests
    of the feedback, or else this turn's."""
    tokens_T: tuple[int, ...] | None = None
    """Sampled until then, over all samples."""
    asked_T: tuple[int, ...] | None = None
    """Samples whose conversation has this turn: some end before, as their program passed. None: taken for all."""
    failed_asked_T: tuple[int, ...] | None = None
    """Of those, unsolved at the turn before (0 at turn 0)."""
    difficulty: str = UNKNOWN
    platform: str = UNKNOWN

    @property
    def turns(self) -> int:
        """Turns, the first included; 0 if no sample is left."""
        return len(self.solved_T)

    def unsolved_before(self, turn: int) -> int:
        """Samples that did not solve the problem at the turn before this one."""
        return self.samples - self.solved_T[turn - 1]

    def kept(self, turn: int) -> int:
        """Samples that solve the problem at this turn and the one before."""
        return self.solved_T[turn] - self.repaired_T[turn]


@dataclass(frozen=True)
class Source:
    """Where a result file comes from, as its manifest says and those of its inputs. None: no manifest says it."""

    file: str
    model: str | None = None
    sampling: Mapping[str, Any] | None = None
    seed: int | None = None
    checker: str | None = None
    commit: str | None = None
    execution: Mapping[str, Any] | None = None
    """What decided the verdicts in this file itself."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluated file, or one seed of a counts file."""

    path: Path
    problems: list[ProblemScores]
    feedback_tests: str | None
    """The tests that feedback came from, public or perturbed; released files do not say."""
    feedback_from: str | None
    """Whose programs got it, own or other_problem; released files and older counts do not say."""
    source: Source


def problem_scores(row: Evaluated) -> ProblemScores:
    """Scores of an evaluated row. Samples with an infrastructure failure are left out."""
    samples = zip(row.conversations, row.all_pass_rates, strict=True)
    valid = [(messages, rates_T) for messages, rates_T in samples if None not in rates_T]
    turns = len(valid[0][1]) if valid else 0
    counts = {f"{name}_T": [0] * turns for name in (*BY_TURN, "asked", "failed_asked")}
    for messages, rates_T in valid:
        programs_T = [extract_code(text, row.extraction) for text in responses_of(messages)]
        for turn, rate in zip(range(turns), rates_T, strict=True):
            failed_before = turn > 0 and rates_T[turn - 1] != 1
            asked = turn < len(programs_T)
            repeats = asked and turn > 0 and programs_T[turn] is not None and programs_T[turn] == programs_T[turn - 1]
            counts["solved_T"][turn] += rate == 1
            counts["repaired_T"][turn] += rate == 1 and failed_before
            counts["repeats_T"][turn] += repeats
            counts["failed_repeats_T"][turn] += repeats and failed_before
            counts["asked_T"][turn] += asked
            counts["failed_asked_T"][turn] += asked and failed_before
    as_used: dict[str, Any] = {}
    if (public_TN := row.public_pass_rates) is not None and len(public_TN) == turns:
        valid_N = [sample for sample, rates_T in enumerate(row.all_pass_rates) if None not in rates_T]
        passes_N = [first_pass(public_TN, n) for n in valid_N]
        last_TN = [[min(turn, passes) for passes in passes_N] for turn in range(turns)]
        named = [[*zip(valid_N, last_N, strict=True)] for last_N in last_TN]
        as_used["submitted_T"] = tuple(sum(row.all_pass_rates[n][last] == 1 for n, last in pairs) for pairs in named)
        if (usage_TN := row.usage) is not None and all(usage_TN[0][n] for n in valid_N):
            spent_TN = [[(usage or {}).get("completion_tokens", 0) for usage in usage_N] for usage_N in usage_TN]
            if any(map(any, spent_TN)):  # else they were not counted
                as_used["tokens_T"] = tuple(
                    sum(spent_TN[turn][n] for n, last in pairs for turn in range(last + 1)) for pairs in named
                )
    return ProblemScores(
        row.id,
        len(valid),
        len(row.all_pass_rates) - len(valid),
        **{name: tuple(counts_T) for name, counts_T in counts.items()},
        **as_used,
        difficulty=UNKNOWN if row.difficulty in (None, "") else str(row.difficulty),
        platform=UNKNOWN if row.platform in (None, "") else str(row.platform),
    )


def first_pass(public_TN: Rates, sample: int) -> int:
    """The first turn whose program passes all tests of the feedback; the number of turns if there is none."""
    return next((turn for turn, rates_N in enumerate(public_TN) if rates_N[sample] == 1), len(public_TN))


def counts_path(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


def read_evaluations(path: Path) -> list[Evaluation]:
    """The seeds of a counts file, or the one evaluation of a file of ``eval_multi_turn.py``. Raises ``InputError``."""
    if path.name.removesuffix(".gz").endswith(SUFFIX):
        return list(_read_counts(path))
    labels, problems = set[tuple[str | None, str | None]](), []
    for row in read_rows(path, Evaluated):
        labels.add(row.feedback)
        problems.append(problem_scores(row))
    return [Evaluation(path, problems, *one_label(path, labels), source_of(path))]


def one_label(path: Path, labels: Collection[T]) -> T:
    """What feedback the rows of a file got. Raises ``InputError`` if they do not agree."""
    if len(labels) > 1:
        raise InputError.at(path, None, f"its rows got different feedback: {sorted(map(str, labels))}")
    (label,) = labels
    return label


def read_evaluation(path: Path) -> Evaluation:
    """One evaluated file. Raises ``InputError``, also for a counts file of several seeds."""
    evaluations = read_evaluations(path)
    if len(evaluations) > 1:
        raise InputError.at(path, None, f"holds {len(evaluations)} seeds; give a file of one")
    return evaluations[0]


def write_counts(path: Path, arm: str, test_set: str | None, evaluations: Sequence[Evaluation]) -> None:
    """One arm on one set, a line for each field."""
    problems_S = [{id_key(problem.id): problem for problem in evaluation.problems} for evaluation in evaluations]
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
        "seeds": [
            {"feedback_tests": one.feedback_tests, "feedback_from": one.feedback_from, **asdict(one.source)}
            for one in evaluations
        ],
        "ids": list(ids.values()),
        "valid": table("samples"),
        "excluded": table("excluded"),
        **{name: table(f"{name}_T") for name in (*BY_TURN, *MAY_LACK)},
    }
    lines = (f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in content.items())
    write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _read_counts(path: Path) -> Iterator[Evaluation]:
    if not path.is_file():
        raise InputError.at(path, None, "no such file")
    try:
        content = read_json(path)
        if content.get("format") != FORMAT:
            raise ValueError(f"its format is {content.get('format')!r}, not '{FORMAT}'")
        if not content["seeds"]:
            raise ValueError("it holds no seed")
        for seed, origin in enumerate(content["seeds"]):
            labels = origin.pop("feedback_tests"), origin.pop("feedback_from", None)
            tables = [content[name][seed] for name in ("valid", "excluded", *BY_TURN)]
            if any(len(table) != len(content["ids"]) for table in tables):
                raise ValueError("its tables and its ids differ in length")
            problems = []
            for number, (id_, valid, excluded, *by_turn) in enumerate(zip(content["ids"], *tables, strict=True)):
                if valid is None:
                    continue
                counts: dict[str, Any] = {f"{name}_T": tuple(row) for name, row in zip(BY_TURN, by_turn, strict=True)}
                for name in MAY_LACK:
                    row = content[name][seed][number] if name in content else None
                    counts[f"{name}_T"] = row and tuple(row)
                problem = ProblemScores(id_, valid, excluded, **counts)
                for name in BY_TURN:
                    counts_T = counts[f"{name}_T"]
                    if len(counts_T) != problem.turns or not all(0 <= count <= valid for count in counts_T):
                        raise ValueError(f"problem {id_!r}: {name} are not numbers of samples by turn")
                problems.append(problem)
            yield Evaluation(path, problems, *labels, Source(**origin))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError.at(path, None, f"no counts file of this version ({error}); write it anew") from error


def source_of(output: Path, manifest: Path | None = None) -> Source:
    """The source of a file. ``manifest``: give it where it does not lie beside the file."""

    def chain(path: Path, seen: set[Path]) -> Iterator[Mapping[str, Any]]:
        """The manifest, then those of its file's inputs: where they were, or moved along with it."""
        if path in seen or not path.is_file():
            return
        seen.add(path)
        link = read_manifest(path)
        yield link
        for made_from in link.get("inputs", {}):
            there = manifest_path(made_from)
            yield from chain(there if there.is_file() else path.parent / there.name, seen)

    def first(values: Iterable[Any]) -> Any:
        return next((value for value in values if value is not None), None)

    links = list(chain(manifest or manifest_path(output), set()))
    contents = [link.get("content", {}) for link in links]
    models = (content.get("model_id") or content.get("model") or content.get(START_MODEL) for content in contents)
    execution = first(content.get("execution") for content in contents)
    commit = first(link.get("git_commit") for link in links)
    return Source(
        output.name,
        first(models),
        first(content.get("sampling") for content in contents),
        first(link.get("seed") for link in links),
        execution["checker"] if execution else None,
        commit[:COMMIT_DIGITS] if commit else None,
        contents[0].get("execution") if contents else None,
    )


NOT_RECORDED = "Checker and CPU limits are not recorded."


def verdict_rule(execution: Mapping[str, Any] | None) -> str:
    """What decided the verdicts, in one sentence, from what the execution service says of itself."""
    if not execution:
        return NOT_RECORDED
    if "suite_cpu_limit_s" not in execution:
        return f"Checker `{execution['checker']}`; CPU limits are not recorded."
    return (
        f"Checker `{execution['checker']}`; `cpu_limit_s` {execution['cpu_limit_s']:g} CPU seconds per test, "
        f"`suite_cpu_limit_s` {execution['suite_cpu_limit_s']:g} for all tests of a program: later ones are not passed."
    )
