"""What a conversation is made of: turns, and what later turns see of a response.

Turn t comes after t messages of feedback; turn 0 is the first program. Public tests run on the raw response. The
history holds its ``history_text``, and hidden tests later run on that.
"""

from dataclasses import dataclass
from typing import Any

from cobalt.extraction import DEFAULT_RULE, THINK_END, Rule, answer_of
from cobalt.records import ResultRecord

HISTORY_CHARACTERS = 6000
HISTORY_RULE = "stripped"
"""Recorded with an output, since older versions kept the white space after ``</think>``."""

Usage = dict[str, Any] | None
"""As ``Completion.usage``; None if there was no response."""


@dataclass(frozen=True)
class Turn:
    """One response, and what its program did on the tests that give feedback."""

    text: str
    """Empty if there was no response."""
    usage: Usage
    result: ResultRecord

    @property
    def failed(self) -> bool:
        """True after an infrastructure failure of the engine or the executor."""
        return self.result.infra_error is not None


def history_text(response: str, enable_thinking: bool, extraction: Rule = DEFAULT_RULE, was_cut: bool = False) -> str:
    """The part of a response that later turns see. One that ``was_cut`` inside its thinking leaves nothing.

    ``was_cut`` is needed because the response itself may lack ``<think>``: some chat templates put it into the prompt.
    """
    if not enable_thinking:
        return response
    if extraction == "released":
        return response.rpartition(THINK_END)[2].strip()[:HISTORY_CHARACTERS]
    if was_cut and THINK_END not in response:
        return ""
    return answer_of(response).strip()[:HISTORY_CHARACTERS]
