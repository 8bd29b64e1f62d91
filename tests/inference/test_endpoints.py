"""Both clients against a real local HTTP server that refuses, fails, delays, lies and drops connections."""

import asyncio
import hashlib
import json
import random
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from api_server import KEY, Answer, ApiServer, api_server, good_answer, quick_clients
from scripted import GUESSES, MultiplyingService, make_plan, read_rows, run_plan, write_problems

from cobalt.completion import FINISH_CONTEXT, FINISH_FILTER, Completion, Sampling, request_seed
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.inference.endpoints import open_litellm_engine, open_openai_engine
from cobalt.inference.flags import LitellmConfig, MultiTurnLitellmConfig, OpenWeightConfig

MESSAGES = [{"role": "user", "content": "hi"}]
TIMEOUT_S = 1.0
RETRIES = 5

TROUBLES: list[Answer] = [
    ("status", {"code": 429}),
    ("status", {"code": 429, "retry_after": "0"}),
    ("status", {"code": 500}),
    ("status", {"code": 503}),
    ("slow", {"seconds": TIMEOUT_S + 1}),
    ("trickle", {"seconds": TIMEOUT_S + 1}),
    ("garbage", {"content": b"<html>gateway</html>"}),
    ("garbage", {"content": b"[" * 200_000}),
    ("garbage", {"content": b'{"id": "\xff"}'}),
    ("garbage", {"content": b"[1, 2]"}),
    ("garbage", {"content": b"{}"}),
    ("garbage", {"content": b'{"choices": []}'}),
    ("drop", {}),
    ("half", {}),
]
NO_ANSWERS: list[Answer] = [
    ("ok", {"finish_reason": "abort"}),
    ("ok", {"finish_reason": "error"}),
    ("status", {"code": 400, "message": "odd"}),
]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_clients(monkeypatch, RETRIES)
    monkeypatch.setenv("COBALT_HTTP_TOKEN", f" {KEY}\r\n")  # as of the apps: without whitespace around it


def model(base: str) -> dict[str, Any]:
    address = {"model_name": "openai/local", "api_base": base}
    return {**address, "request_timeout_s": TIMEOUT_S, "openai_api_key": KEY}


def opened(client: str, base: str) -> AbstractAsyncContextManager[Any]:
    if client == "openai":
        return open_openai_engine(OpenWeightConfig(api_base=base, request_timeout_s=TIMEOUT_S))
    return open_litellm_engine(LitellmConfig(**model(base)))


async def ask(server: ApiServer, client: str = "litellm") -> Completion:
    async with opened(client, server.base) as engine:
        return await engine.generate(MESSAGES, Sampling(0.7, 0.9, 50), seed=3)


both_clients = pytest.mark.parametrize("client", ["openai", "litellm"])


@both_clients
async def test_request_and_answer(client: str) -> None:
    with api_server(lambda body, attempt: ("ok", {"text": "print"})) as server:
        answer = await ask(server, client)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("print", 11, 7)
    (body,) = server.bodies
    assert body["messages"] == MESSAGES
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.7, 0.9, 3)
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 50
    usage = answer.usage()
    assert usage.items() >= {"prompt_tokens": 11, "completion_tokens": 7, "finish_reason": "stop"}.items()
    if client == "litellm":  # it holds all that the provider reports
        assert (usage["reasoning_tokens"], usage["total_tokens"], usage["own_of_the_provider"]) == (5, 18, 3)
    assert usage["cost"] is None, "nobody knows the price of this model"
    assert json.dumps(usage), "it goes into a record"


async def test_an_api_gets_different_seeds_of_31_bits() -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server:
        async with open_litellm_engine(LitellmConfig(**model(server.base))) as engine:
            for turn in range(4):
                await engine.generate(MESSAGES, Sampling(), request_seed(42, "id", 0, turn))
    seeds = {body["seed"] for body in server.bodies}
    assert len(seeds) == 4 and max(seeds) < 2**31


