"""How many requests to keep in flight at a server that does not say how many it takes.

TCP's way: doubled while the server's rate grows, halved when it refuses, then raised in small steps. Where doubling
did not help it is tried again later: the server may have been compiling, or prompts have become longer meanwhile.
"""

from dataclasses import dataclass

FIRST, MOST, STEP = 64, 1024, 16
GROWTH = 1.15
"""Twice as many requests in flight have to make the server faster by this factor. Less may be chance."""
AGAIN = 4
"""Rates that are measured at a limit before it is doubled again."""


@dataclass
class Pace:
    """Learns ``limit``, the number of requests in flight, from the answers that came."""

    limit: int = FIRST
    _doubling: bool = True
    _refused: bool = False
    _rates: int = 0
    """Measured at this limit since doubling it did not help."""
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
        if self._refused:
            self._change_to(min(self.limit + STEP, MOST))
        elif self._doubling and rate <= GROWTH * self._rate_before:
            self._doubling, self._rates = False, 0
            self._change_to(self.limit // 2)
        elif self._doubling or self._rates == AGAIN:
            self._rate_before, self._doubling = rate, self.limit < MOST
            self._change_to(min(2 * self.limit, MOST))
        else:
            self._rates += 1
            self._change_to(self.limit)

    def _change_to(self, limit: int) -> None:
        self._old_answers = max(self.limit, limit)
        self.limit, self._answers, self._tokens = limit, 0, 0
