"""The stored answers to contexts: what fine-tuning and preference optimisation learn from, without any sampling.

A context with k programs is answered by turn k of every trajectory of its problem that was shown the same messages.
These are its own trajectory and others that begin alike. A context after the last turn has no answer.
"""

import json
from dataclasses import dataclass, field
from typing import Literal

from cobalt.bandit.builder import Context
from cobalt.bandit.evaluated import MESSAGES_PER_TURN, OPENING_MESSAGES, Conversation, EvaluatedProblem
from cobalt.completion import FINISH_STOP
from cobalt.records.jsonl import Record
from cobalt.records.rows import raw_responses

Purpose = Literal["grpo", "rft", "dpo"]


@dataclass
class Answers:
    """Different responses to one context, in the order of the file, by whether they pass all tests."""

    passing: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)


def stored_answers(row: Record, problem: EvaluatedProblem) -> dict[str, Answers]:
    """The answers of an evaluated row, by what was shown (``shown``). ``problem``: the row, parsed.

    Responses are as they were sampled, with their thinking. Left out are those without an end, and trajectories with
    an infrastructure failure.
    """
    responses_TN, usage_TN, found = raw_responses(row), row.get("usage"), dict[str, Answers]()
    for trajectory in problem.trajectories:
        for turn, rate in enumerate(trajectory.pass_rates_T):
            usage = (usage_TN[turn][trajectory.index] if usage_TN else None) or {}
            if usage.get("finish_reason", FINISH_STOP) == FINISH_STOP:
                answers = found.setdefault(shown(trajectory.conversation, turn), Answers())
                texts = answers.passing if rate == 1 else answers.failing
                if (response := responses_TN[turn][trajectory.index]) not in texts:
                    texts.append(response)
    return found


def shown(conversation: Conversation, programs: int) -> str:
    """What a policy is shown of a trajectory after so many programs, as a key."""
    messages = conversation[: OPENING_MESSAGES + MESSAGES_PER_TURN * programs]
    return json.dumps([[message["role"], message["content"]] for message in messages])


def examples(context: Context, answers: dict[str, Answers], purpose: Purpose, most: int) -> list[Record]:
    """At most ``most`` training examples from one context, as records of the data formats (docs/formats.md).

    ``rft``: one for each passing answer. ``dpo``: pairs of a passing and a failing answer, each in one pair.
    """
    trajectory = next(t for t in context.problem.trajectories if context.trajectory in (None, t.index))
    found = answers.get(shown(trajectory.conversation, context.num_programs), Answers())
    record = {name: value for name, value in context.to_record().items() if name != "test_cases"}
    if purpose == "rft":
        return [{**record, "response": text} for text in found.passing[:most]]
    pairs = zip(found.passing[:most], found.failing[:most], strict=False)
    return [{**record, "chosen": passing, "rejected": failing} for passing, failing in pairs]