@both_clients
@pytest.mark.parametrize(
    ("message", "finish_reason", "text"),
    [
        ({"content": "\n\nanswer", "reasoning_content": "why"}, "stop", "<think>why</think>\n\nanswer"),
        ({"content": "answer", "reasoning": "why"}, "stop", "<think>why</think>answer"),
        ({"content": None, "reasoning_content": "why and"}, "length", "<think>why and"),
        ({"content": [{"type": "text", "text": "an"}, {"type": "text", "text": "swer"}]}, "stop", "answer"),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}, "answer"]},
            "stop",
            "<think>why</think>answer",
        ),
        ({"content": None, "refusal": "no"}, "stop", ""),
    ],
)
async def test_thinking_beside_the_answer_is_put_back(client: str, message: Any, finish_reason: str, text: str) -> None:
    details = {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    with api_server(lambda body, attempt: ("ok", details)) as server:
        assert (await ask(server, client)).text == text


async def test_a_known_price_is_recorded() -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server:
        flags = LitellmConfig(**{**model(server.base), "model_name": "openai/gpt-5-mini-2025-08-07"})
        async with open_litellm_engine(flags) as engine:
            cost = (await engine.generate(MESSAGES, Sampling(0.7, 0.9, 50), seed=3)).cost
    assert cost == pytest.approx(11 * 0.25e-6 + 7 * 2e-6)


@both_clients
@pytest.mark.parametrize(("said", "cost"), [(0.25, 0.25), (0, 0), (None, None), ("free", None), (-1, None)])
async def test_a_price_that_the_provider_tells_is_recorded(client: str, said: Any, cost: float | None) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "cost": said}
    content = json.dumps({**good_answer({"model": "local"}), "usage": usage}).encode()
    with api_server(lambda body, attempt: ("garbage", {"content": content})) as server:
        assert (await ask(server, client)).usage()["cost"] == cost


@both_clients
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: f"{trouble[0]}-{next(iter(trouble[1].values()), '')}")
async def test_trouble_is_tried_again(trouble: Answer, client: str) -> None:
    with api_server(lambda body, attempt: trouble if attempt == 0 else ("ok", {})) as server:
        assert (await ask(server, client)).text == "hello"
    assert sum(server.kinds.values()) == 2, "one retry, of the library alone"


@both_clients
@pytest.mark.parametrize("answer", NO_ANSWERS, ids=lambda answer: next(iter(map(str, answer[1].values()))))
async def test_what_is_no_answer_is_an_infra_error_and_not_repeated(answer: Answer, client: str) -> None:
    with api_server(lambda body, attempt: answer) as server, pytest.raises(InfraError):
        await ask(server, client)
    assert sum(server.kinds.values()) == 1


