"""Perturbed public tests: right inputs with wrong expected outputs (paper: in-context reward hacking).

``swapped`` is the paper's: two tests have each other's output. Whatever the kind, no correct program passes a wrong
test, and the clean tests of a problem are never changed. A perturbation of one's own goes the same way.
"""

import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from cobalt.errors import InputError, raised
from cobalt.records import TestCases, id_key
from cobalt.sandbox.checkers import CHECKERS, checker_of

Kind = Literal["swapped", "off_by_one", "other_problem", "truncated", "inconsistent"]
TRIES = 200
"""Random arrangements, or outputs of other problems, that are looked at before a problem is given up."""
_WHOLE_NUMBER = re.compile(r"(?<![\w.+-])-?\d{1,4000}(?![\w.])")  # Python reads no longer ones

Donors = Mapping[bool, Sequence[tuple[str, str]]]
"""Outputs of public tests, with the keys of their problems, sorted: of problems solved by a function, and of others."""
Perturbation = Callable[[TestCases, int, Any], tuple[TestCases, TestCases] | None]
"""As ``perturb``."""
OwnPerturbation = Callable[[list[str], list[str], random.Random], Sequence[str] | None]
"""Inputs and expected outputs of the public tests, and random numbers, to the outputs to be shown; None: drop it."""


@dataclass(frozen=True)
class PerturbationSettings:
    """Which outputs are made wrong, and how.

    ``swapped``: tests get each other's output; ``off_by_one``: one whole number of an output is one too large or too
    small; ``other_problem``: the output of another problem's test; ``truncated``: the end of an output is missing;
    ``inconsistent``: an input is shown twice, with another test's output and then with its own.
    """

    kind: Kind = "swapped"
    count: int | None = None
    """Wrong tests; None: two swapped ones, or one of another kind. Raises ``ValueError`` for one swapped test."""
    donors: Donors | None = None
    """For ``other_problem``."""

    def __post_init__(self) -> None:
        if self.num_wrong < (2 if self.kind == "swapped" else 1):
            raise ValueError(f"{self.num_wrong} wrong test(s) cannot be made of kind {self.kind}")

    @property
    def num_wrong(self) -> int:
        default = 2 if self.kind == "swapped" else 1
        return default if self.count is None else self.count


SWAPPED = PerturbationSettings()
"""The paper's perturbation."""


def perturb(
    tests: TestCases,
    seed: int,
    problem_id: Any,
    settings: PerturbationSettings = SWAPPED,
    checker: str | None = None,
) -> tuple[TestCases, TestCases] | None:
    """Give some public tests wrong outputs.

    Returns (the wrong tests, these followed by the other public tests), or None if the tests leave no room for it. The
    choice depends on (seed, id) alone, with ``other_problem`` on the donors too. Outputs count as different only if no
    output checker takes one for the other; with a tolerance or a checker of somebody's that cannot be said, so none
    do. ``checker``: the executor's, for tests that name none.
    """
    checker = tests.checker or checker or "lcb"
    if tests.checker_program is not None or checker not in CHECKERS or checker == "float":
        return None
    same = [checker_of(name, tests.fn_name is not None) for name in {"lcb", checker}]  # lcb is the loosest

    def wrong_for(right: str, shown: str) -> bool:
        return not any(takes(right, shown) for takes in same)

    rng, count = random_of(seed, problem_id), settings.num_wrong
    wrong: dict[int, str] = {}
    if settings.kind == "swapped":
        # A cycle of tests, each with the output of the next one, which must differ from its own.
        def next_of(cycle: Sequence[int]) -> dict[int, int]:
            return dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))

        def differ(cycle: Sequence[int]) -> bool:
            pairs = next_of(cycle).items()
            return all(wrong_for(tests.outputs_K[k], tests.outputs_K[after]) for k, after in pairs)

        cycle: Sequence[int] | None = None
        if count == 2:
            cycles = list(filter(differ, itertools.permutations(range(len(tests)), 2)))
            cycle = rng.choice(cycles) if cycles else None
        elif count <= len(tests):
            cycle = next(filter(differ, (rng.sample(range(len(tests)), count) for _ in range(TRIES))), None)
        wrong = {k: tests.outputs_K[after] for k, after in next_of(cycle).items()} if cycle else {}
    else:
        # Wrong outputs for the first tests, in a random order, that leave room for one.
        for k in rng.sample(range(len(tests)), len(tests)):
            candidates = _wrong_outputs(tests, k, rng, settings, id_key(problem_id))
            output = next((text for text in candidates if wrong_for(tests.outputs_K[k], text)), None)
            if output is not None:
                wrong[k] = output
            if len(wrong) == count:
                break
    return _shown(tests, wrong, keep_right=settings.kind == "inconsistent") if len(wrong) == count else None


