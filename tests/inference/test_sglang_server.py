"""SGLang's own server, by a stand-in with the layout of its answers."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from api_server import JsonHandler, serving

from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, Completion, Sampling
from cobalt.errors import InfraError
from cobalt.inference.endpoints import open_openai_engine
from cobalt.inference.flags import OpenWeightConfig

CONTEXT, KEPT = 64, 6
WRITTEN = "<think>\nwhy\n</think>\n\nanswer"
BUSY, LOST, UNKNOWN = 501, 502, 503
"""Seeds: the queue is full at first; given up while it was generated; a field that cannot be."""


class Handler(JsonHandler):
    """A character of the messages is a token. Any model's name will do, and unknown fields are ignored."""

    server: Any

    def do_GET(self) -> None:
        card = {"object": "model", "created": 0, "owned_by": "sglang", "root": "m", "parent": None}
        models = [{**card, "id": name, "max_model_len": size} for name, size in (("small", 9), ("m", CONTEXT))]
        models.append({**card, "id": "adapter", "parent": "m", "max_model_len": None})
        self.send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = sum(len(message["content"]) for message in body["messages"])
        if self.path.endswith("/tokenize"):  # not the server's context, but the tokenizer's, if it is a number
            counted = {"tokens": [0] * prompt, "count": prompt, "max_model_len": 131072}
            self.send(*((200, counted) if self.server.counts else (500, {})))
            return
        self.server.bodies.append(body)
        tokens = body["max_tokens"]
        if prompt >= CONTEXT:
            self._refuse(f"{prompt} tokens, which is longer than the model's context length of {CONTEXT}")
        elif prompt + tokens > CONTEXT:
            self._refuse(f"{prompt + tokens} tokens are over the maximum context length of {CONTEXT}")
        elif prompt >= CONTEXT - KEPT:
            self._refuse(f"{prompt} tokens exceed the maximum allowed length of {CONTEXT - KEPT}")
        elif body["seed"] == UNKNOWN:
            self._refuse("1 validation error", "Bad Request")
        elif body["seed"] == BUSY and len(self.server.bodies) == 1:
            self._refuse("the queue is full", "503", 503)
        else:
            self._complete(body, prompt, "abort" if body["seed"] == LOST else "length" if tokens < 20 else "stop")

    def _complete(self, body: dict[str, Any], prompt: int, reason: str) -> None:
        text: str | None = WRITTEN
        thinking = None
        if body.get("separate_reasoning", True):
            thinking, text = "why", "answer"
        message = {"role": "assistant", "content": text, "reasoning_content": thinking, "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, "matched_stop": 2}
        usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
        usage |= {"reasoning_tokens": 0, "prompt_tokens_details": None}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        self.send(200, {**answer, "usage": usage, "metadata": {"weight_version": "default"}})

    def _refuse(self, message: str, kind: str = "BadRequestError", code: int = 400) -> None:
        self.send(code, {"object": "error", "message": message, "type": kind, "param": None, "code": code})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.bodies, server.counts = True, [], True
    server.base = f"http://127.0.0.1:{server.server_address[1]}/v1"
    with serving(server):
        yield server


async def ask(served: Any, length: int = 10, max_tokens: int = 30, seed: int = 1, model: str = "m") -> Completion:
    async with open_openai_engine(OpenWeightConfig(api_base=served.base, model=model)) as engine:
        return await engine.generate([{"role": "user", "content": "é" * length}], Sampling(0.6, 0.9, max_tokens), seed)


async def test_a_response_is_what_the_model_wrote_and_its_sampling_what_the_flags_say(served: Any) -> None:
    answer = await ask(served)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == (WRITTEN, 10, 9)
    (body,) = served.bodies
    sampling = {"temperature": 0.6, "top_p": 0.9, "max_tokens": 30, "seed": 1}
    sampling |= {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}  # else those of the model's own file
    assert body.items() >= sampling.items()


@pytest.mark.parametrize(
    ("length", "asked", "served_with"),
    [(10, 30, 30), (10, 1000, 48), (57, 30, 1), (57, 7, 7), (58, 6, None), (63, 1, None), (64, 1, None), (99, 9, None)],
)
async def test_the_context_is_the_servers(served: Any, length: int, asked: int, served_with: int | None) -> None:
    """Up to its last tokens, which SGLang takes no prompt into."""
    answer = await ask(served, length, asked)
    if served_with is None:
        assert (answer.text, answer.finish_reason, answer.prompt_tokens) == ("", FINISH_CONTEXT, length)
    else:
        assert answer.text == WRITTEN and served.bodies[-1]["max_tokens"] == served_with
        assert (answer.finish_reason == FINISH_LENGTH) == (served_with < 20)


@pytest.mark.parametrize(("length", "served_with"), [(10, 48), (63, None)])
async def test_a_server_that_cannot_count_is_asked_for_one_token(
    served: Any, length: int, served_with: int | None
) -> None:
    served.counts = False
    answer = await ask(served, length, 1000)
    if served_with is None:
        assert (answer.text, answer.finish_reason) == ("", FINISH_CONTEXT)
    else:
        assert answer.text == WRITTEN and [body["max_tokens"] for body in served.bodies] == [1000, 1, served_with]


async def test_an_adapter_is_asked_for_by_both_names(served: Any) -> None:
    await ask(served, model="adapter")
    await ask(served, length=99, model="adapter")
    assert {body["model"] for body in served.bodies} == {"m:adapter"}


async def test_refusals_are_no_answers(served: Any) -> None:
    assert (await ask(served, seed=BUSY)).text == WRITTEN and len(served.bodies) == 2
    with pytest.raises(InfraError, match="1 validation error"):
        await ask(served, seed=UNKNOWN)
    with pytest.raises(InfraError, match="finish reason abort"):
        await ask(served, seed=LOST)
