"""Any API through LiteLLM: OpenAI, Bedrock (boto3), or any OpenAI-compatible server (vLLM, SGLang) at ``api_base``.

Rate limits, timeouts, dropped connections, 5xx, unreadable and broken-off answers are retried; a rate limit also halves
the number of requests in flight, which then recovers by one per round. A prompt over the context and an answer withheld
by a filter are the model's answer: an empty response. No key, a refused one or an unknown model stops the run; any
other refused request is an ``InfraError`` of its own. Before the first request a small one is sent alone: what refuses
it, or cannot be reached, would fail all others too.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cobalt.completion import FINISH_CONTEXT, FINISH_FILTER, FINISH_STOP, GIVEN_UP, Completion, Message, Sampling
from cobalt.errors import InfraError, SetupError
from cobalt.inference.engine import Engine
from cobalt.records.manifest import is_secret, without_userinfo
from cobalt.serving.retries import FirstFailure, RetryConfig, TransientError, with_retries

STOPPING = {401, 403, 404}
"""HTTP statuses that every other request would meet too: the key, the rights, the model's name."""
REFUSING = {400, 422}
"""Statuses of a request that would be refused again."""
TOO_MANY = 429
DEFAULT_IN_FLIGHT = 64
LONGEST_RETRY_AFTER_S = 300.0
HIDDEN = "***"
SHORTEST_SECRET = 8
"""A shorter key in the environment is a placeholder for a server that wants none."""
TRIAL_MESSAGES = [{"role": "user", "content": "Reply with the word yes."}]
TRIAL_TOKENS = 8192
"""Enough for a model that thinks, and an end for one that goes on and on."""


@dataclass(frozen=True)
class ApiConfig:
    """Where requests go."""

    name: str
    """As LiteLLM names it."""
    reasoning_effort: str | None = None
    request_timeout_s: float = 1800
    api_base: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Keyword arguments of ``litellm.acompletion`` that are never shown: keys, region."""


class AdaptiveLimit:
    """Requests in flight: halved by a rate limit, once per round, and one more per round of answers."""

    def __init__(self, most: int):
        self._most, self._limit = most, float(most)
        self._answers_until_cut = 0

    @property
    def value(self) -> int:
        """The limit now, at least 1."""
        return int(self._limit)

    def answered(self) -> None:
        """A request was answered."""
        self._answers_until_cut = max(self._answers_until_cut - 1, 0)
        self._limit = min(self._limit + 1 / self._limit, self._most)

    def refused(self) -> None:
        """A request met a rate limit; refusals of requests sent before the last cut do not count again."""
        if self._answers_until_cut:
            self._answers_until_cut -= 1
            return
        self._answers_until_cut = self.value
        self._limit = max(self._limit / 2, 1)


class LitellmEngine:
    """Use through ``open_litellm_engine``."""

    def __init__(self, model: ApiConfig, max_in_flight: int, retry: RetryConfig):
        self.model_id = model.name
        self._model, self._retry = model, retry
        self._limit = AdaptiveLimit(max_in_flight)
        self._trial: asyncio.Future[None] | None = None
        self._failed = FirstFailure()

    @property
    def max_in_flight(self) -> int:
        """How many requests the API takes at the moment."""
        return self._limit.value

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``; raises ``InfraError`` after the last retry, ``SetupError`` if all would fail."""
        if self._trial is None:
            self._trial = asyncio.ensure_future(self._try(sampling, seed))
        await asyncio.shield(self._trial)
        return await with_retries(lambda: self._send(messages, sampling, seed), self._retry, self._failed)

    async def _try(self, sampling: Sampling, seed: int) -> None:
        """One small request as the others will be. Trouble that may pass is left to their retries."""
        few = replace(sampling, max_tokens=min(sampling.max_tokens, TRIAL_TOKENS))
        try:
            await self._send(TRIAL_MESSAGES, few, seed)
        except TransientError as error:
            if any(isinstance(cause, _unreachable()) for cause in _causes(error)):
                raise SetupError(f"{self._model.name}: no connection to {self._address()}: {error}") from None
            self._failed(error)
        except InfraError as error:
            raise SetupError(f"{self._model.name} refuses what the run would ask for: {error}") from None

    def _address(self) -> str:
        return without_userinfo(self._model.api_base or "its API")

    async def _send(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        import litellm
        import openai
        from litellm import exceptions

        try:
            response = await litellm.acompletion(
                model=self._model.name,
                messages=messages,
                **asdict(sampling),
                seed=seed,
                reasoning_effort=self._model.reasoning_effort,
                timeout=self._model.request_timeout_s,
                api_base=self._model.api_base,
                drop_params=True,  # models differ in which of these they take
                num_retries=0,
                max_retries=0,
                **self._model.secrets,
            )
        except exceptions.ContextWindowExceededError:
            return Completion("", 0, 0, FINISH_CONTEXT)
        except exceptions.ContentPolicyViolationError:
            return Completion("", 0, 0, FINISH_FILTER)
        except openai.OpenAIError as error:  # the base class of all that LiteLLM raises about a request
            raise self._classified(error) from error
        self._limit.answered()
        return _completion(response)

    def _classified(self, error: Exception) -> Exception:
        import openai

        status, text = getattr(error, "status_code", None), self._clean(error)
        keyless = any(type(cause) is openai.OpenAIError for cause in _causes(error))  # LiteLLM makes a 500 of it
        if status in STOPPING or keyless:
            return SetupError(f"{self._model.name}: {text}")
        if status in REFUSING:
            return InfraError(text)
        if status == TOO_MANY:
            self._limit.refused()
        return TransientError(text, _retry_after_s(error))

    def _clean(self, error: Exception) -> str:
        """One line about ``error``, without secrets."""
        text = without_userinfo(" ".join(f"{type(error).__name__}: {error}".split()))
        for secret in [*self._model.secrets.values(), *_secrets_of_environment()]:
            text = text.replace(secret, HIDDEN)
        return text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _unreachable() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.ConnectError, httpx.InvalidURL)


