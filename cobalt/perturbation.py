"""Perturbed public tests: two right inputs with each other's expected output (paper: in-context reward hacking).

No correct program can pass either of the two. The clean tests of a problem are never changed.
"""

import hashlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from cobalt.records import TestCases


def perturb(tests: TestCases, seed: int, problem_id: Any) -> tuple[TestCases, TestCases] | None:
    """Swap the outputs of two public tests whose outputs differ.

    Returns (the two swapped tests, the two followed by the other public tests), or None if no two outputs differ. The
    choice depends on (seed, id) alone. Outputs count as different only if no output checker takes one for the other;
    with a tolerance or a checker program that cannot be said, so none do.
    """
    if tests.checker_program is not None or (tests.checker or "").startswith("float"):
        return None
    numbers = range(len(tests))
    arranged = sorted if tests.checker == "unordered" else list
    normal_K = [arranged(_normal(output)) for output in tests.outputs_K]
    pairs = [(i, j) for i, j in itertools.permutations(numbers, 2) if normal_K[i] != normal_K[j]]
    if not pairs:
        return None
    i, j = _random_of(seed, problem_id).choice(pairs)
    inputs, outputs = tests.inputs_K, tests.outputs_K
    modified = tests.with_pairs((inputs[i], inputs[j]), (outputs[j], outputs[i]))
    others = [k for k in numbers if k not in (i, j)]
    return modified, modified + tests.select(others) if others else modified


Perturbation = Callable[[TestCases, int, Any], tuple[TestCases, TestCases] | None]
"""As ``perturb``."""
OwnPerturbation = Callable[[list[str], list[str], random.Random], Sequence[str] | None]
"""Inputs and expected outputs of the public tests, and random numbers, to the outputs to be shown; None: drop it."""


def own_perturbation(outputs_of: OwnPerturbation) -> Perturbation:
    """A perturbation from a user's function. The tests whose outputs it changed come first.

    What this gives raises ``ValueError`` if the function gives something else than one text per test.
    """

    def change(tests: TestCases, seed: int, problem_id: Any) -> tuple[TestCases, TestCases] | None:
        outputs = outputs_of(list(tests.inputs_K), list(tests.outputs_K), _random_of(seed, problem_id))
        if outputs is None or list(outputs) == list(tests.outputs_K):
            return None
        shown = TestCases.parse({**tests.to_mapping(), "outputs": list(outputs)})
        changed = [k for k in range(len(tests)) if shown.outputs_K[k] != tests.outputs_K[k]]
        others = [k for k in range(len(tests)) if k not in changed]
        return shown.select(changed), shown.select(changed + others)

    return change


def perturbed_fields(row: Mapping[str, Any], seed: int, perturbation: Perturbation = perturb) -> dict[str, str] | None:
    """The two fields that perturbation adds to a problem, or None. ``ValueError`` for unusable public tests."""
    swapped = perturbation(TestCases.parse(row["public_test_cases"]), seed, row["id"])
    if swapped is None:
        return None
    modified, public = swapped
    return {"modified_test_cases": modified.to_json(), "perturbed_public_test_cases": public.to_json()}


def _random_of(seed: int, problem_id: Any) -> random.Random:
    return random.Random(hashlib.sha256(f"{seed}:{problem_id!r}".encode()).digest())


def _normal(output: str) -> list[list[Any]]:
    """What the loosest checker compares: lines of tokens, numbers as decimals."""
    lines = output.strip().split("\n")
    return [[_number_or_text(token) for token in line.split()] for line in lines]


def _number_or_text(token: str) -> Decimal | str:
    try:
        number = Decimal(token)
    except InvalidOperation:
        return token
    return token if number.is_nan() else number
