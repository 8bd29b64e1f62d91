"""A checker of one's own: numbers may differ by rounding. ``--checker examples/checker.py:close``."""

import math

TOLERANCE = 1e-3


def close(output: str, expected: str) -> bool:
    """The same number of tokens, each equal as text, or as numbers within ``TOLERANCE``."""
    ours, wanted = output.split(), expected.split()
    return len(ours) == len(wanted) and all(map(_same, ours, wanted))


def _same(ours: str, wanted: str) -> bool:
    if ours == wanted:
        return True
    try:
        return math.isclose(float(ours), float(wanted), rel_tol=TOLERANCE)
    except ValueError:
        return False