def _secrets_of_environment() -> list[str]:
    return [value for name, value in os.environ.items() if is_secret(name) and len(value) >= SHORTEST_SECRET]


def _retry_after_s(error: Exception) -> float:
    headers = getattr(error, "litellm_response_headers", None) or {}
    try:
        return min(float(headers.get("retry-after", 0)), LONGEST_RETRY_AFTER_S)
    except ValueError:  # the header may hold a date; our own pauses do
        return 0.0


def _completion(response: Any) -> Completion:
    """Read an answer; one without a choice or without usage is unreadable, one that the server gave up is none."""
    if not getattr(response, "choices", None) or getattr(response, "usage", None) is None:
        raise TransientError("the answer has no choice or no usage")
    choice = response.choices[0]
    reason = _native_reason(choice)
    if reason.lower() in GIVEN_UP:
        raise TransientError(f"the server gave the request up (finish reason {reason})")
    return Completion(
        text=choice.message.content or "",
        prompt_tokens=response.usage.prompt_tokens,
        completion_tokens=response.usage.completion_tokens,
        finish_reason=choice.finish_reason or FINISH_STOP,
        cost=response._hidden_params.get("response_cost"),
        reported=_reported(response.usage),
    )


def _reported(usage: Any) -> dict[str, Any]:
    """All that the provider said about usage; ``reasoning_tokens`` beside the other counts."""
    said = usage.model_dump(mode="json", exclude_none=True)
    reasoning = (said.get("completion_tokens_details") or {}).get("reasoning_tokens")
    return said if reasoning is None else {**said, "reasoning_tokens": reasoning}


def _native_reason(choice: Any) -> str:
    """The server's own finish reason: LiteLLM makes FINISH_STOP of all that it does not know."""
    native = getattr(choice, "provider_specific_fields", None) or {}
    return native.get("native_finish_reason") or choice.finish_reason or ""


@asynccontextmanager
async def open_litellm_engine(
    model: ApiConfig, max_in_flight: int | None = None, retry: RetryConfig | None = None
) -> AsyncIterator[Engine]:
    """An engine for ``model``. Importing LiteLLM takes seconds; its price list is the installed one, not downloaded."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    yield LitellmEngine(model, max_in_flight or DEFAULT_IN_FLIGHT, retry or RetryConfig())
