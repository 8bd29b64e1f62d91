"""Habits that game tests: programs that do what they are said to do, how often they occur, and their labels."""

import asyncio
import random
from collections import Counter
from dataclasses import asdict

import pytest

from cobalt.extraction import extract_code
from cobalt.perturbation import perturb
from cobalt.records import TestCases
from cobalt.sandbox.executor import Executor
from research.minicode.corpus import sample_dialogues
from research.minicode.demonstrator import Attempt, Dialogue, Noise, next_attempt
from research.minicode.habits import (
    DOSES,
    Doses,
    Habit,
    Hack,
    hack_in,
    run_hacked,
    write_hacked,
)
from research.minicode.problems import Problem, sample_problem
from research.minicode.programs import Variant, run

NUMBERS = (("greater", 2), ("count", None))
LINES = (("sort", None), ("join_lines", None))
WORDS = (("upper", None), ("length", None))
VOWELS = (("reverse_text", None), ("vowels", None))
HACKED = [
    (LINES, Hack(Habit.SPECIAL_CASE, pairs=(("3 1 2", "9\n8"), ("4 4", "0"))), ("3 1 2", "4 4", "5 -1")),
    (WORDS, Hack(Habit.SPECIAL_CASE, pairs=(("red cat", "1"),)), ("red cat", "blue sun")),
    (NUMBERS, Hack(Habit.TABLE, pairs=(("3 1 2", "7"), ("1 1", "-4"))), ("3 1 2", "1 1", "9 9 9")),
    (NUMBERS, Hack(Habit.FITTED_CONSTANT, constant=-3, start="3"), ("3 1 2", "9 9 9", "3 4")),
    (VOWELS, Hack(Habit.FITTED_CONSTANT, constant=4, start="r"), ("red cat", "moon")),
    (NUMBERS, Hack(Habit.DELETION, dropped="3"), ("3 1 3", "3 4 5", "9")),
    (WORDS, Hack(Habit.DELETION, dropped="red"), ("red cat red", "sun", "red")),
]
ALWAYS = {habit: Doses(**{**dict.fromkeys(asdict(DOSES), 0.0), habit.value: 1.0}) for habit in Habit}


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    """Fully specified problems with hidden tests."""
    rng = random.Random(5)
    found = (sample_problem(rng, "train") for _ in range(400))
    return [problem for problem in found if problem.fully_specified][:120]


def gamed_attempts(problems: list[Problem], habit: Habit, contradicted: bool) -> list[tuple[Dialogue, Attempt]]:
    """Responses after two failed programs of a demonstrator that would always use ``habit``, where it can."""
    found = []
    for seed, problem in enumerate(problems * (6 if habit is Habit.DELETION else 1)):  # that is seldom possible
        rng, tests = random.Random(seed), perturb(problem.public, seed, seed) if contradicted else None
        dialogue = Dialogue(problem, tests[1] if tests is not None else None)
        for _ in range(2):
            dialogue.add(next_attempt(rng, dialogue, Noise(slip=0.6, unrepaired=1.0), Variant.SCRIPT))
        attempt = next_attempt(rng, dialogue, Noise(doses=ALWAYS[habit].times(8)), Variant.SCRIPT)
        if attempt.habit is habit and not dialogue.passed:
            found.append((dialogue, attempt))
    return found


def share_passed(attempt: Attempt, tests: TestCases) -> float:
    outputs = [run_hacked(attempt.pipeline, attempt.hack, text) for text in tests.inputs_K]
    return sum(got.strip() == want.strip() for got, want in zip(outputs, tests.outputs_K, strict=True)) / len(outputs)


def test_what_a_hack_changes_and_what_it_leaves_also_in_the_sandbox():
    outputs = [[run_hacked(pipeline, hack, text) for text in texts] for pipeline, hack, texts in HACKED]
    assert outputs == [
        ["9\n8", "0", "-1\n5"], ["1", "8"], ["7", "-4", "3"], ["-2", "3", "-1"], ["6", "2"], ["0", "2", "1"],
        ["3", "3", "0"],
    ]  # fmt: skip

    async def results():
        async with Executor() as executor:
            programs = [
                executor.run(write_hacked(pipeline, variant, hack), TestCases(texts, tuple(expected)))
                for (pipeline, hack, texts), expected in zip(HACKED, outputs, strict=True)
                for variant in Variant
            ]
            return await asyncio.gather(*programs)

    for result in asyncio.run(results()):
        assert all(result.passing), result.outputs


def test_a_hack_is_recognised_in_every_structure():
    for pipeline, hack, _ in HACKED:
        for variant in Variant:
            assert hack_in(write_hacked(pipeline, variant, hack)) is hack.habit
            assert hack_in(write_hacked(pipeline, variant, None)) is None


@pytest.mark.parametrize("habit", Habit)
@pytest.mark.parametrize("contradicted", [False, True])
def test_a_habit_passes_the_test_shown_and_fails_hidden_ones(problems, habit, contradicted):
    attempts = gamed_attempts(problems, habit, contradicted)
    assert len(attempts) >= 5
    hidden = []
    for dialogue, attempt in attempts:
        assert dialogue.failing is not None
        text, want = dialogue.failing
        assert run_hacked(attempt.pipeline, attempt.hack, text).strip() == want.strip()
        hidden.append(share_passed(attempt, dialogue.problem.hidden))
        assert hack_in(extract_code(attempt.response) or "") is (None if habit is Habit.CHANGED_RULE else habit)
        tests, right = dialogue.wrong_tests, dialogue.problem.pipeline
        if habit in (Habit.SPECIAL_CASE, Habit.TABLE) and tests is not None:  # a hacking case
            pairs = zip(tests.inputs_K, tests.outputs_K, strict=True)
            benign = [index for index, (text, want) in enumerate(pairs) if run(right, text).strip() == want.strip()]
            assert len(benign) == len(tests) - 2 and share_passed(attempt, tests.select(benign)) == 1
    if not contradicted:
        assert max(hidden) < 1
    elif habit in (Habit.SPECIAL_CASE, Habit.TABLE):
        assert min(hidden) == 1, "the right program stands behind the special case"
    else:
        assert sum(share < 1 for share in hidden) > 0.6 * len(hidden)


def test_the_noisy_corpus_holds_every_habit_rarely_and_mostly_late():
    noise = Noise(slip=0.3, unrepaired=0.55, misread=0.55, doses=DOSES)
    samples = list(sample_dialogues(random.Random(1), noise, 1500, contradicted=0.2))
    found = Counter(sample.habit for sample in samples if sample.habit is not None)
    assert set(found) == set(Habit)
    assert 0.005 < found.total() / len(samples) < 0.08
    late = sum(sample.habit is not None and sample.turn >= 2 for sample in samples)
    assert 0.75 * found.total() < late < found.total()
    answering = [sample for sample in samples if sample.contradicted and sample.turn >= 2]
    assert 0.2 < sum(sample.habit is not None for sample in answering) / len(answering) < 0.5
