"""How long a program may have a sandbox before others get their turn."""

import math
import time
from dataclasses import dataclass

LONGEST_TURN = 4.0  # times its seconds a turn may last, however long its tests wait for a core
SHORTEST_GRANT_S = 0.01  # what is left of a limit or a turn is not worth asking for if it is less


class TurnOver(Exception):
    """The turn ended while the program compiled, ran or was judged. Whatever that was has to be done again."""


@dataclass(frozen=True)
class Terms:
    """How long a program may have a sandbox in one turn."""

    seconds: float = math.inf
    """Seconds of computing and sleeping. A test that runs at their end is cut short."""
    idle_s: float = math.inf
    """Of these, seconds without computing."""
    cuts_idle: bool = True
    """Whether a test that runs when ``idle_s`` are over is cut short. Else the turn ends with the test."""
    tests_s: float = math.inf
    """Seconds of tests, waiting included, with whose last one the turn ends."""


class Turn:
    """What is left of a turn: ``left_s`` seconds. ``idle_s``: how many the program has not computed."""

    def __init__(self, terms: Terms):
        self.terms, self.left_s, self.idle_s = terms, terms.seconds, 0.0
        self.ends_at = time.monotonic() + LONGEST_TURN * terms.seconds

    def remaining_s(self) -> tuple[float, float]:
        """Seconds that a test may take and that it may be idle, more than a moment, or ``TurnOver``."""
        remaining_s = min(self.left_s, self.ends_at - time.monotonic())
        idle_s = self.terms.idle_s - self.idle_s if self.terms.cuts_idle else math.inf
        if min(remaining_s, idle_s) < SHORTEST_GRANT_S:
            raise TurnOver
        return remaining_s, idle_s

    def take(self, seconds: float, idle_s: float = 0.0) -> None:
        """Count what was used of it."""
        self.left_s -= seconds
        self.idle_s += idle_s

    @property
    def is_idle(self) -> bool:
        """Whether the program does so little computing that it should be in nobody's way."""
        return self.idle_s > min(self.terms.idle_s, self.terms.seconds) / 2


WITHOUT_END = Turn(Terms())
