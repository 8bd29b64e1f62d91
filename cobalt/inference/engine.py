"""What the driver needs from a language model.

An engine answers one chat request at a time and is asked for many at once; batching, retries and rate limits are its
own business. Implementations: ``vllm_serve`` (the Ray Serve app), ``litellm_api`` (any API) and ``huggingface`` (a
model in this process).
"""

from typing import Protocol

from cobalt.completion import Completion, Message, Sampling


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
