"""Calls to a Serve app that several submissions share: a call costs milliseconds whatever it carries."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Submission(Generic[Request, Answer]):
    """A request, and the future that its submitter waits for."""

    request: Request
    answer: "asyncio.Future[Answer]"


class SharedCalls(Generic[Request, Answer]):
    """Gives ``call`` what was submitted in ``window_s`` seconds (0: one turn of the loop), up to ``size`` at a time.

    Each call is a task of its own, and must settle all its answers.
    """

    def __init__(
        self,
        call: Callable[[list[Submission[Request, Answer]]], Coroutine[Any, Any, None]],
        size: int,
        window_s: float = 0.0,
    ):
        self._call, self._size, self._window_s = call, size, window_s
        self._submitted: list[Submission[Request, Answer]] = []
        self._calls: set[asyncio.Task[None]] = set()

    def submit(self, request: Request) -> "asyncio.Future[Answer]":
        """The future answer to ``request``."""
        loop = asyncio.get_running_loop()
        if not self._submitted:
            loop.call_later(self._window_s, self._send)
        submission = Submission(request, loop.create_future())
        self._submitted.append(submission)
        return submission.answer

    def _send(self) -> None:
        submitted, self._submitted = self._submitted, []
        for start in range(0, len(submitted), self._size):
            call = asyncio.ensure_future(self._call(submitted[start : start + self._size]))
            self._calls.add(call)  # the event loop itself keeps no strong reference
            call.add_done_callback(self._calls.discard)
