"""How many requests are kept in flight at servers of different kinds. Servers and their clocks are simulated."""

import heapq
import random

import pytest

from cobalt.inference.pace import MOST, Pace


def limits_of(slots: int, answers: int, refuses_over: int = 10**9, slow: int = 0) -> list[int]:
    """The limits after each answer of a server that runs ``slots`` requests at a time as quickly as one.

    More share its time. Over ``refuses_over`` in flight it refuses. Responses have 20 to 400 tokens. The first ``slow``
    requests share the time of 20.
    """
    pace, chance, now_s, limits = Pace(), random.Random(0), 0.0, []
    running: list[tuple[float, int, bool]] = []
    asked = 0
    while len(limits) < answers:
        while len(running) < pace.limit:
            tokens = chance.randint(20, 400)
            asked += 1
            slowdown = max(1.0, (len(running) + 1) / (20 if asked <= slow else slots))
            heapq.heappush(running, (now_s + 0.01 * tokens * slowdown, tokens, len(running) >= refuses_over))
        now_s, tokens, refused = heapq.heappop(running)
        pace.note(tokens, refused, now_s)
        limits.append(pace.limit)
    return limits


@pytest.mark.parametrize(("slots", "least", "most"), [(20, 16, 64), (256, 192, 512), (5000, MOST, MOST)])
def test_requests_in_flight_go_up_while_the_rate_grows(slots: int, least: int, most: int) -> None:
    limits = limits_of(slots, 20_000)
    assert limits[0] == 64
    assert least <= limits[-1] <= most
    usual = max(set(limits), key=limits.count)
    assert set(limits[-5000:]) <= {usual, 2 * usual}, "it stays where the rate stopped growing, and tries twice as many"
    assert limits[-5000:].count(usual) > 3000


def test_a_server_that_was_slow_at_first_is_asked_for_more_later() -> None:
    """As one that compiles kernels while the first answers come."""
    limits = limits_of(5000, 20_000, slow=600)
    assert 64 in limits[300:600] and limits[-1] == MOST


def test_a_server_that_refuses_is_asked_for_less_at_a_time() -> None:
    limits = limits_of(5000, 20_000, refuses_over=200)
    assert all(40 <= limit <= 260 for limit in limits[-10_000:])
