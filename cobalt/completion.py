"""What a language model is asked for, and what it gives back."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cobalt.extraction import THINK_END, THINK_START

Message = dict[str, str]

FINISH_STOP = "stop"
"""The model ended the response itself."""
FINISH_LENGTH = "length"
"""The response was cut at ``max_tokens``, or at the end of the context."""
FINISH_CONTEXT = "context_length"
"""The prompt left no room for an answer: an empty response, not an infrastructure failure."""
FINISH_FILTER = "content_filter"
"""The provider withheld the answer: an empty response."""
GIVEN_UP = frozenset({"abort", "error", "network_error"})
"""Finish reasons, as servers name them, of a text that is not the model's whole answer."""

SEED_BITS = 53  # the largest integers that every JSON reader keeps exactly


@dataclass(frozen=True)
class Sampling:
    """How to sample one response. ``max_tokens`` bounds the response, thinking included."""

    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 8192


@dataclass(frozen=True)
class Completion:
    """One response. An engine that knows nothing else gives its text alone."""

    text: str
    """Raw, thinking included."""
    prompt_tokens: int = 0
    """0, here and in the next one: not counted."""
    completion_tokens: int = 0
    finish_reason: str = FINISH_STOP
    """One of those above, or as the provider names it."""
    cost: float | None = None
    """In US dollars. None: the engine has no price."""
    reported: Mapping[str, Any] = field(default_factory=dict)
    """What else the provider says about usage, such as ``reasoning_tokens``."""

    def __post_init__(self) -> None:
        """Half of a surrogate pair, which no tokenizer takes, becomes U+FFFD."""
        if not isinstance(self.text, str):
            raise TypeError(f"a completion has a text, not a value of type {type(self.text).__name__}")
        try:
            self.text.encode()
        except UnicodeEncodeError:
            text = self.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            object.__setattr__(self, "text", text)

    def usage(self) -> dict[str, Any]:
        """Everything but the text: the entry of a record's ``usage``."""
        usage = asdict(self)
        del usage["text"]
        return {**usage.pop("reported"), **usage}


def request_seed(seed: int, id_: Any, sample: int, turn: int) -> int:
    """The seed of one request: depends on nothing but its place in the data."""
    place = json.dumps([seed, id_, sample, turn], sort_keys=True)
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big") >> (64 - SEED_BITS)


def written(content: Any, reasoning: Any, was_cut: bool = False) -> str:
    """What a model wrote: the ``content`` of a message, before it the thinking that a server took out of it."""
    answer, thinking = joined(content, "text"), joined(reasoning, "text") or joined(content, "thinking")
    if not thinking or THINK_END in answer:
        return answer
    return f"{THINK_START}{thinking}{'' if was_cut and not answer else THINK_END}{answer}"


def joined(content: Any, kind: Literal["text", "thinking"]) -> str:
    """The parts of a ``kind``, joined. A content without parts is a text."""
    if isinstance(content, str):
        return content if kind == "text" else ""
    if isinstance(content, Mapping):
        return joined(content.get(kind), "text") if content.get("type") == kind else ""
    return "".join(joined(part, kind) for part in content) if isinstance(content, list) else ""
