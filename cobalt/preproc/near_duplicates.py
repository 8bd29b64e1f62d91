"""Problems of a training set that stand in a test set, too: statements that share their 13-grams of words.

Sentences such as "the first line holds the number of test cases" stand in many statements. So a problem is a near
duplicate only if both share at least half of the 13-grams of the shorter one.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.records import read_jsonl

WORDS = 13
LEAST_SHARE = 0.5
HASH_BYTES = 8
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Match:
    """A problem of a test set, and the share of 13-grams that its statement has in common with another one."""

    test_file: str
    test_id: Any
    share: float


def grams(text: str) -> set[bytes]:
    """Hashes of all runs of 13 words, in lower case; a shorter text is one run."""
    words = _WORD.findall(text.lower())
    runs = (" ".join(words[start : start + WORDS]) for start in range(max(len(words) - WORDS, 0) + 1))
    return {hashlib.blake2b(run.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest() for run in runs}


class KnownProblems:
    """The statements of test sets: files of problems. Memory holds 13-grams of these alone."""

    def __init__(self, paths: Iterable[Path]):
        self._problems: list[tuple[str, Any, int]] = []
        self._having: dict[bytes, list[int]] = {}
        for path in paths:
            for row in read_jsonl(path, ("id", "question")):
                own_grams = grams(row["question"])
                for gram in own_grams:
                    self._having.setdefault(gram, []).append(len(self._problems))
                self._problems.append((path.name, row["id"], len(own_grams)))

    def match(self, question: str) -> Match | None:
        """The test problem that shares most with a statement, if it is a near duplicate."""
        if not self._problems:
            return None
        own_grams = grams(question)
        shared = Counter(number for gram in own_grams for number in self._having.get(gram, ()))
        shares = {number: count / min(len(own_grams), self._problems[number][2]) for number, count in shared.items()}
        best = max(shares, key=lambda number: (shares[number], -number), default=None)
        if best is None or shares[best] < LEAST_SHARE:
            return None
        file, id_, _ = self._problems[best]
        return Match(file, id_, round(shares[best], 3))
