"""Agreement between two raters (pure)."""

from collections import Counter
from collections.abc import Sequence


def cohens_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Cohen's kappa of two equally long, non-empty lists of labels; in [-1, 1].

    None where it is undefined: both raters gave one and the same label to everything.

    >>> cohens_kappa(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    0.5
    """
    if len(first) != len(second) or not first:
        raise ValueError("two lists of labels of the same length are needed, with at least one label")
    size = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / size
    counts_a, counts_b = Counter(first), Counter(second)
    expected = sum(counts_a[label] * counts_b[label] for label in counts_a) / size**2
    return None if expected == 1 else (observed - expected) / (1 - expected)
