"""More tests of a function from few: changed inputs, and the outputs that all references agree on. Pure.

A changed input keeps what holds for all inputs of the data set, such as signs, order, lengths and letters. So a program
is not judged on inputs that its problem rules out.
"""

import copy
import json
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from statistics import mode
from typing import Any

from cobalt.preproc.asserts import UNANSWERED, checker_for, json_lines
from cobalt.records import TestCases, Verdict
from cobalt.records.jsonl import Record
from cobalt.sandbox import ExecutionResult
from cobalt.sandbox.results import LONGEST_SHOWN

VERSION = "1"
"""Raise it with a change of what is made."""
CANDIDATES = 2  # inputs that are run for each test that is wanted
TRIES = 40  # changes for each of them
MANY_LETTERS = 8  # in the data set's inputs: all letters of this case may then stand in a text
Path = tuple[Any, ...]
_RAN = (Verdict.PASSED, Verdict.WRONG_ANSWER)

_FACTS: tuple[Callable[[Any], bool], ...] = (
    lambda value: value > 0,
    lambda value: value >= 0,
    lambda value: value != 0,
    lambda value: len(value) > 0,
    lambda value: len(value) == 1,
    lambda value: list(value) == sorted(value),
    lambda value: list(value) == sorted(value, reverse=True),
    lambda value: len(set(map(repr, value))) == len(value),
    lambda value: len(set(map(len, value))) == 1,  # a matrix
    lambda value: len(value) == len(value[0]),
    lambda value: value.isalpha(),
    lambda value: value.isalnum(),
)
_FACTS_OF_PAIRS: tuple[Callable[[Any], bool], ...] = (
    lambda pair: pair[0] == len(pair[1]),
    lambda pair: pair[0] <= len(pair[1]),
    lambda pair: pair[0] < len(pair[1]),
    lambda pair: pair[0] <= pair[1],
    lambda pair: pair[0] < pair[1],
    lambda pair: pair[0] in pair[1],
    lambda pair: len(pair[0]) == len(pair[1]),
)


@dataclass(frozen=True)
class Asked:
    """What the references of a problem are run on: tests of the data set, then inputs without an output."""

    tests: TestCases
    answered: int
    are_generated: tuple[bool, ...]
    """For each input without an output, whether it was generated."""


def asked(known: TestCases | None, row_tests: Mapping[str, Any], number: int, rng: random.Random) -> Asked | None:
    """The inputs for up to ``number`` tests in all. None if there are none, or outputs are judged by a program."""
    name, unanswered = row_tests.get("fn_name"), row_tests.get(UNANSWERED) or []
    known = known or TestCases((), (), fn_name=name, checker=row_tests.get("checker"))
    if not name or known.checker_program:
        return None
    own = [text for text, is_generated in unanswered if not is_generated and text not in known.inputs_K][:number]
    plus = [text for text, is_generated in unanswered if is_generated]
    more = rng.sample(plus, min(len(plus), CANDIDATES * number))
    if len(known) + len(own) + len(more) < number:
        with suppress(ValueError, RecursionError):  # integers too long, or lists too deep
            more += map(json_lines, mutants(list(map(_arguments, (*known.inputs_K, *own))), CANDIDATES * number, rng))
    more = list(dict.fromkeys(text for text in more if text not in (*known.inputs_K, *own)))
    if not own + more:
        return None
    nulls = ["null"] * len(own + more)
    tests = known.with_pairs([*known.inputs_K, *own, *more], [*known.outputs_K, *nulls])
    return Asked(tests, len(known), tuple([False] * len(own) + [True] * len(more)))


def answered(asked: Asked, row_tests: Record, results: Sequence[ExecutionResult], number: int) -> Record:
    """``input_output`` with the tests whose output all right references agree on, and which tests are generated.

    A reference is right if it passes the tests of the data set. A result must have a type that theirs have. Tests with
    new results come first.
    """
    first, inputs = asked.answered, asked.tests.inputs_K
    right = [result for result in results if all(result.passing[:first])]
    own, new, more = list(zip(inputs[:first], asked.tests.outputs_K, strict=False)), [], []
    kinds = set[Path]().union(*(_with_whole(_kinds(output) or set()) for _, output in own))
    seen = {output for _, output in own}
    for place, is_generated in enumerate(asked.are_generated, start=first):
        outcomes = {(result.verdicts[place] in _RAN, result.outputs[place]) for result in right}
        has_run, output = outcomes.pop() if len(outcomes) == 1 else (False, "")
        found = _kinds(output) if has_run and len(output) <= LONGEST_SHOWN else None  # longer ones are cut
        if found is not None and not is_generated:
            own.append((inputs[place], output))
            kinds |= _with_whole(found)
        elif found is not None and found <= kinds:
            (more if output in seen else new).append((inputs[place], output))
        seen.add(output)
    pairs = [*own, *[*new, *more][: max(number - len(own), 0)]]
    if len(pairs) == first:
        return {**row_tests, "generated": [False] * len(row_tests["inputs"])}
    tests = asked.tests.with_pairs(*zip(*pairs, strict=True)).to_mapping()
    tests["checker"] = tests.get("checker") or checker_for(tests["outputs"])
    unusable = len(row_tests["inputs"]) - first  # they stay, to be counted
    columns = {name: tests[name] + [None] * unusable for name in ("inputs", "outputs")}
    return {**tests, **columns, "generated": [len(own) <= place < len(pairs) for place in range(len(pairs) + unusable)]}


