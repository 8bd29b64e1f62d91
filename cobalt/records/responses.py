"""The responses of a multi-turn record, whichever run wrote it."""

from collections.abc import Mapping
from typing import Any


def raw_responses(record: Mapping[str, Any]) -> list[list[str]]:
    """``[turn][sample]``: ``raw_responses``; where a record has none, as released runs of APIs, the assistant messages.

    "" for a turn that was not taken. ``conversations`` and ``public_pass_rates`` give the shape.
    """
    if "raw_responses" in record:
        return record["raw_responses"]
    answers_N = [[m["content"] for m in messages if m["role"] == "assistant"] for messages in record["conversations"]]
    turns = range(len(record["public_pass_rates"]))
    return [[answers[turn] if turn < len(answers) else "" for answers in answers_N] for turn in turns]
