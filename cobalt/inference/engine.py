"""What the driver needs from a language model, and what it gets back.

An engine answers one chat request at a time and is asked for many at once; batching, retries and rate limits are its
own business. Implementations: ``vllm_serve`` (the Ray Serve app), ``litellm_api`` (any API) and ``huggingface`` (a
model in this process).
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

Message = dict[str, str]

FINISH_CONTEXT = "context_length"
"""Finish reason of a prompt that leaves no room for an answer: an empty response, not an infrastructure failure."""

SEED_BITS = 53  # the largest integers that every JSON reader keeps exactly


@dataclass(frozen=True)
class Sampling:
    """How to sample one response. ``max_tokens`` bounds the response, thinking included."""

    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 8192


@dataclass(frozen=True)
class Completion:
    """One response. ``cost`` is in US dollars, None where the engine has no price."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    cost: float | None = None

    def usage(self) -> dict[str, Any]:
        """Everything but the text: the entry of a record's ``usage``."""
        usage = asdict(self)
        del usage["text"]
        return usage


class Engine(Protocol):
    """A language model that answers chat requests."""

    model_id: str
    """The model as the engine itself reports it; part of what a resumed run compares."""

    @property
    def max_in_flight(self) -> int:
        """How many requests keep it busy now. May change while it runs (rate limits)."""
        ...

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``; raises ``InfraError`` once its own retries are used up."""
        ...


def request_seed(seed: int, id_: Any, sample: int, turn: int) -> int:
    """The seed of one request: depends on nothing but its place in the data."""
    place = json.dumps([seed, id_, sample, turn], sort_keys=True)
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big") >> (64 - SEED_BITS)