def _kinds(output: str) -> set[Path] | None:
    """The types in a result, by place; None if it is no plain JSON. A float that is whole may be an integer."""
    if any(mark in output for mark in ('{"<', "NaN", "Infinity")):
        return None
    try:
        parts = list(_parts(json.loads(output)))
    except (ValueError, RecursionError):
        return None
    wholes = (isinstance(part, float) and part.is_integer() for _, part in parts)
    return {(*path, int if whole else type(part)) for (path, part), whole in zip(parts, wholes, strict=True)}


def _with_whole(kinds: set[Path]) -> set[Path]:
    return kinds | {(*path[:-1], int) for path in kinds if path[-1] is float}


def mutants(originals: Sequence[list[Any]], number: int, rng: random.Random) -> list[list[Any]]:
    """Up to ``number`` other lists of arguments, in which all facts hold that hold in all ``originals``."""
    usual = mode(map(len, originals)) if originals else 0  # others leave out arguments with a default
    if usual == 0:
        return []
    originals = [arguments for arguments in originals if len(arguments) == usual]
    values: dict[Path, list[Any]] = {}
    for path, value in (part for arguments in originals for part in _parts_of_all(arguments)):
        values.setdefault(path, []).append(value)
    facts = {
        path: [
            fact
            for fact in (_FACTS_OF_PAIRS if isinstance(found[0], tuple) else _FACTS)
            if all(_holds(fact, value) for value in found)
        ]
        for path, found in values.items()
    }
    largest = {path: 2 * max(map(_size, found)) + 2 for path, found in values.items()}
    letters = [_letters([arguments[place] for arguments in originals]) for place in range(usual)]
    pool, known = [*originals], set(map(json_lines, originals))
    for _ in range(TRIES * number):
        arguments = copy.deepcopy(rng.choice(pool))
        for _ in range(rng.choice((1, 1, 2, 3))):
            place = rng.randrange(usual)
            if rng.random() < 0.1:  # an argument of another test
                arguments[place] = copy.deepcopy(rng.choice(originals)[place])
            else:
                arguments[place] = _changed(arguments[place], rng, letters[place])
        for path in facts:
            if _FACTS_OF_PAIRS[0] in facts[path]:  # a length follows its list
                arguments[path[0]] = len(arguments[path[1]])
        fits = all(
            _size(value) <= largest.get(path, 0) and all(_holds(fact, value) for fact in facts.get(path, ()))
            for path, value in _parts_of_all(arguments)
        )
        if fits and (text := json_lines(arguments)) not in known:
            known.add(text)
            pool.append(arguments)
            if len(pool) == len(originals) + number:
                break
    return pool[len(originals) :]


def _arguments(text: str) -> list[Any]:
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _holds(fact: Callable[[Any], bool], value: Any) -> bool:
    try:
        return fact(value)
    except (TypeError, AttributeError, LookupError):  # it says nothing of such values
        return False


def _parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The value and what is in it; members of a list share a path."""
    yield path, value
    for item in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _parts(item, (*path, type(value).__name__))


def _parts_of_all(arguments: list[Any]) -> Iterator[tuple[Path, Any]]:
    """The parts of each argument, and the pairs of arguments, by their places."""
    for place, argument in enumerate(arguments):
        yield from _parts(argument, (place,))
    for one, other in permutations(range(len(arguments)), 2):
        yield (one, other), (arguments[one], arguments[other])


def _size(value: Any) -> float:
    return abs(value) if isinstance(value, int | float) else 0 if value is None else len(value)


def _letters(values: list[Any]) -> list[str]:
    """What texts in these values may be made of: their own characters, and all letters of a case with many of them."""
    seen = {letter for _, text in _parts(values) if isinstance(text, str) for letter in text}
    for alphabet in (string.ascii_lowercase, string.ascii_uppercase):
        if len(seen.intersection(alphabet)) >= MANY_LETTERS:
            seen.update(alphabet)
    return sorted(seen)


def _changed(value: Any, rng: random.Random, letters: list[str]) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value - 1, value + 1, -value, 0, 2 * value, value // 2, value + rng.randint(-9, 9)))
        case float():
            return round(rng.choice((value - 1, value + 1, -value, 0.0, value / 2, value + rng.uniform(-3, 3))), 2)
        case str():
            return "".join(_rearranged(list(value), rng, lambda _: rng.choice(letters)))
        case list():
            return _rearranged(value, rng, lambda item: _changed(item, rng, letters))
        case dict() if value:
            key = rng.choice(list(value))
            return {**value, key: _changed(value[key], rng, letters)}
    return value


def _rearranged(items: list[Any], rng: random.Random, change: Callable[[Any], Any]) -> list[Any]:
    """Items left out, doubled, permuted, or one of them changed."""
    if not items:
        return items
    place = rng.randrange(len(items))
    before, after = items[:place], items[place + 1 :]
    ways: tuple[Callable[[], list[Any]], ...] = (
        lambda: before + after,
        lambda: before or after,
        lambda: [*before, items[place], *items[place:]],
        lambda: items + items,
        lambda: rng.sample(items, len(items)),
        lambda: [*before, change(items[place]), *after],
    )
    return rng.choices(ways, (1, 1, 1, 1, 2, 6))[0]()
