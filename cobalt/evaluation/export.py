"""``--export livecodebench``: programs as LiveCodeBench's own runner reads a custom evaluator's output."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cobalt.errors import InputError, SetupError
from cobalt.evaluation.files import first_pass
from cobalt.extraction import extract_code
from cobalt.records.jsonl import write_whole
from cobalt.records.rows import LIVECODEBENCH, Evaluated, MultiTurn, read_rows, responses_of


def exportable(path: Path, rows: Iterable[MultiTurn]) -> Iterator[MultiTurn]:
    """The rows of ``path``. Raises ``InputError`` at one that this runner would judge otherwise or not at all."""
    samples = None
    for row in rows:
        samples, why = samples or len(row.conversations), None
        if row.row.get("source") != LIVECODEBENCH:
            why = "it is no problem of LiveCodeBench (no source: livecodebench)"
        elif row.row.get("functional") == "stdin" and row.row.get("starter_code"):
            why = "its programs read stdin, and LiveCodeBench calls a function: import with --functional call"
        elif len(row.conversations) != samples:
            why = "LiveCodeBench wants as many samples of each problem"
        if why is not None:
            raise InputError.at(path, None, f"problem {row.id!r}: --export livecodebench: {why}")
        yield row


def export_livecodebench(output: Path) -> Path:
    """Write the submitted program of each sample in ``output``, ``X.jsonl``, to ``X.livecodebench.json``; its path.

    A program is empty where a response holds none. Raises ``SetupError`` after infrastructure failures: there an empty
    program would count as wrong.
    """
    entries = []
    for row in read_rows(output, Evaluated):
        if any(None in rates_T for rates_T in row.all_pass_rates):
            raise SetupError(f"{output}: --export livecodebench: infrastructure failures; run the same command again")
        public_TN = row.public_pass_rates
        assert public_TN is not None  # ``MultiTurn`` has them
        texts_N = [responses_of(messages) for messages in row.conversations]
        last_N = [min(first_pass(public_TN, sample), len(texts) - 1) for sample, texts in enumerate(texts_N)]
        programs = [extract_code(texts[last], row.extraction) for texts, last in zip(texts_N, last_N, strict=True)]
        entries.append({"question_id": row.id, "code_list": [program or "" for program in programs]})
    path = output.with_suffix(".livecodebench.json")  # the runner puts names of its own in the place of each ".json"
    write_whole(path, json.dumps(entries, indent=1))
    return path