@both_clients
@pytest.mark.parametrize(
    "said",
    [
        {"choices": [{"finish_reason": "stop"}]},
        {"choices": ["hello"]},
        {"choices": {"0": "hello"}},
        {"usage": [1]},
        {"usage": {"prompt_tokens": "10", "completion_tokens": "7"}},
        {"usage": {"prompt_tokens": None, "completion_tokens": 7}},
        {"usage": {"prompt_tokens": -1, "completion_tokens": 7}},
    ],
    ids=str,
)
async def test_an_answer_of_odd_types_costs_no_other_request(client: str, said: dict[str, Any]) -> None:
    usual = {"choices": [{"message": {"content": "hello"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 7}}
    content = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", **usual, **said})
    with api_server(lambda body, attempt: ("garbage", {"content": content.encode()})) as server:
        try:
            answer = await ask(server, client)
        except InfraError:
            return
        assert client == "litellm" and answer.completion_tokens in (0, 7)  # which reads some of them


async def test_a_server_that_counts_no_tokens_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    content = json.dumps({**answer, "choices": [{"message": {"content": "hello"}}]}).encode()
    with api_server(lambda body, attempt: ("garbage", {"content": content})) as server:
        async with open_openai_engine(OpenWeightConfig(api_base=server.base)) as engine:
            answers = [await engine.generate(MESSAGES, Sampling(), seed) for seed in range(2)]
    assert [(answer.text, answer.completion_tokens) for answer in answers] == [("hello", 0)] * 2
    assert capsys.readouterr().err.count("tokens are not counted") == 1


@both_clients
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://HOST:PORT/v1", "is no address: "),
        ("http://[::1/v1", "is no address: "),
        ("http://key@127.0.0.1:x/v1", "is no address: "),
        ("key@localhost:8801/v1", r"did you mean http://localhost:8801/v1\?$"),
        ("http:///v1", r"did you mean http://v1\?$"),
        ("ftp://host/v1", r"did you mean http://host/v1\?$"),
        ("127.0.0.1:8801/v1", r"did you mean http://127\.0\.0\.1:8801/v1\?$"),
    ],
)
async def test_what_is_no_address_is_refused_at_once(client: str, address: str, told: str) -> None:
    with pytest.raises(InputError, match=rf"--api_base.* {told}") as refused:
        async with opened(client, address):
            pass
    assert "key" not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "content", "told"),
    [
        *(
            (200, content, "no vLLM app or other server")
            for content in (b"<html>", b"[" * 200_000, b'{"data": "\xff', b'{"data": null}', b'{"data": ["m"]}')
        ),
        (200, b'{"data": []}', "lists no model; start it with one"),
        (401, b'{"error": "no"}', "refuses the key .*; put its key into COBALT_HTTP_TOKEN"),
        (403, b'{"error": "no"}', "refuses the key .*; put its key into COBALT_HTTP_TOKEN"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_server_that_lists_no_model_says_why(
    monkeypatch: pytest.MonkeyPatch, code: int, content: bytes, told: str
) -> None:
    monkeypatch.setattr("api_server.Handler.do_GET", lambda self: self.send(code, content))
    with api_server(lambda body, attempt: ("ok", {})) as server, pytest.raises(SetupError, match=told):
        await ask(server, "openai")


async def test_a_server_that_never_lists_its_models_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cobalt.inference.endpoints.LIST_TIMEOUT_S", 0.2)
    monkeypatch.setattr("api_server.Handler.do_GET", lambda self: time.sleep(3))
    with api_server(lambda body, attempt: ("ok", {})) as server, pytest.raises(SetupError, match="timed out"):
        async with open_openai_engine(OpenWeightConfig(api_base=server.base)):
            pass


@both_clients
async def test_lasting_trouble_is_an_infra_error_that_names_its_kind_once(client: str) -> None:
    down = api_server(lambda body, attempt: ("status", {"code": 500}))
    with down as server, pytest.raises(InfraError, match=r"^InternalServerError: (?!.*InternalServerError)"):
        await ask(server, client)
    assert server.kinds["status"] == 1 + RETRIES


@both_clients
async def test_retry_after_is_respected(client: str) -> None:
    refusal = ("status", {"code": 429, "retry_after": "1"})
    with api_server(lambda body, attempt: refusal if attempt == 0 else ("ok", {})) as server:
        started = asyncio.get_running_loop().time()
        await ask(server, client)
        assert asyncio.get_running_loop().time() - started >= 1


@both_clients
@pytest.mark.parametrize(("code", "error"), [(401, SetupError), (403, InfraError), (404, InfraError)])
async def test_of_what_is_refused_later_only_a_key_stops_the_run(code: int, error: type, client: str) -> None:
    refused = ("status", {"code": code, "message": f"bad key {KEY}"})
    with api_server(lambda body, attempt: refused) as server, pytest.raises(error, match=r"bad key \*\*\*"):
        await ask(server, client)
    assert server.kinds["status"] == 1


async def test_a_request_that_litellm_was_preparing_when_a_run_ended_prints_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    class Provider:
        async def acompletion(self) -> None:
            """Never awaited, as LiteLLM's own where the request is cancelled in time."""

        async def acompletion_dispatch(self) -> None:
            """As Anthropic's."""

    async with open_litellm_engine(LitellmConfig(model_name="openai/local", openai_api_key=KEY)):
        Provider().acompletion()
        Provider().acompletion_dispatch()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment whose proxy nothing listens at."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "internal.example")
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")
    return "127.0.0.1:9"


@both_clients
async def test_servers_of_this_machine_are_reached_without_the_proxy(client: str, proxied: str) -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server:
        assert (await ask(server, client)).text == "hello"


async def test_a_failed_connection_names_the_proxy(proxied: str) -> None:
    message = rf"http://models\.invalid/v1 through the proxy http://{proxied} of the environment"
    with pytest.raises(SetupError, match=message):
        async with open_openai_engine(OpenWeightConfig(api_base="http://models.invalid/v1")):
            pass
    flags = LitellmConfig(model_name="openai/m", api_base="http://models.invalid/v1", openai_api_key=KEY)
    with pytest.raises(SetupError, match=message):
        async with open_litellm_engine(flags) as engine:
            await engine.generate(MESSAGES, Sampling(), 1)


async def test_a_server_that_names_no_number_of_requests_is_asked_for_more_and_more() -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server:
        async with open_openai_engine(OpenWeightConfig(api_base=server.base)) as engine:
            assert engine.max_in_flight == 64
            for _ in range(2):
                await asyncio.gather(*(engine.generate(MESSAGES, Sampling(), seed) for seed in range(64)))
            assert engine.max_in_flight == 128
        async with open_openai_engine(OpenWeightConfig(api_base=server.base, max_in_flight=3)) as engine:
            assert engine.max_in_flight == 3


async def test_keys_of_the_environment_and_of_the_address_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-of-environment")
    monkeypatch.setenv("OTHER_API_KEY", "none")
    message = "bad key sk-from-environment, session-of-environment at http://me:word@host/v1: none fits"
    refusing = api_server(lambda body, attempt: ("status", {"code": 401, "message": message}))
    with refusing as server, pytest.raises(SetupError, match=r"bad key \*\*\*, \*\*\* at http://host/v1: none fits"):
        async with open_litellm_engine(LitellmConfig(model_name="openai/local", api_base=server.base)) as engine:
            await engine.generate(MESSAGES, Sampling(), seed=3)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (401, r"openai/local: .* bad key \*\*\*$"),
        *((code, r"refuses what the run would ask for: .* bad key \*\*\*$") for code in (400, 403, 404, 422)),
    ],
)
async def test_what_every_request_would_meet_is_found_by_the_first_small_one(code: int, complaint: str) -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server, pytest.raises(SetupError, match=complaint):
        server.trial = ("status", {"code": code, "message": f"bad key {KEY}"})
        await ask(server)
    assert not server.bodies