def _wrong_outputs(
    tests: TestCases, number: int, rng: random.Random, settings: PerturbationSettings, problem: str
) -> Iterable[str]:
    """Outputs that may be wrong for a test, the first to be preferred."""
    right = tests.outputs_K[number]
    if settings.kind == "off_by_one":
        numbers = list(_WHOLE_NUMBER.finditer(right))
        return [
            f"{right[: whole.start()]}{int(whole[0]) + rng.choice((-1, 1))}{right[whole.end() :]}"
            for whole in rng.sample(numbers, len(numbers))
        ]
    if settings.kind == "truncated":
        # Without its last lines; a single line without its last words; one word without its last characters. The same
        # of a list or a text as JSON; nothing else has an end to be cut off.
        if tests.fn_name is not None:
            value: Any = None
            with suppress(ValueError, RecursionError):  # a text that is not JSON stands for itself
                value = json.loads(right)
            ends = range(len(value)) if isinstance(value, list | str) else ()
            shorter = [json.dumps(value[:end], ensure_ascii=False) for end in ends]
        else:
            word = right.strip()
            ways = (("\n", word.split("\n")), (" ", word.split()), ("", list(word)))
            separator, parts = next(((sign, parts) for sign, parts in ways if len(parts) > 1), ("", []))
            shorter = [separator.join(parts[:end]) for end in range(1, len(parts))]
        return rng.sample(shorter, len(shorter))
    if settings.kind == "inconsistent":
        return rng.sample(tests.outputs_K, len(tests))
    donors = (settings.donors or {}).get(tests.fn_name is not None, ())
    drawn = (rng.choice(donors) for _ in range(TRIES if donors else 0))
    return (output for donor, output in drawn if donor != problem)


def _shown(tests: TestCases, wrong: Mapping[int, str], keep_right: bool = False) -> tuple[TestCases, TestCases]:
    """The tests with these outputs, and all tests with these first; ``keep_right``: then their right ones too."""
    modified = tests.with_pairs([tests.inputs_K[k] for k in wrong], list(wrong.values()))
    others = [*wrong] * keep_right + [k for k in range(len(tests)) if k not in wrong]
    return modified, modified + tests.select(others) if others else modified


def donors_of(rows: Iterable[tuple[Any, TestCases]]) -> Donors:
    """The outputs that problems lend each other, from the ids and public tests of all of them."""
    outputs: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for problem_id, tests in rows:
        outputs[tests.fn_name is not None].update((id_key(problem_id), output) for output in tests.outputs_K)
    return {calls: sorted(found) for calls, found in outputs.items()}


def own_perturbation(outputs_of: OwnPerturbation) -> Perturbation:
    """A perturbation from a user's function. The tests whose outputs it changed come first.

    What this gives raises ``InputError`` if the function raises an error, and ``ValueError`` if it gives something
    else than one text per test.
    """

    def change(tests: TestCases, seed: int, problem_id: Any) -> tuple[TestCases, TestCases] | None:
        try:
            outputs = outputs_of(list(tests.inputs_K), list(tests.outputs_K), random_of(seed, problem_id))
        except (Exception, SystemExit) as error:
            raise InputError(f"problem {problem_id!r}: the perturbation {raised(error)}") from error
        if outputs is None:
            return None
        shown = TestCases.parse({**tests.to_mapping(), "outputs": outputs})
        wrong = {k: text for k, text in enumerate(shown.outputs_K) if text != tests.outputs_K[k]}
        return _shown(tests, wrong) if wrong else None

    return change


def perturbed_fields(row: Mapping[str, Any], seed: int, perturbation: Perturbation = perturb) -> dict[str, str] | None:
    """The two fields that perturbation adds to a problem, or None. ``ValueError`` for unusable public tests."""
    swapped = perturbation(TestCases.parse(row["public_test_cases"]), seed, row["id"])
    if swapped is None:
        return None
    modified, public = swapped
    return {"modified_test_cases": modified.to_json(), "perturbed_public_test_cases": public.to_json()}


def random_of(seed: int, problem_id: Any) -> random.Random:
    """Random numbers of one problem, wherever it stands in a file."""
    return random.Random(hashlib.sha256(f"{seed}:{problem_id!r}".encode()).digest())
