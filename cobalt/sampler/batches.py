"""Requests for responses, sampled in batches of similar prompt length by threads of this process.

A GPU has one such thread. On a CPU each core has one, with batches of its own: small operations gain little from
several threads.
"""

import math
import threading
import time
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from cobalt.sampler.prompts import STORE_BYTES, Prefix, PrefixStore, Row
from cobalt.sampler.sampling import sample_batch

Sampled = tuple[list[int], int | None]
"""Tokens of a response, and the end token, or None if the response was cut at its most tokens."""


@dataclass(frozen=True, eq=False)
class _Request:
    row: Row
    key: Hashable
    earlier: Hashable
    answer: Future[Sampled] = field(default_factory=Future)


class BatchSampler:
    """Samples rows from ``model`` by ``workers`` threads, at most ``batch_size`` at a time.

    A batch begins once it is full, or no request has come for ``gather_s`` seconds.
    """

    def __init__(self, model: Any, end_tokens: set[int], batch_size: int, workers: int, gather_s: float):
        self._model, self._end_tokens, self._batch_size, self._gather_s = model, end_tokens, batch_size, gather_s
        self._prefixes = PrefixStore(STORE_BYTES[model.device.type])
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []
        self._idle = workers
        self._closed = False
        self._workers = ThreadPoolExecutor(workers, "sampling")

    def submit(self, row: Row, key: Hashable, earlier: Hashable = None) -> Future[Sampled]:
        """The response to come. The prompt is kept under ``key``; of it, what stands under ``earlier`` is not read."""
        request = _Request(row, key, earlier)
        with self._lock:
            self._waiting.append(request)
        self._workers.submit(self._sample_some)  # one job for each request; those that find nothing to do end at once
        return request.answer

    def forget_prompts(self) -> None:
        """Call after a change of the weights, while nothing is sampled."""
        self._prefixes = PrefixStore(STORE_BYTES[self._model.device.type])

    def close(self) -> None:
        """Stop at once, within a step of the current batches."""
        self._closed = True
        self._workers.shutdown(cancel_futures=True)

    def _sample_some(self) -> None:
        """Sample a batch of the waiting requests: the oldest and those nearest to it in length, a fair share of all."""
        before = 0
        while before < len(self._waiting) < self._batch_size * self._idle:
            before = len(self._waiting)
            time.sleep(self._gather_s)
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
            before = None if request.earlier is None else self._prefixes.get(request.earlier)
            rows.append(replace(request.row, known=before.common_with(request.row.prompt) if before else None))

        def finished(index: int, tokens: list[int], end_token: int | None) -> None:
            batch[index].answer.set_result((tokens, end_token))

        def read(prefix: Prefix) -> None:
            self._prefixes.put(keys[prefix.tokens], prefix)

        sample_batch(self._model, rows, self._end_tokens, finished, read, lambda: self._closed)