async def test_trouble_that_may_pass_does_not_stop_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with api_server(lambda body, attempt: ("ok", {})) as server:
        server.trial = ("status", {"code": 500, "message": "still loading"})
        assert (await ask(server)).text == "hello"
    assert "still loading" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model_name", "api_base", "key", "complaint"),
    [
        ("openai/local", "http://127.0.0.1:1/v1", KEY, "no connection to http"),
        ("gpt-5-mini-2025-08-07", None, None, "Missing credentials"),
        ("some-model", "http://127.0.0.1:1/v1", None, "LLM Provider NOT provided"),
    ],
)
async def test_what_cannot_be_asked_is_said_at_once(
    model_name: str, api_base: str | None, key: str | None, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = LitellmConfig(model_name=model_name, api_base=api_base, openai_api_key=key)
    with pytest.raises(SetupError, match=complaint):
        async with open_litellm_engine(config) as engine:
            await engine.generate(MESSAGES, Sampling(), seed=3)


async def test_the_commonest_cause_of_failures_is_told(tmp_path: Path) -> None:
    source = write_problems(tmp_path / "problems.jsonl", 3)
    refusing = api_server(lambda body, attempt: ("status", {"code": 400, "message": "odd"}))
    with refusing as server, pytest.raises(SetupError, match=r"12 of 12 conversations .*12 x .*odd"):
        async with open_litellm_engine(LitellmConfig(**model(server.base))) as engine:
            plan = make_plan(source, tmp_path / "out.jsonl", num_completions=4)
            await run_plan(plan, engine, MultiplyingService())


@both_clients
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("This model's maximum context length is 10 tokens. However, your messages resulted in 99 tokens.", None),
        ("99 tokens are over the maximum context length of 10.", None),  # as SGLang
        ("99 tokens are too many.", "context_length_exceeded"),
    ],
)
async def test_a_prompt_over_the_context_has_an_empty_answer(client: str, message: str, code: str | None) -> None:
    answer = ("status", {"code": 400, "message": message, "code_text": code})
    with api_server(lambda body, attempt: answer) as server:
        completion = await ask(server, client)
    assert (completion.text, completion.finish_reason) == ("", FINISH_CONTEXT)
    # So is an answer of thoughts only.
    with api_server(lambda body, attempt: ("ok", {"text": None, "finish_reason": "length"})) as server:
        assert (await ask(server, client)).text == ""


