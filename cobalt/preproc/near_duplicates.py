"""Problems of a training set that stand in a test set, too, by what both have in common.

Sentences such as "the first line holds the number of test cases" stand in many statements, and many functions are
false for 4. So a part in common says little: a problem is a near duplicate only if both share at least half.
"""

import ast
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.preproc import taco_rows
from cobalt.preproc.asserts import text_of
from cobalt.records import TestCases, read_jsonl, tests_of
from cobalt.records.jsonl import Record

STATEMENT, TESTS, PROGRAM, WORDS, NAME = "statement", "tests", "program", "words", "function name"
"""Rules, in the order in which they are tried.

Statements share runs of 13 words. Pairs of input and output are equal. A reference solution is equal, but for its own
names. Statements share runs of 3 words, since many are too short for 13. Functions have the same name: then half as
much in common is enough.
"""
WORDS_OF_RUN = {STATEMENT: 13, WORDS: 3}
LEAST_SHARE, LEAST_SHARE_OF_NAMESAKES = 0.5, 0.25
LEAST_COMMON = {STATEMENT: 1, TESTS: 3, PROGRAM: 1, WORDS: 3, NAME: 1}
"""With fewer in common, a share of little would be chance."""
MOST_HAVING, MOST_SHARE_HAVING = 3, 0.02
"""A run of 3 words that more test statements have, by number and by share, is a phrase of all of them."""
MOST_PROGRAMS = 16
LEAST_NODES = 30
"""Of a syntax tree. Smaller programs, such as the length of a list, solve many problems."""
HASH_BYTES = 8
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Match:
    """A problem of a test set, the rule that found it, and the share that it has in common with another one."""

    test_file: str
    test_id: Any
    rule: str
    share: float


def runs(text: str, words: int) -> set[str]:
    """All runs of so many words, in lower case; a shorter text is one run."""
    found = _WORD.findall(text.lower())
    return {" ".join(found[start : start + words]) for start in range(max(len(found) - words, 0) + 1)}


def tests_in(row: Mapping[str, Any]) -> list[TestCases]:
    """The tests of a problem, or of a TACO row in the likeliest reading. Generated ones are not its own."""
    flags = taco_rows.generated_of(row)
    own = [place for place, is_generated in enumerate(flags or ()) if not is_generated]
    if taco_rows.is_prepared(row):
        if flags:
            return [tests_of(row, "test_cases").select(own)]
        return [tests_of(row, name) for name in taco_rows.TEST_FIELDS if row.get(name)]
    starter_code = text_of(row, "starter_code", optional=True)
    tests = taco_rows.parsed(row.get("input_output"))
    if flags:
        tests = {**tests, **{name: [tests[name][place] for place in own] for name in taco_rows.COLUMNS}}
    readings = taco_rows.readings_of(tests, starter_code)
    return [] if isinstance(readings, str) else readings[:1]


def normalised(program: str) -> str | None:
    """The syntax tree without imports, docstrings, annotations and own names; None for what is small or not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(program)
        tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
        own: dict[str, str] = {}
        for node in ast.walk(tree):
            name = getattr(node, "name", None)
            if isinstance(node, ast.Name):
                name = node.id if isinstance(node.ctx, ast.Store) else None
            elif isinstance(node, ast.arg):
                name = node.arg
            if name is not None:
                own.setdefault(name, f"own {len(own)}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                node.name = own[node.name]
                if ast.get_docstring(node, clean=False) is not None:
                    del node.body[0]
                if not isinstance(node, ast.ClassDef):
                    node.returns = None
            elif isinstance(node, ast.arg):
                node.arg, node.annotation = own[node.arg], None
            elif isinstance(node, ast.Name):
                node.id = own.get(node.id, node.id)
        return ast.dump(tree) if sum(1 for _ in ast.walk(tree)) >= LEAST_NODES else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def features_of(row: Record, with_programs: bool = True) -> dict[str, set[bytes]]:
    """What the rules compare, as hashes."""
    tests = tests_in(row)
    pairs = (pair for one in tests for pair in zip(one.inputs_K, one.outputs_K, strict=True))
    programs = taco_rows.references(row)[:MOST_PROGRAMS] if with_programs and "solutions" in row else ()
    found: dict[str, Iterable[str | None]] = {
        rule: runs(text_of(row, "question"), count) for rule, count in WORDS_OF_RUN.items()
    }
    found[TESTS] = {"\n".join("".join(text.split()) for text in pair) for pair in pairs}
    found[PROGRAM] = map(normalised, programs)
    found[NAME] = {one.fn_name.lower().replace("_", "") for one in tests if one.fn_name}
    return {rule: {_hash(text) for text in texts if text} for rule, texts in found.items()}


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class Overlaps:
    """Finds the problems that have enough features in common with another one."""

    def __init__(self, least_common: int):
        self.having: dict[bytes, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self._least_common = least_common
        self._phrases: set[bytes] = set()

    def add(self, number: int, features: set[bytes]) -> None:
        for feature in features:
            self.having.setdefault(feature, []).append(number)
        self._sizes[number] = len(features)

    def forget_phrases(self, different: set[int]) -> None:
        """Of features that many of the ``different`` problems have, no one counts."""
        most = max(MOST_HAVING, MOST_SHARE_HAVING * len(different))
        having = self.having.items()
        self._phrases = {feature for feature, numbers in having if len(different.intersection(numbers)) > most}
        for feature in self._phrases:
            for number in self.having.pop(feature):
                self._sizes[number] -= 1

    def shares(self, features: set[bytes]) -> dict[int, float]:
        """Of what the smaller one of both has, the share that is common; by problem."""
        own = features - self._phrases
        common = Counter(number for feature in own for number in self.having.get(feature, ()))
        return {
            number: count / min(len(own), self._sizes[number])
            for number, count in common.items()
            if count >= self._least_common
        }


class KnownProblems:
    """Test sets: files of problems or of TACO rows. Memory holds hashes of these alone."""

    def __init__(self, paths: Iterable[Path]):
        self._problems: list[tuple[str, Any]] = []
        self._overlaps = {rule: Overlaps(least) for rule, least in LEAST_COMMON.items()}
        statements: dict[bytes, int] = {}  # a file and its perturbed copy hold the same ones

        def add(row: Record) -> None:
            for rule, features in features_of(row).items():
                self._overlaps[rule].add(len(self._problems), features)
            statements.setdefault(_hash(" ".join(row["question"].split())), len(self._problems))
            self._problems.append((path.name, row["id"]))

        for path in paths:
            for _ in read_jsonl(path, ("id", "question"), parse=add):
                pass
        self._overlaps[WORDS].forget_phrases(set(statements.values()))

    def match(self, row: Record) -> Match | None:
        """The test problem that shares most with a TACO row or a problem, by the first rule that finds one."""
        if not self._problems:
            return None
        features = features_of(row, bool(self._overlaps[PROGRAM].having))
        shares = {rule: overlaps.shares(features[rule]) for rule, overlaps in self._overlaps.items()}
        shares[PROGRAM] = dict.fromkeys(shares[PROGRAM], 1.0)
        alike = (shares[TESTS], shares[WORDS])
        shares[NAME] = {number: max(found.get(number, 0.0) for found in alike) for number in shares[NAME]}
        for rule, found in shares.items():
            best = max(found, key=lambda number: (found[number], -number), default=None)
            if best is not None and found[best] >= (LEAST_SHARE_OF_NAMESAKES if rule == NAME else LEAST_SHARE):
                return Match(*self._problems[best], rule, round(found[best], 3))
        return None
