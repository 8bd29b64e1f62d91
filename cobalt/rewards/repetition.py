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

import numpy as np


def has_repetition(text: str, min_chars: int, times: int) -> bool:
    """True iff some block of at least ``min_chars`` characters occurs ``times`` (>= 3) times in a row in ``text``.

    >>> has_repetition("ab" * 128, min_chars=32, times=8)
    True
    >>> has_repetition("ab" * 127, min_chars=32, times=8)
    False
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    window = min_chars
    while window * times <= len(text):
        for start in range(0, len(text) - window, (times - 2) * window):
            needle, stop = text[start : start + window], start + 3 * window - 1
            at = text.find(needle, start + window, stop)
            while at >= 0:
                length = at - start
                needed = (times - 1) * length  # equalities in a row, through ``start``
                around = codes[max(start - needed, 0) : at + needed]
                if b"\1" * needed in (around[:-length] == around[length:]).tobytes():
                    return True
                at = text.find(needle, at + 1, stop)
        window *= 2
    return False
