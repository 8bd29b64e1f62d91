"""How many requests to keep in flight at a server that does not say how many it takes.

TCP's way: doubled while the server's rate grows, halved when it refuses, then raised in small steps.
"""

from dataclasses import dataclass

FIRST, MOST, STEP = 64, 1024, 16
GROWTH = 1.15
"""Twice as many requests in flight have to make the server faster by this factor. Less may be chance."""


@dataclass
class Pace:
    """Learns ``limit``, the number of requests in flight, from the answers that came."""

    limit: int = FIRST
    _doubling: bool = True
    _refused: bool = False
    _rate_before: float = 0.0
    _old_answers: int = FIRST
    """Answers still to come to what was asked for under the limit before this one."""
    _answers: int = 0
    _tokens: int = 0
    _began_s: float = 0.0

    def note(self, tokens: int, refused: bool, now_s: float) -> None:
        """An answer of ``tokens`` came at ``now_s``. ``refused``: the server refused it at first, or timed out."""
        if self._old_answers > 0:
            self._old_answers, self._began_s = self._old_answers - 1, now_s
            return
        if refused:
            self._doubling, self._refused = False, True
            self._change_to(max(1, self.limit // 2))
            return
        self._answers, self._tokens = self._answers + 1, self._tokens + tokens
        if self._answers < self.limit:
            return
        rate = self._tokens / max(now_s - self._began_s, 1e-9)
        if not self._doubling:
            # without a refusal the limit is where the rate stopped growing
            self._change_to(min(self.limit + STEP, MOST) if self._refused else self.limit)
        elif rate > GROWTH * self._rate_before:
            self._rate_before, self._doubling = rate, self.limit < MOST
            self._change_to(min(2 * self.limit, MOST))
        else:
            self._doubling = False
            self._change_to(self.limit // 2)

    def _change_to(self, limit: int) -> None:
        self._old_answers = max(self.limit, limit)
        self.limit, self._answers, self._tokens = limit, 0, 0
