"""One conversation: programs, their feedback, and the messages in between.

Turn t = number of feedbacks seen; turn 0 is the first program. Public tests run on the raw response. With
``enable_thinking`` the history holds what follows the last ``</think>``, cut to ``HISTORY_CHARACTERS``; hidden tests
later run on that text. An infrastructure failure ends the conversation: the turns after it are not taken.
"""

from dataclasses import dataclass
from typing import Any

from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.records import ExecutionResult

HISTORY_CHARACTERS = 6000
THINK_END = "</think>"


@dataclass(frozen=True)
class Turn:
    """A response and what its program did on the tests that give feedback.

    ``usage`` is None iff there is no response: the engine failed, or an earlier turn did.
    """

    response: str
    usage: dict[str, Any] | None
    result: ExecutionResult

    @property
    def failed(self) -> bool:
        """True after an infrastructure failure of the engine or the executor."""
        return self.result.infra_error is not None

    @property
    def generated(self) -> bool:
        """True iff the engine answered."""
        return self.usage is not None


def history_text(response: str, enable_thinking: bool) -> str:
    """The part of a response that later turns see."""
    if not enable_thinking:
        return response
    return response.rpartition(THINK_END)[2][:HISTORY_CHARACTERS]


def history_changes_program(response: str, enable_thinking: bool) -> bool:
    """True iff the history's program is not the one that the public tests ran."""
    return extract_code(response) != extract_code(history_text(response, enable_thinking))


def turn_from_record(record: dict[str, Any], where: str) -> Turn:
    """Read what ``turn_to_record`` wrote."""
    try:
        return Turn(record["response"], record["usage"], ExecutionResult.from_record(record["result"]))
    except (KeyError, TypeError) as error:
        raise InputError(f"{where}: not a turn ({error})") from None


def turn_to_record(turn: Turn) -> dict[str, Any]:
    """JSON-ready form, for the journal."""
    return {"response": turn.response, "usage": turn.usage, "result": turn.result.to_record()}
