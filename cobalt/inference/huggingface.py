"""A Hugging Face model in this process, on CUDA if there is a device, else on the CPU.

Threads sample waiting requests in batches of similar prompt length. Programs run and messages are built meanwhile. A
GPU has one such thread. On a CPU each core has one, with batches of its own: small operations gain little from several
threads. For small models and tests; vLLM serves large ones.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, FINISH_STOP, Completion, Message, Sampling
from cobalt.errors import InputError
from cobalt.prompts import prompt_tokens
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
    answer: Future[Completion] = field(default_factory=Future)


class HuggingFaceEngine:
    """Use through ``open_huggingface_engine``."""

    def __init__(self, model: Any, tokenizer: Any, model_id: str, batch_size: int, workers: int, max_in_flight: int):
        self.model_id, self.max_in_flight = model_id, max_in_flight
        self._model, self._tokenizer, self._batch_size = model, tokenizer, batch_size
        self._context: int = model.config.max_position_embeddings
        self._end_tokens = end_tokens(model, tokenizer)
        self._prefixes = PrefixStore(STORE_BYTES[model.device.type])
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []
        self._idle = workers
        self._closed = False
        self._workers = ThreadPoolExecutor(workers, "sampling")

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        prompt = prompt_tokens(self._tokenizer, messages)
        max_new = min(sampling.max_tokens, self._context - len(prompt))
        if max_new < 1:
            return Completion("", len(prompt), 0, FINISH_CONTEXT)
        row = Row(tuple(prompt), max_new, sampling.temperature, sampling.top_p, seed)
        request = _Request(row, tuple(message["content"] for message in messages))
        with self._lock:
            self._waiting.append(request)
        self._workers.submit(self._sample_some)  # one job for each request; those that find nothing to do end at once
        return await asyncio.wrap_future(request.answer)

    def close(self) -> None:
        """Stop at once, within a step of the current batches."""
        self._closed = True
        self._workers.shutdown(cancel_futures=True)

    def _sample_some(self) -> None:
        """Sample a batch of the waiting requests: the oldest and those nearest to it in length, a fair share of all."""
        if 0 < len(self._waiting) < self._batch_size * self._idle:
            time.sleep(GATHER_S)
        with self._lock:
            waiting = [request for request in self._waiting if not request.answer.cancelled()]
            if self._closed or not waiting:
                return
            by_length = sorted(waiting, key=lambda request: len(request.row.prompt))
            size = min(self._batch_size, math.ceil(len(waiting) / self._idle))
            start = min(max(by_length.index(waiting[0]) - size // 2, 0), len(waiting) - size)
            chosen = by_length[start : start + size]
            self._waiting = [request for request in waiting if request not in chosen]
            self._idle -= 1
        batch = [request for request in chosen if request.answer.set_running_or_notify_cancel()]
        try:
            self._sample(batch)
        except Exception as error:  # a defect or out of memory: the requests' owners must see it
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
        with self._lock:
            self._idle += 1

    def _sample(self, batch: list[_Request]) -> None:
        """Answer the requests of ``batch``, reading of each prompt only what the turn before has not left."""
        keys = {request.row.prompt: request.key for request in batch}
        rows = []
        for request in batch:
            before = self._prefixes.get(request.key[:-2])
            rows.append(replace(request.row, known=before.common_with(request.row.prompt) if before else None))

        def finished(index: int, tokens: list[int], end_token: int | None) -> None:
            text, ended = self._tokenizer.decode(tokens, skip_special_tokens=True), end_token is not None
            reason = FINISH_STOP if ended else FINISH_LENGTH
            batch[index].answer.set_result(Completion(text, len(rows[index].prompt), len(tokens) + ended, reason))

        def read(prefix: Prefix) -> None:
            self._prefixes.put(keys[prefix.tokens], prefix)

        sample_batch(self._model, rows, self._end_tokens, finished, read, lambda: self._closed)


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {token for token in [*listed, tokenizer.eos_token_id] if token is not None}


def load_network(model: str, flag: str, dtype: torch.dtype, attention: str = ATTENTION) -> tuple[Any, Any]:
    """Network on the device and tokenizer of ``model`` (directory or hub name).

    ``flag``: how the model was given, for the complaint. ``attention``: the sampler's, or one of Transformers'.
    """
    refuse_missing_model(model, f"{flag} ")
    register()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        network = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=dtype,
            device_map="cuda" if torch.cuda.is_available() else "cpu",
            attn_implementation=attention,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{flag} {model}: {error}") from None
    return network.eval(), tokenizer


@asynccontextmanager
async def open_huggingface_engine(
    model: str, batch_size: int, max_in_flight: int | None, fp32: bool = False
) -> AsyncIterator[HuggingFaceEngine]:
    """Load ``model`` (directory or hub name) and serve it while the body runs, on a GPU in bf16 unless ``fp32``."""
    on_gpu = torch.cuda.is_available()
    workers = 1 if on_gpu else len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    network, tokenizer = load_network(model, "--model", torch.bfloat16 if on_gpu and not fp32 else torch.float32)
    in_flight = max_in_flight or BATCHES_PER_WORKER * workers * batch_size
    engine = HuggingFaceEngine(network, tokenizer, model_identity(model), batch_size, workers, in_flight)
    try:
        yield engine
    finally:
        engine.close()
