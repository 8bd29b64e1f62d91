"""What the reference's trajectories answer to the contexts of the bandit: the examples of the offline baselines.

A context with k programs is answered by turn k of every stored trajectory that was shown the same messages. These are
its own trajectory and others of the problem that begin alike. A context after the last turn has no answer.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.bandit.evaluated import EVALUATED_FIELDS, MESSAGES_PER_TURN, OPENING_MESSAGES, parse_problem
from cobalt.completion import FINISH_STOP
from cobalt.preproc.verl_parquet import BanditPrompt
from cobalt.records import id_key, read_jsonl
from cobalt.records.jsonl import Record
from cobalt.records.rows import raw_responses

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Example:
    """A context with the first stored response that passes all tests, and the first that does not (None: no such)."""

    problem: Any
    messages: Messages
    passing: str | None
    failing: str | None


def read_examples(contexts: Path, trajectories: Path) -> tuple[list[Example], dict[str, int]]:
    """One example per context, in the order of ``contexts``, and counts.

    ``trajectories``: the evaluated file that the contexts were made from. Responses are as they were sampled, with
    their thinking. Left out are responses without an end, and trajectories with an infrastructure failure. "First" is
    in the order of the file. Raises ``InputError``.
    """
    first: dict[str, dict[bool, str]] = defaultdict(dict)  # what was shown: whether it passes: the first response

    def see(row: Record) -> None:
        problem, responses_TN, usage_TN = parse_problem(row), raw_responses(row), row.get("usage")
        for trajectory in problem.trajectories:
            for turn, rate in enumerate(trajectory.pass_rates_T):
                usage = (usage_TN[turn][trajectory.index] if usage_TN else None) or {}
                if usage.get("finish_reason", FINISH_STOP) == FINISH_STOP:
                    shown = trajectory.conversation[: OPENING_MESSAGES + MESSAGES_PER_TURN * turn]
                    response = responses_TN[turn][trajectory.index]
                    first[_key(problem.id, shown)].setdefault(rate == 1, response)

    for _ in read_jsonl(trajectories, EVALUATED_FIELDS, parse=see):
        pass

    def example(row: Record) -> Example:
        prompt, messages = BanditPrompt.read(row), row["conversation"]
        found = first.get(_key(prompt.id, messages), {})
        return Example(prompt.id, messages, found.get(True), found.get(False))

    fields = ("example_id", "conversation", "prev_best_pass_rate")
    examples = list(read_jsonl(contexts, fields, unique=None, parse=example))
    counts: Counter[str] = Counter(contexts=len(examples))
    for each in examples:
        counts["contexts with a passing response"] += each.passing is not None
        counts["contexts with a failing response"] += each.failing is not None
        counts["contexts with both"] += each.passing is not None and each.failing is not None
    return examples, dict(counts)


def _key(problem: Any, messages: Messages) -> str:
    return json.dumps([id_key(problem), [[message["role"], message["content"]] for message in messages]])
