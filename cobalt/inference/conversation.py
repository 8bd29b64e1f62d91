"""One conversation: programs, their feedback, and the messages in between.

Turn t = number of feedbacks seen; turn 0 is the first program. Public tests run on the raw response. With
``enable_thinking`` the history holds what follows the last ``</think>``, stripped and cut to
``HISTORY_CHARACTERS``; hidden tests later run on that text. An infrastructure failure ends the conversation: the turns
after it are not taken.
"""

from dataclasses import dataclass
from typing import Any

from cobalt.errors import InputError
from cobalt.extraction import THINK_END, extract_code
from cobalt.records import ResultRecord

HISTORY_CHARACTERS = 6000
HISTORY_RULE = "stripped"
"""Part of what identifies an output: versions before this rule kept the white space after ``</think>``."""


@dataclass(frozen=True)
class Response:
    """What the model wrote in a turn; its program may not have run yet. ``usage``: as in ``Completion.usage``."""

    text: str
    usage: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """A turn that has ended: a response, and what its program did on the tests that give feedback.

    ``response`` is None iff there is none: the engine failed, or an earlier turn did.
    """

    response: Response | None
    result: ResultRecord

    @property
    def failed(self) -> bool:
        """True after an infrastructure failure of the engine or the executor."""
        return self.result.infra_error is not None

    @property
    def text(self) -> str:
        """The response's text; empty if there is none."""
        return self.response.text if self.response is not None else ""

    @property
    def usage(self) -> dict[str, Any] | None:
        """The response's usage; None if there is none."""
        return self.response.usage if self.response is not None else None


def history_text(response: str, enable_thinking: bool) -> str:
    """The part of a response that later turns see."""
    if not enable_thinking:
        return response
    return response.rpartition(THINK_END)[2].strip()[:HISTORY_CHARACTERS]


def history_changes_program(response: str, enable_thinking: bool) -> bool:
    """True iff the history's program is not the one that the public tests ran."""
    return extract_code(response) != extract_code(history_text(response, enable_thinking))


def turn_of(text: str, usage: dict[str, Any] | None, result: dict[str, Any]) -> Turn:
    """A turn from the three fields that records keep of it: a response without ``usage`` is none."""
    response = None if usage is None else Response(text, usage)
    return Turn(response, ResultRecord.from_record(result))


def turn_from_record(record: dict[str, Any], where: str) -> Turn:
    """Read what ``turn_to_record`` wrote."""
    try:
        return turn_of(record["response"], record["usage"], record["result"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{where}: not a turn ({error})") from None


def turn_to_record(turn: Turn) -> dict[str, Any]:
    """JSON-ready form, for the journal."""
    return {"response": turn.text, "usage": turn.usage, "result": turn.result.to_record()}
