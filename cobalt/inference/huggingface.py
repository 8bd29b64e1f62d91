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
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.sampler.network import ATTENTION, register
from cobalt.sampler.prompts import STORE_BYTES, Prefix, PrefixStore
from cobalt.sampler.sampling import Row, sample_batch

GATHER_S = 0.05  # how long a worker waits for a batch to fill
BATCHES_PER_WORKER = 2  # one that is sampled, one that waits


@dataclass(frozen=True, eq=False)
class _Request:
    row: Row
    key: tuple[str, ...]
    """The texts of its messages; those of the turn before are all but the last two."""
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[Completion]"

    def settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        """``settle(outcome)`` in the thread of the request's event loop, if anyone still waits for the answer."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(lambda: self.answer.done() or settle(outcome))


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
        """A worker: sample one batch after the other until the engine is closed."""
        while batch := self._next_batch():
            keys = {request.row.prompt: request.key for request in batch}

            def finished(index: int, tokens: list[int], end_token: int | None, batch: list[_Request] = batch) -> None:
                text, ended = self._tokenizer.decode(tokens, skip_special_tokens=True), end_token is not None
                reason, request = FINISH_STOP if ended else FINISH_LENGTH, batch[index]
                answer = Completion(text, len(request.row.prompt), len(tokens) + ended, reason)
                request.settle(request.answer.set_result, answer)

            def read(prefix: Prefix, keys: dict[tuple[int, ...], tuple[str, ...]] = keys) -> None:
                self._prefixes.put(keys[prefix.tokens], prefix)

            rows = []
            for request in batch:
                before = self._prefixes.get(request.key[:-2])  # what the turn before left of its prompt
                known = before.common_with(request.row.prompt) if before else None
                rows.append(replace(request.row, known=known))
            try:
                sample_batch(self._model, rows, self._end_tokens, finished, read, lambda: self._closed)
            except Exception as error:  # a defect or out of memory: the requests' owners must see it
                for request in batch:
                    request.settle(request.answer.set_exception, error)

    def _next_batch(self) -> list[_Request]:
        """The oldest request and those nearest to it in length, a fair share of all; empty once closed."""
        with self._changed:
            self._idle += 1
            batch: list[_Request] = []
            while not batch and not self._closed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._changed.wait_for(
                    lambda: self._closed or len(self._waiting) >= self._batch_size * self._idle, GATHER_S
                )
                self._waiting = [request for request in self._waiting if not request.answer.cancelled()]
                size = min(self._batch_size, math.ceil(len(self._waiting) / self._idle))
                batch = self._waiting
                if len(batch) > size:
                    batch = sorted(batch, key=lambda request: len(request.row.prompt))
                    start = min(max(batch.index(self._waiting[0]) - size // 2, 0), len(batch) - size)
                    batch = batch[start : start + size]
                chosen = set(batch)
                self._waiting = [request for request in self._waiting if request not in chosen]
            self._idle -= 1
            return [] if self._closed else batch


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
async def open_huggingface_engine(
    model: str, batch_size: int, max_in_flight: int | None
) -> AsyncIterator[HuggingFaceEngine]:
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
