"""Perturbed public tests: wrong for every correct program, and nothing else changes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from cobalt.perturbation import perturb, perturbed_fields
from cobalt.records import TestCases
from cobalt.sandbox.checkers import exact, lcb

outputs_lists = st.lists(
    st.sampled_from(["1", "1.0", " 1\n", "2", "YES", "yes", "1 2", "1  2", "a b", "a  b", "inf", "Infinity", "nan"]),
    min_size=1,
    max_size=6,
)


def make_tests(outputs: list[str], fn_name: str | None = None) -> TestCases:
    return TestCases(tuple(f"in {i}" for i in range(len(outputs))), tuple(outputs), fn_name)


@given(outputs_lists, st.integers(0, 50))
def test_two_tests_swap_outputs_and_come_first(outputs: list[str], seed: int) -> None:
    tests = make_tests(outputs)
    swapped = perturb(tests, seed, "p")
    if swapped is None:
        assert all(exact(a, b) or lcb(a, b) or a.split() == b.split() for a in outputs for b in outputs)
        return
    modified, public = swapped
    expected = dict(zip(tests.inputs_K, tests.outputs_K, strict=True))
    first, second = modified.inputs_K
    assert modified.outputs_K == (expected[second], expected[first])
    assert public.inputs_K[:2] == modified.inputs_K and public.outputs_K[:2] == modified.outputs_K
    assert sorted(public.inputs_K) == sorted(tests.inputs_K)
    assert all(expected[i] == o for i, o in zip(public.inputs_K[2:], public.outputs_K[2:], strict=True))


@given(outputs_lists, st.integers(0, 50))
def test_no_checker_accepts_the_right_output_on_a_swapped_test(outputs: list[str], seed: int) -> None:
    swapped = perturb(make_tests(outputs), seed, "p")
    if swapped is not None:
        one, other = swapped[0].outputs_K
        assert not exact(one, other) and not lcb(one, other)


def test_equal_outputs_cannot_be_perturbed() -> None:
    assert perturb(make_tests(["7", "7\n", " 7", "7.0"]), seed=1, problem_id="p") is None


def test_the_choice_depends_on_seed_and_id_alone() -> None:
    tests = make_tests(list("abcdefgh"))
    assert perturb(tests, 1, "p") == perturb(tests, 1, "p")
    assert len({perturb(tests, seed, "p") for seed in range(30)}) > 5
    assert len({perturb(tests, 1, problem) for problem in range(30)}) > 5


def test_every_pair_can_be_chosen() -> None:
    tests = make_tests(["a", "b", "c"])
    pairs = {frozenset(swapped[0].inputs_K) for seed in range(60) if (swapped := perturb(tests, seed, "p"))}
    assert len(pairs) == 3


def test_function_call_problems_stay_function_calls() -> None:
    swapped = perturb(make_tests(["1", "2", "3"], fn_name="solve"), seed=3, problem_id="p")
    assert swapped is not None and swapped[0].fn_name == swapped[1].fn_name == "solve"


def test_the_fields_are_json_texts_and_the_row_is_left_alone() -> None:
    public = make_tests(["1", "2", "3", "3"]).to_json()
    row = {"id": 0, "test_cases": public, "public_test_cases": public}
    fields = perturbed_fields(row, seed=5)
    assert fields is not None and row["public_test_cases"] == public
    assert len(json.loads(fields["modified_test_cases"])["inputs"]) == 2
    assert len(json.loads(fields["perturbed_public_test_cases"])["inputs"]) == 4