@both_clients
@pytest.mark.parametrize(
    "refusal",
    [
        {"code": 400, "message": "content management policy", "code_text": "content_filter"},  # Azure's
        {"code": 403, "message": "Your input was flagged", "code_text": 403},  # OpenRouter's
    ],
)
async def test_a_prompt_that_a_filter_refuses_has_an_empty_answer(client: str, refusal: dict[str, Any]) -> None:
    with api_server(lambda body, attempt: ("status", refusal)) as server:
        completion = await ask(server, client)
    assert (completion.text, completion.finish_reason) == ("", FINISH_FILTER)


@both_clients
@pytest.mark.parametrize("room", [1, 20, 49])
async def test_a_prompt_with_little_room_gets_a_shorter_answer(client: str, room: int) -> None:
    def asked(body: dict[str, Any]) -> int:
        return body.get("max_tokens") or body["max_completion_tokens"]

    def within_room(body: dict[str, Any], attempt: int) -> Answer:
        message = "This model's maximum context length is 10 tokens, and you asked for more."
        return ("ok", {}) if asked(body) <= room else ("status", {"code": 400, "message": message})

    with api_server(within_room) as server:
        assert (await ask(server, client)).text == "hello"
    assert room / 2 < asked(server.bodies[-1]) <= room


def scripted_text(body: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps([body["messages"], body["seed"]]).encode()).digest()
    return f"```python\nk={digest[1] % GUESSES + 1}\n```"


def troubled(share: float, lasting: float) -> Any:
    """Each attempt meets a trouble with probability ``share``; ``lasting``: share of requests that always do."""

    def plan(body: dict[str, Any], attempt: int) -> Answer:
        place = json.dumps([body["messages"], body["seed"]])
        if random.Random(place).random() < lasting:
            return ("status", {"code": 500})
        draw = random.Random(f"{place}{attempt}")
        if draw.random() < share:
            return draw.choice([trouble for trouble in TROUBLES if "seconds" not in trouble[1] or draw.random() < 0.1])
        return ("ok", {"text": scripted_text(body)})

    return plan


async def test_a_run_through_all_troubles(tmp_path: Path) -> None:
    source = write_problems(tmp_path / "problems.jsonl", 4)

    async def collect(name: str, plan: Any, **changes: Any) -> list[dict[str, Any]]:
        with api_server(plan) as server:
            method = {"num_completions": 4, "seed": 1, "num_turns": 2, "from_scratch": True, **changes}
            files = {"input_file": source, "output_file": tmp_path / name}
            flags = MultiTurnLitellmConfig(**files, **method, **{**model(server.base), "api_base": None})
            async with open_litellm_engine(LitellmConfig(**model(server.base), max_in_flight=16)) as engine:
                return await run_plan(flags, engine, MultiplyingService())

    calm = await collect("calm.jsonl", troubled(0, 0))
    rough = await collect("rough.jsonl", troubled(0.4, 0.05), max_infra_rate=1.0)
    assert [row["id"] for row in rough] == [row["id"] for row in calm] == list(range(4))
    marked = right = 0
    for ours, other in zip(rough, calm, strict=True):
        for turn in range(3):
            for sample in range(4):
                if ours["public_pass_rates"][turn][sample] is None:
                    assert ours["public_exec_results"][turn][sample]["infra_error"]
                    marked += 1
                else:
                    assert ours["raw_responses"][turn][sample] == other["raw_responses"][turn][sample]
                    assert ours["public_pass_rates"][turn][sample] == other["public_pass_rates"][turn][sample]
                    right += 1
    assert right > 30 and 0 < marked < 18
    assert await collect("rough.jsonl", troubled(0, 0)) == calm, "the next run takes what was missing"
    assert all(KEY not in path.read_text() for path in tmp_path.iterdir())
    assert len(read_rows(tmp_path / "rough.jsonl")) == 4
