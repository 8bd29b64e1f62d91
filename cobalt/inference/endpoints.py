"""Models behind an endpoint: any OpenAI-compatible server (the vLLM app), and any API through LiteLLM.

The ``openai`` package and LiteLLM's router retry rate limits, timeouts, dropped connections and 5xx. They wait as long
as the server's Retry-After says, or for growing pauses. Unreadable answers are tried again, too. What still fails then
is an ``InfraError``, as is any other refused request.
A prompt over the context and an answer withheld by a filter count as an empty response of the model. A prompt that
leaves room for less than ``max_tokens`` gets a shorter response. A missing or refused key stops the run. A server that
cannot be reached, and an unknown model, stop it before the first request.
"""

import asyncio
import math
import os
import re
import resource
import sys
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential
from tqdm import tqdm

from cobalt.completion import (
    FINISH_CONTEXT,
    FINISH_FILTER,
    FINISH_LENGTH,
    FINISH_STOP,
    GIVEN_UP,
    Completion,
    Message,
    Sampling,
    joined,
    written,
)
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.inference.flags import LitellmConfig, OpenWeightConfig
from cobalt.inference.pace import Pace
from cobalt.records.identity import model_identity
from cobalt.records.manifest import is_secret, without_userinfo
from cobalt.serving.app_settings import IN_FLIGHT_HEADER, TOKEN_VARIABLE, http_token
from cobalt.serving.proxies import keep_loopback_direct, via_proxy

