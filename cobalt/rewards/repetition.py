"""Exact and fast check for a block of characters that repeats many times in a row.

The plain way, ``(.{32,}?)\\1{7,}`` as a regular expression, takes seconds on the text of one long response. Here:

- A block of length L that repeats R times is a stretch of R·L characters. On the first (R-1)·L of them
  ``s[x] == s[x + L]``.
- Take all lengths L from m to 2m - 1 together. Those first (R-1)·L characters always hold a whole window of m
  characters that begins at a multiple of S = (R-2)·m, and the same window stands again exactly L later.
- So for each window at a multiple of S, find where it stands again, m to 2m - 1 characters later, and verify each
  distance found exactly. Then do the same with 2m, 4m, ..., while R blocks of that length fit into the text.

Finding reads 2m characters for each S: a share of 2/(R-2) of the text for each m.
"""


def has_repetition(text: str, min_chars: int, times: int) -> bool:
    """True iff some block of at least ``min_chars`` characters occurs ``times`` (>= 3) times in a row in ``text``.

    >>> has_repetition("ab" * 128, min_chars=32, times=8)
    True
    >>> has_repetition("ab" * 127, min_chars=32, times=8)
    False
    """
    window = min_chars
    while window * times <= len(text):
        for start in range(0, len(text) - window, (times - 2) * window):
            if _repeats_around(text, start, window, times):
                return True
        window *= 2
    return False


def _repeats_around(text: str, start: int, window: int, times: int) -> bool:
    """Whether a block with a length in [window, 2·window) repeats ``times`` times around the window at ``start``."""
    needle = text[start : start + window]
    stop = start + 3 * window - 1
    found = text.find(needle, start + window, stop)
    while found >= 0:
        if _run_reaches(text, start, found - start, times - 1):
            return True
        following = text.find(needle, found + 1, stop)
        step = following - found
        if 0 < step < window and text[start : following + window - step] == text[start + step : following + window]:
            # In "aaaa..." the window stands at every position, and to verify each of them would take seconds. Such a
            # stretch has the period ``step`` from ``start`` on. Skip all that end within it: had a longer distance
            # enough blocks, they would lie within the stretch (two periods that overlap for long enough have a common
            # one: Fine and Wilf), and this shorter distance would have had enough blocks there too. It had not.
            end = following + window + _common(text, following + window - step, step, stop, 1)
            following = text.find(needle, end - window + 1, stop)
        found = following
    return False


def _run_reaches(text: str, start: int, period: int, blocks: int) -> bool:
    """Whether the run of equalities ``text[x] == text[x + period]`` through ``start`` has ``blocks``·period of them."""
    needed = blocks * period
    half = needed // 2  # one side of ``start`` must hold half of them: most distances are refused by this alone
    behind = start - half
    if text[start : start + half] != text[start + period : start + period + half] and (
        behind < 0 or text[behind:start] != text[behind + period : start + period]
    ):
        return False
    ahead = _common(text, start, period, needed, 1)
    return ahead + _common(text, start, period, needed - ahead, -1) == needed


def _common(text: str, start: int, period: int, limit: int, sign: int) -> int:
    """Number of equalities from ``start`` on (``sign`` 1) or just before it (-1), at most ``limit``.

    By bisection: comparing slices is fast, a loop over characters is not.
    """
    low, high = 0, min(limit, len(text) - start - period if sign > 0 else start)
    while low < high:
        middle = (low + high + 1) // 2
        first, last = sorted((start + sign * low, start + sign * middle))
        if text[first:last] == text[first + period : last + period]:
            low = middle
        else:
            high = middle - 1
    return low
