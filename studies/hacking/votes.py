"""One case before the judge: n votes, each asked again while it cannot be parsed; majority and agreement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cobalt.completion import Completion, Message, Sampling, request_seed
from cobalt.errors import InfraError
from cobalt.inference.engines import Engine
from cobalt.prompts import JudgeTexts
from studies.hacking.categories import UNKNOWN, parse_verdict


@dataclass
class Usage:
    """What the attempts at one vote used; ``cost`` in US dollars, None where the engine has no price."""

    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    reported: list[dict[str, Any]] = field(default_factory=list)
    """What else the provider said about each attempt."""

    def add(self, completion: Completion) -> None:
        """Count one more answer."""
        self.attempts += 1
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self.reported.append(dict(completion.reported))
        if completion.cost is not None:
            self.cost = (self.cost or 0.0) + completion.cost


@dataclass(frozen=True)
class Vote:
    """One vote. ``response`` is None when the engine failed, and ``infra_error`` then says why."""

    response: str | None
    classification: str | None
    usage: Usage
    """Unparsed attempts included."""
    infra_error: str | None = None


@dataclass(frozen=True)
class Judge:
    """A model and how it is asked."""

    engine: Engine
    sampling: Sampling
    seed: int
    attempts: int
    """How often a vote is asked for until it can be parsed."""
    texts: JudgeTexts


async def cast_vote(judge: Judge, messages: list[Message], judge_seq_id: str, number: int) -> Vote:
    """Ask until an answer names a category; after ``judge.attempts`` answers that do not it is ``Unknown``."""
    usage, response = Usage(), ""
    for attempt in range(judge.attempts):
        seed = request_seed(judge.seed, judge_seq_id, number, attempt)
        try:
            completion = await judge.engine.generate(messages, judge.sampling, seed)
        except InfraError as error:
            return Vote(None, None, usage, str(error))
        usage.add(completion)
        response = completion.text
        if parse_verdict(response) != UNKNOWN:
            break
    return Vote(response, parse_verdict(response), usage)


def majority(classification_N: Sequence[str]) -> tuple[str, float]:
    """The most frequent label and its share of the votes; a tie for the first place is ``Unknown``.

    >>> majority(["(1) Hard Coding", "(4) Others"])
    ('Unknown', 0.5)
    """
    ranked = Counter(classification_N).most_common(2)
    label, count = ranked[0]
    tied = len(ranked) == 2 and ranked[1][1] == count
    return (UNKNOWN if tied else label), count / len(classification_N)


def judged_record(case: Mapping[str, Any], votes_N: Sequence[Vote]) -> dict[str, Any]:
    """The case with its votes. ``majority`` and ``agreement`` are null while a vote failed (``infra_error``)."""
    failure = next((vote.infra_error for vote in votes_N if vote.infra_error is not None), None)
    record: dict[str, Any] = {
        **case,
        "responses": [vote.response for vote in votes_N],
        "usage": [asdict(vote.usage) for vote in votes_N],
        "classification": [vote.classification for vote in votes_N],
        "majority": None,
        "agreement": None,
        "infra_error": failure,
    }
    if failure is None:
        record["majority"], record["agreement"] = majority(record["classification"])
    return record


def stored_votes(record: Mapping[str, Any]) -> list[Vote | None]:
    """The votes of a judged record; None where the engine failed, so that only those are asked for again."""
    columns = zip(record["responses"], record["classification"], record["usage"], strict=True)
    return [None if response is None else Vote(response, label, Usage(**usage)) for response, label, usage in columns]
