"""Perturbed public tests: wrong for every correct program, and nothing else changes."""

import hashlib
import json
import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.perturbation import Kind, PerturbationSettings, donors_of, perturb, perturbed_fields
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
def test_two_tests_swap_outputs_that_no_checker_confuses_and_come_first(outputs: list[str], seed: int) -> None:
    tests = make_tests(outputs)
    swapped = perturb(tests, seed, "p")
    if swapped is None:
        assert all(exact(a, b) or lcb(a, b) or a.split() == b.split() for a in outputs for b in outputs)
        return
    modified, public = swapped
    expected = dict(zip(tests.inputs_K, tests.outputs_K, strict=True))
    first, second = modified.inputs_K
    assert modified.outputs_K == (expected[second], expected[first])
    assert not exact(*modified.outputs_K) and not lcb(*modified.outputs_K)
    assert public.inputs_K[:2] == modified.inputs_K and public.outputs_K[:2] == modified.outputs_K
    assert sorted(public.inputs_K) == sorted(tests.inputs_K)
    assert all(expected[i] == o for i, o in zip(public.inputs_K[2:], public.outputs_K[2:], strict=True))


def test_equal_outputs_cannot_be_perturbed() -> None:
    assert perturb(make_tests(["7", "7\n", " 7", "7.0"]), seed=1, problem_id="p") is None
    unordered = TestCases(("a", "b"), ("1\nx", "x\n1"), checker="unordered")
    lists = TestCases(("[1]", "[2]"), ('["b", "a"]', '["a", "b"]'), fn_name="f", checker="unordered")
    assert perturb(unordered, 0, "p") is None and perturb(lists, 0, "p") is None


def test_the_choice_depends_on_seed_and_id_alone_and_may_be_any_pair() -> None:
    tests = make_tests(list("abcdefgh"))
    assert perturb(tests, 1, "p") == perturb(tests, 1, "p")
    assert len({perturb(tests, seed, "p") for seed in range(30)}) > 5
    assert len({perturb(tests, 1, problem) for problem in range(30)}) > 5
    three = make_tests(["a", "b", "c"])
    pairs = {frozenset(swapped[0].inputs_K) for seed in range(60) if (swapped := perturb(three, seed, "p"))}
    assert len(pairs) == 3


def test_the_swap_is_that_of_earlier_versions() -> None:
    """Perturbed data made before there were other kinds come out the same, to the byte."""
    rng, digest = random.Random(0), hashlib.sha256()
    for number in range(300):
        outputs = [rng.choice(["1", "1.0", "2", "a b", "b a\nc", "YES", "7\n8"]) for _ in range(rng.randint(1, 6))]
        inputs = tuple(f"in {index}" for index in range(len(outputs)))
        tests = TestCases(inputs, tuple(outputs), checker=rng.choice([None, "unordered"]))
        row = {"id": number, "public_test_cases": tests.to_json()}
        digest.update(json.dumps(perturbed_fields(row, number % 3)).encode())
    assert digest.hexdigest() == "fc4672aefdc296be370530da083ec03f246b0c8676557be9e6b3b562bd757c1a"


DONORS = donors_of(
    [("other", make_tests(["77", "x y"])), ("calls", make_tests(["[7]"], "solve")), ("p", make_tests(["5"]))]
)
wordy_outputs = st.lists(
    st.sampled_from(["1", "12", "-3 4", "1\n2 x", "1\n2 3", "a b", "word", "x", "7.5"]), min_size=1, max_size=6
)


@given(wordy_outputs, st.sampled_from(get_args(Kind)), st.integers(1, 3), st.integers(0, 30))
def test_every_kind_gives_wrong_tests_first_and_leaves_the_others(outputs, kind, count, seed) -> None:
    count += kind == "swapped"
    tests = make_tests(outputs)
    changed = perturb(tests, seed, "p", PerturbationSettings(kind, count, DONORS))
    if changed is None:
        return
    modified, public = changed
    right = dict(zip(tests.inputs_K, tests.outputs_K, strict=True))
    assert len(modified) == len(set(modified.inputs_K)) == count
    assert public.inputs_K[:count] == modified.inputs_K and public.outputs_K[:count] == modified.outputs_K
    assert all(right[text] != output for text, output in zip(modified.inputs_K, modified.outputs_K, strict=True))
    rest = list(zip(public.inputs_K[count:], public.outputs_K[count:], strict=True))
    assert all(right[text] == output for text, output in rest)
    untouched = {text for text in tests.inputs_K if text not in modified.inputs_K}
    assert {text for text, _ in rest} == (set(right) if kind == "inconsistent" else untouched)
    assert kind != "inconsistent" or public.inputs_K[count : 2 * count] == modified.inputs_K, "then its right output"


@pytest.mark.parametrize(
    ("kind", "outputs", "wrong"),
    [
        ("off_by_one", ["41"], {"40", "42"}),
        ("off_by_one", ["x -1 y"], {"x -2 y", "x 0 y"}),
        ("off_by_one", ["7.5 x2"], None),
        ("off_by_one", ["9" * 5000], None),
        ("other_problem", ["5"], {"77", "x y"}),
        ("truncated", ["1\n2\n3"], {"1", "1\n2"}),
        ("truncated", ["a b c"], {"a", "a b"}),
        ("truncated", ["word"], {"w", "wo", "wor"}),
        ("truncated", ["x"], None),
        ("inconsistent", ["7"], None),
    ],
)
def test_what_each_kind_makes_of_one_output(kind, outputs, wrong) -> None:
    settings = PerturbationSettings(kind, donors=DONORS)
    found = [perturb(make_tests(outputs), seed, "p", settings) for seed in range(60)]
    if wrong is None:
        assert found == [None] * 60
    else:
        assert {changed[0].outputs_K[0] for changed in found if changed} == wrong


def test_outputs_of_calls_stay_json() -> None:
    tests = make_tests(["[1, 2]", '"ab"', "12", "no JSON, so it is left alone"], fn_name="solve")
    changes = [perturb(tests, seed, "p", PerturbationSettings("truncated")) for seed in range(60)]
    assert {found[0].outputs_K[0] for found in changes if found} == {"[]", "[1]", '""', '"a"'}
    assert {part.fn_name for found in changes if found for part in found} == {"solve"}
    changed = perturb(make_tests(["12"], fn_name="solve"), 0, "p", PerturbationSettings("other_problem", donors=DONORS))
    assert changed is not None and changed[0].outputs_K == ("[7]",)


def test_as_many_tests_as_asked_for_are_wrong_or_the_problem_is_dropped() -> None:
    with pytest.raises(ValueError, match="cannot be made of kind swapped"):
        PerturbationSettings(count=1)
    tests = make_tests(["1", "2", "3", "4"])
    for kind in get_args(Kind):
        for count in (2, 3, 4):
            changed = perturb(tests, 0, "p", PerturbationSettings(kind, count, DONORS))
            assert (changed is None) == (kind == "truncated"), "one letter has no beginning"
            assert changed is None or len(changed[0]) == count
        assert perturb(tests, 0, "p", PerturbationSettings(kind, 5, DONORS)) is None