ERROR_NAMES = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception)(?::| -)\s+)+")
"""What LiteLLM puts before the text of an error: its own class, and those of its causes."""
RETRIES = 16
"""Retries of either client. The pauses are 0.5, 1, 2, 4, 8, 8, ... seconds: about two minutes in all."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8
UNREADABLE = (ValueError, RecursionError)
"""Errors of an answer that is no JSON, or none of a chat."""
LIST_TIMEOUT_S = 30
"""A server that has not listed its models by then does not answer."""
DEFAULT_IN_FLIGHT = 64
"""Requests in flight to an API behind LiteLLM."""
LARGEST_SEED = 2**31 - 1
"""Some APIs, such as Gemini's, refuse a larger one."""
URL_VARIABLE = "COBALT_VLLM_URL"
DEFAULT_URL = "http://127.0.0.1:8000/vllm_actor/v1"
START_HINT = (
    "start one with: serve run vllm_engine_actor:app --name vllm_actor --route-prefix /vllm_actor model=MODEL, "
    f"say where it is (--api_base or {URL_VARIABLE}), or pass --engine hf --model MODEL"
)
SGLANG = "sglang"
"""Who owns a model, as SGLang's server lists it."""
SGLANG_REQUEST = {"separate_reasoning": False, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Fields that make SGLang return the text as it was written, and sample by the flags alone. Left out, its server takes
thinking apart without the whitespace around it, and adds what the model's own file says about sampling."""
SGLANG_RESERVE = 6
"""Tokens at the end of the context that SGLang takes no prompt into."""
TRIAL_MESSAGES = [{"role": "user", "content": "Reply with the word yes."}]
TRIAL_TOKENS = 8192
"""Enough for a model that thinks. It ends a response that would go on and on."""


class OpenAIEngine:
    """A model of an OpenAI-compatible server. ``client``: an ``AsyncOpenAI``.

    ``max_in_flight`` None: found out from how quickly answers come. ``context``: tokens of prompt and response, None
    if the server does not say. ``more``: other fields of each request.
    """

    def __init__(
        self, client: Any, model_id: str, max_in_flight: int | None, context: int | None, more: Mapping[str, Any]
    ):
        self._client, self.model_id, self._max_in_flight, self._pace = client, model_id, max_in_flight, Pace()
        self._context, self._more, self._counts_tokens = context, more, True

    @property
    def max_in_flight(self) -> int:
        return self._max_in_flight or self._pace.limit

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``. Raises ``InfraError`` after the last retry, ``SetupError`` if all would fail."""
        import openai

        request = {"model": self.model_id, "messages": messages, "seed": seed, **asdict(sampling)}
        try:
            try:
                return await self._create(**request)
            except openai.BadRequestError as error:
                # A server refuses a prompt that leaves no room for ``max_tokens``. Some say how much room there is.
                prompt_tokens = await self._count(request)
                if self._context is None or prompt_tokens is None:
                    if not is_about_context(error):
                        raise
                    if self._context is None and sampling.max_tokens > 1:  # else a single token was refused, too
                        return await self.generate(messages, halved(sampling), seed)
                    return Completion("", 0, 0, FINISH_CONTEXT)
                room = self._context - prompt_tokens
                if room < 1:
                    return Completion("", prompt_tokens, 0, FINISH_CONTEXT)
                if room >= sampling.max_tokens:
                    raise
                return await self._create(**{**request, "max_tokens": room})
        except openai.OpenAIError as error:
            if is_filtered(error):
                return Completion("", 0, 0, FINISH_FILTER)
            raise _failure(self.model_id, error, [self._client.api_key]) from error
        except UNREADABLE as error:
            raise InfraError(f"the answer cannot be read: {error}") from None

    async def _create(self, **request: Any) -> Completion:
        trying = AsyncRetrying(
            retry=retry_if_exception_type(UNREADABLE),
            stop=stop_after_attempt(1 + RETRIES),
            wait=wait_exponential(FIRST_PAUSE_S, LONGEST_PAUSE_S),
            reraise=True,
        )
        response, retries = await trying(self._answer, request)
        completion = _completion(response)
        if getattr(response, "usage", None) is None and self._counts_tokens:
            self._counts_tokens = False
            tqdm.write("note: the server's answers have no usage; their tokens are not counted", file=sys.stderr)
        was_retried = retries > 0 or trying.statistics["attempt_number"] > 1
        self._pace.note(completion.completion_tokens or 1, was_retried, time.monotonic())
        return completion

    async def _answer(self, request: dict[str, Any]) -> tuple[Any, int]:
        """What the client makes of an answer, whose types it does not check, and how often it asked again for it."""
        # given as ``messages``, the history is walked through: a quarter of what a request costs
        options = {name: value for name, value in request.items() if name != "messages"}
        body = {"messages": request["messages"], **self._more}
        answer = await self._client.chat.completions.with_raw_response.create(messages=[], extra_body=body, **options)
        response = answer.parse()
        if not getattr(response, "choices", None):
            raise ValueError("it has no choices")
        return response, answer.retries_taken

    async def _count(self, request: dict[str, Any]) -> int | None:
        """Tokens of the prompt. None if the server does not say: only vLLM and SGLang do."""
        import openai

        if self._context is None:
            return None
        url = f"{str(self._client.base_url).rstrip('/').removesuffix('/v1')}/tokenize"
        try:
            body = {name: request[name] for name in ("model", "messages")}
            said = await self._client.with_options(max_retries=1).post(url, cast_to=dict[str, Any], body=body)
            return said["count"]
        except (openai.OpenAIError, *UNREADABLE, KeyError, TypeError):
            pass
        try:  # SGLang's fails with a tokenizer that names no longest text
            return (await self._create(**{**request, "max_tokens": 1})).prompt_tokens
        except openai.BadRequestError:
            return None


@asynccontextmanager
async def open_openai_engine(flags: OpenWeightConfig) -> AsyncIterator[OpenAIEngine]:
    """Connect to the server; ``SetupError`` if there is none, ``InputError`` if it does not serve ``flags.model``."""
    import httpx
    import openai

    from cobalt.serving.http_client import ManyRequests

    keep_loopback_direct()
    base = flags.api_base or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    _refuse_no_url(base, f"--api_base or {URL_VARIABLE}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each request in flight is a connection
    async with openai.AsyncOpenAI(
        base_url=base,
        api_key=http_token() or "none",
        max_retries=RETRIES,
        timeout=flags.request_timeout_s,
        http_client=ManyRequests(follow_redirects=True),
    ) as client:
        at = without_userinfo(base)
        try:
            asking = client.with_options(max_retries=0, timeout=LIST_TIMEOUT_S)
            listed = await asking.models.with_raw_response.list()
            models = list(listed.parse().data)
            served = [model.id for model in models]
        except (openai.OpenAIError, httpx.InvalidURL, AttributeError, TypeError, *UNREADABLE) as error:
            reason = _clean(error, [client.api_key])
            if getattr(error, "status_code", None) in (401, 403):
                raise SetupError(f"{at} refuses the key ({reason}); put its key into {TOKEN_VARIABLE}") from None
            raise SetupError(f"no vLLM app or other server at {at}{via_proxy(base)} ({reason}); {START_HINT}") from None
        if not models:
            raise SetupError(f"the server at {at} lists no model; start it with one")
        fitting = [model for model in models if flags.model is None or is_model(model.id, flags.model)]
        if not fitting:
            raise InputError(f"--model {flags.model}, but the server at {at} serves {', '.join(served)}")
        if flags.model is None and len(fitting) > 1:
            raise InputError(f"the server at {at} serves several models; name one with --model: {', '.join(served)}")
        said = listed.headers.get(IN_FLIGHT_HEADER)
        in_flight = flags.max_in_flight or (int(said) if said else None)
        model_id, of_sglang = fitting[0].id, getattr(fitting[0], "owned_by", None) == SGLANG
        bases = [model for model in models if model.id == getattr(fitting[0], "parent", None)]  # of an adapter
        told = (getattr(model, "max_model_len", None) for model in (fitting[0], *bases, *models))
        context = next(filter(None, told), None)
        if of_sglang and (base_model := getattr(fitting[0], "parent", None)):
            model_id = f"{base_model}:{model_id}"  # by its name alone, an adapter is answered for by the base model
        if of_sglang and context:
            context -= SGLANG_RESERVE
        yield OpenAIEngine(client, model_id, in_flight, context, SGLANG_REQUEST if of_sglang else {})


def _refuse_no_url(base: str, given_by: str) -> None:
    """Raise ``InputError``, which shows no key that may be in the address."""
    import httpx

    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise InputError(f"{given_by} is no address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        meant = without_userinfo(f"http://{base.rpartition('://')[2].lstrip('/')}")
        raise InputError(f"{given_by} is no address that begins with http:// or https://; did you mean {meant}?")


def is_about_context(error: Any) -> bool:
    """Whether a server refused a request because prompt and response are more than its context."""
    if getattr(error, "status_code", None) != 400:
        return False
    return "context length" in str(error) or getattr(error, "code", None) == "context_length_exceeded"


def is_filtered(error: Any) -> bool:
    """Whether a content filter refused the prompt. OpenRouter's answers 403, and that the input was flagged."""
    status, code = getattr(error, "status_code", None), getattr(error, "code", None)
    return (status == 400 and code == "content_filter") or (status == 403 and "flagged" in str(error))


def halved(sampling: Sampling) -> Sampling:
    """For a server that refused prompt and ``max_tokens`` together, and does not say how much room there is."""
    return replace(sampling, max_tokens=sampling.max_tokens // 2)


def is_model(served: str, model: str) -> bool:
    """Whether ``served`` names the folder or hub name ``model``.

    A revision or template settings may follow. The app adds a folder's fingerprint, other servers do not.
    """
    if served == model:
        return True
    wanted = model_identity(model)
    return f"{served} ".startswith((f"{wanted} ", f"{wanted}@"))


class LitellmEngine:
    """Use through ``open_litellm_engine``. ``router``: LiteLLM's, with this one model."""

    def __init__(self, router: Any, flags: LitellmConfig, secrets: list[str]):
        self.model_id, self.max_in_flight = flags.model_name, flags.max_in_flight or DEFAULT_IN_FLIGHT
        self._router, self._flags, self._secrets = router, flags, secrets
        self._trial: asyncio.Future[None] | None = None

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``. Raises ``InfraError`` after the last retry, ``SetupError`` if all would fail."""
        if self._trial is None:
            self._trial = asyncio.ensure_future(self._try(sampling, seed))
        await asyncio.shield(self._trial)
        return await self._send(messages, sampling, seed, RETRIES)

    async def _try(self, sampling: Sampling, seed: int) -> None:
        """Send one small request with the settings of all others. An error that all would meet is a ``SetupError``."""
        few = replace(sampling, max_tokens=min(sampling.max_tokens, TRIAL_TOKENS))
        try:
            await self._send(TRIAL_MESSAGES, few, seed, retries=0)
        except InfraError as error:
            causes = list(_causes(error))
            if any(type(cause).__name__ in ("ConnectError", "ProxyError", "InvalidURL") for cause in causes):  # httpx's
                base = self._flags.api_base
                address = without_userinfo(base or "its API") + via_proxy(base or "https://its.api")
                raise SetupError(f"{self.model_id}: no connection to {address}: {error}") from None
            if any(getattr(cause, "status_code", None) in (400, 403, 404, 422) for cause in causes):
                raise SetupError(f"{self.model_id} refuses what the run would ask for: {error}") from None
            text = f"a small request failed, the others are tried again: {error}"
            tqdm.write(text, file=sys.stderr)  # above the progress bar

    async def _send(self, messages: list[Message], sampling: Sampling, seed: int, retries: int) -> Completion:
        import openai
        from litellm import exceptions

        try:
            response = await self._router.acompletion(
                model=self.model_id,
                messages=messages,
                **asdict(sampling),
                seed=seed & LARGEST_SEED,
                reasoning_effort=self._flags.reasoning_effort,
                num_retries=retries,
            )
        except openai.OpenAIError as error:  # the base class of all that LiteLLM raises about a request
            if isinstance(error, exceptions.ContentPolicyViolationError) or is_filtered(error):
                return Completion("", 0, 0, FINISH_FILTER)
            if not (isinstance(error, exceptions.ContextWindowExceededError) or is_about_context(error)):
                raise _failure(self.model_id, error, self._secrets) from error
            if sampling.max_tokens == 1:
                return Completion("", 0, 0, FINISH_CONTEXT)
            return await self._send(messages, halved(sampling), seed, retries)
        # All that the provider said about usage, with ``reasoning_tokens`` beside the other counts.
        completion = _completion(response)
        said = response.usage.model_dump(mode="json", exclude_none=True)
        reasoning = (said.get("completion_tokens_details") or {}).get("reasoning_tokens")
        said |= {} if reasoning is None else {"reasoning_tokens": reasoning}
        cost = response._hidden_params.get("response_cost") or completion.cost  # 0: the router does not know the price
        return replace(completion, cost=cost, reported=said)


@asynccontextmanager
async def open_litellm_engine(flags: LitellmConfig) -> AsyncIterator[LitellmEngine]:
    """The API that the flags describe. Importing LiteLLM takes seconds; it downloads no price list."""
    keep_loopback_direct()
    if flags.api_base is not None:
        _refuse_no_url(flags.api_base, "--api_base")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm
    import openai
    from litellm import exceptions
    from litellm.router import Router

    class OneModel(Router):
        async def make_call(self, *call: Any, **named: Any) -> Any:
            """One attempt. LiteLLM's own timeout is for each piece of the answer, which may be without choices."""
            try:
                async with asyncio.timeout(flags.request_timeout_s):
                    answer = await super().make_call(*call, **named)
            except TimeoutError:
                text = f"no complete answer after {flags.request_timeout_s:g} s"
                raise exceptions.Timeout(text, flags.model_name, "") from None
            if not answer.choices:
                raise exceptions.InternalServerError("the answer has no choices", "", flags.model_name)
            return answer

        def should_retry_this_error(self, error: Exception, *others: Any, **named: Any) -> Any:
            """Raises ``error`` if it would stay. LiteLLM would ask an OpenAI-compatible server again after a 403."""
            if getattr(error, "status_code", None) == 403:
                raise error
            return super().should_retry_this_error(error, *others, **named)

    litellm.suppress_debug_info = True
    # A request that is cancelled while LiteLLM prepares it in a thread: the end of a run may cancel many.
    warnings.filterwarnings("ignore", r"coroutine '.*completion\w*' was never awaited", RuntimeWarning)
    _let_litellm_read_parts()
    keys = {name: getattr(flags, name) for name in ("aws_access_key_id", "aws_secret_access_key", "aws_region_name")}
    secrets = {name: value for name, value in {"api_key": flags.openai_api_key, **keys}.items() if value}
    deployment = {"model": flags.model_name, "api_base": flags.api_base, "timeout": flags.request_timeout_s, **secrets}
    deployment["drop_params"] = True  # models differ in which of the settings they take
    try:
        deployments = [{"model_name": flags.model_name, "litellm_params": deployment}]
        router = OneModel(deployments, disable_cooldowns=True)
    except openai.OpenAIError as error:
        raise SetupError(f"{flags.model_name}: {_clean(error, list(secrets.values()))}") from None
    yield LitellmEngine(router, flags, list(secrets.values()))


def _completion(response: Any) -> Completion:
    """Read an answer. One that is unreadable, or that the server gave up, is an ``InfraError``. Types are as sent."""
    choices, usage = (getattr(response, name, None) for name in ("choices", "usage"))
    choice = choices[0] if isinstance(choices, list) and choices else None
    if (message := getattr(choice, "message", None)) is None:
        raise InfraError("the answer has no choice with a message")
    tokens = [0 if usage is None else getattr(usage, f"{of}_tokens", None) for of in ("prompt", "completion")]
    prompt_tokens, completion_tokens = (
        number if isinstance(number, int) and number >= 0 else None for number in tokens
    )
    if prompt_tokens is None or completion_tokens is None:
        raise InfraError("the answer's usage does not tell its tokens")
    # The server's own finish reason: LiteLLM makes FINISH_STOP of all that it does not know.
    native = getattr(choice, "provider_specific_fields", None) or {}
    finish_reason = str(getattr(choice, "finish_reason", None) or FINISH_STOP)
    reason = native.get("native_finish_reason") or finish_reason
    if reason.lower() in GIVEN_UP:
        raise InfraError(f"the server gave the request up (finish reason {reason})")
    thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    cost = getattr(usage, "cost", None)
    return Completion(
        text=written(getattr(message, "content", None), thinking, finish_reason == FINISH_LENGTH),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        finish_reason=finish_reason,
        cost=cost if isinstance(cost, int | float) and 0 <= cost < math.inf else None,
    )


def _let_litellm_read_parts() -> None:
    """Have LiteLLM read a content in parts. Its versions up to 1.106 call such an answer an invalid response."""
    from litellm.litellm_core_utils.llm_response_utils import convert_dict_to_response as reader
    from litellm.types.utils import Message as LitellmMessage

    class InParts(LitellmMessage):
        def __init__(self, content: Any = None, **fields: Any):
            if isinstance(content, list):
                fields["reasoning_content"] = fields.get("reasoning_content") or joined(content, "thinking") or None
                content = joined(content, "text")
            super().__init__(content=content, **fields)

    reader.Message = InParts


def _failure(model_id: str, error: Exception, secrets: list[str]) -> Exception:
    """What a request's error means: for the whole run, or for this request alone."""
    import openai

    text = _clean(error, secrets)
    keyless = any(type(cause) is openai.OpenAIError for cause in _causes(error))  # LiteLLM makes a 500 of it
    if getattr(error, "status_code", None) == 401 or keyless:
        return SetupError(f"{model_id}: {text}")
    return InfraError(text)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _clean(error: Exception, secrets: list[str]) -> str:
    """One line about ``error``, without the secrets that were given or are in the environment."""
    text = without_userinfo(" ".join(f"{type(error).__name__}: {ERROR_NAMES.sub('', str(error))}".split()))
    shortest = 8  # a shorter key is a placeholder for a server that wants none
    in_environment = [value for name, value in os.environ.items() if is_secret(name) and len(value) >= shortest]
    for secret in [*(secret for secret in secrets if len(secret) >= shortest), *in_environment]:
        text = text.replace(secret, "***")
    return text.partition(" LiteLLM: model group ")[0]
