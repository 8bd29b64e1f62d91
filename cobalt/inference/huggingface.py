"""A Hugging Face model in this process, on CUDA if there is a device, else on the CPU.

Waiting requests are sampled in batches of similar prompt length by worker threads, so that programs run and messages
are built meanwhile: one worker on a GPU; on a CPU one per core, each on a batch of its own, because small operations
gain little from several threads and wait for each other when programs share the cores. For small models and tests;
large ones are served by vLLM.
"""

import asyncio
import math
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, FINISH_STOP, Completion, Message, Sampling
from cobalt.errors import InputError
from cobalt.inference.engine import Engine
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.sampler.network import ATTENTION, register
from cobalt.sampler.prompts import STORE_BYTES, Prefix, PrefixStore
from cobalt.sampler.sampling import Row, sample_batch

GATHER_S = 0.05  # how long a worker waits for a batch to fill
BATCHES_PER_WORKER = 2  # one that is sampled, one that waits


@dataclass(frozen=True)
class _Request:
    row: Row
    key: tuple[str, ...]
    """The texts of its messages; those of the turn before are all but the last two."""
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Completion]"


class HuggingFaceEngine:
    """Use through ``open_huggingface_engine``."""

    def __init__(self, model: Any, tokenizer: Any, model_id: str, batch_size: int, workers: int, max_in_flight: int):
        self.model_id, self.max_in_flight = model_id, max_in_flight
        self._model, self._tokenizer, self._batch_size = model, tokenizer, batch_size
        self._context: int = model.config.max_position_embeddings
        self._end_tokens = end_tokens(model, tokenizer)
        self._prefixes = PrefixStore(STORE_BYTES[model.device.type])
        self._waiting: list[_Request] = []
        self._changed = threading.Condition()
        self._closed = False
        self._idle = 0
        self._workers = [threading.Thread(target=self._work, name="sampling") for _ in range(workers)]
        for worker in self._workers:
            worker.start()

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        """Answer ``messages``."""
        prompt = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        max_new = min(sampling.max_tokens, self._context - len(prompt))
        if max_new < 1:
            return Completion("", len(prompt), 0, FINISH_CONTEXT)
        loop = asyncio.get_running_loop()
        row = Row(tuple(prompt), max_new, sampling.temperature, sampling.top_p, seed)
        request = _Request(row, tuple(message["content"] for message in messages), loop, loop.create_future())
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        return await request.answer

    def close(self) -> None:
        """Stop at once, within a step of the current batches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                self._answer(batch)
            except Exception as error:  # a defect or out of memory: the requests' owners must see it
                for request in batch:
                    self._in_loop(request, request.answer.set_exception, error)

    def _next_batch(self) -> list[_Request]:
        """The oldest request and those nearest to it in length, a fair share of all; empty once closed."""
        with self._changed:
            self._idle += 1
            batch: list[_Request] = []
            while not batch and not self._closed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._changed.wait_for(self._is_enough, GATHER_S)
                self._waiting = [request for request in self._waiting if not request.answer.cancelled()]
                size = min(self._batch_size, math.ceil(len(self._waiting) / self._idle))
                batch = _similar(self._waiting, size)
                chosen = {id(request) for request in batch}
                self._waiting = [request for request in self._waiting if id(request) not in chosen]
            self._idle -= 1
            return [] if self._closed else batch

    def _is_enough(self) -> bool:
        return self._closed or len(self._waiting) >= self._batch_size * self._idle

    def _answer(self, batch: list[_Request]) -> None:
        def finished(index: int, tokens: list[int], end_token: int | None) -> None:
            self._in_loop(batch[index], self._deliver, batch[index], tokens, end_token is not None)

        keys = {request.row.prompt: request.key for request in batch}

        def read(prefix: Prefix) -> None:
            self._prefixes.put(keys[prefix.tokens], prefix)

        rows = [self._with_known(request) for request in batch]
        sample_batch(self._model, rows, self._end_tokens, finished, read, lambda: self._closed)

    def _with_known(self, request: _Request) -> Row:
        """The request's row, with what the turn before left of its prompt."""
        before = self._prefixes.get(request.key[:-2])
        return replace(request.row, known=before.common_with(request.row.prompt)) if before else request.row

    def _deliver(self, request: _Request, tokens: list[int], ended: bool) -> None:
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        reason = FINISH_STOP if ended else FINISH_LENGTH
        request.answer.set_result(Completion(text, len(request.row.prompt), len(tokens) + ended, reason))

    def _in_loop(self, request: _Request, call: Callable[..., None], *arguments: Any) -> None:
        """``call`` in the thread of the request's event loop, if anyone still waits for the answer."""

        def call_if_wanted() -> None:
            if not request.answer.done():
                call(*arguments)

        if not request.loop.is_closed():
            request.loop.call_soon_threadsafe(call_if_wanted)


def _similar(waiting: list[_Request], size: int) -> list[_Request]:
    """``size`` requests around the oldest one in order of prompt length."""
    if len(waiting) <= size:
        return waiting
    by_length = sorted(waiting, key=lambda request: len(request.row.prompt))
    place = next(number for number, request in enumerate(by_length) if request is waiting[0])
    start = min(max(place - size // 2, 0), len(by_length) - size)
    return by_length[start : start + size]


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """The tokens that end a response."""
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {token for token in [*listed, tokenizer.eos_token_id] if token is not None}


def load_network(model: str, flag: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Network on the device, with the sampler's attention, and tokenizer of ``model`` (directory or hub name).

    ``flag``: how the model was given, for the complaint.
    """
    refuse_missing_model(model, f"{flag} ")
    register()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        network = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=dtype,
            device_map="cuda" if torch.cuda.is_available() else "cpu",
            attn_implementation=ATTENTION,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{flag} {model}: {error}") from None
    return network.eval(), tokenizer


@asynccontextmanager
async def open_huggingface_engine(model: str, batch_size: int, max_in_flight: int | None) -> AsyncIterator[Engine]:
    """Load ``model`` (directory or hub name) and serve it while the body runs."""
    on_gpu = torch.cuda.is_available()
    workers = 1 if on_gpu else len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    network, tokenizer = load_network(model, "--model", torch.bfloat16 if on_gpu else torch.float32)
    in_flight = max_in_flight or BATCHES_PER_WORKER * workers * batch_size
    engine = HuggingFaceEngine(network, tokenizer, model_identity(model), batch_size, workers, in_flight)
    try:
        yield engine
    finally:
        engine.close()
