"""The demonstrator behind the corpus: what its responses look like, what it repeats, what it reads from feedback."""

import doctest
import random

import pytest

from cobalt.rewards import training_reward
from research.minicode import demonstrator
from research.minicode.demonstrator import CLEAN, Dialogue, Noise, next_attempt
from research.minicode.problems import Problem, sample_problem, split_of
from research.minicode.programs import Variant, run
from research.minicode.wording import prompts

NOISY = Noise(slip=0.4, wrong_constant=0.05, left_out=0.05, unrepaired=0.5, misread=0.5)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    rng = random.Random(11)
    return [sample_problem(rng, "train", with_hidden_tests=False) for _ in range(80)]


def dialogue_of(problem: Problem, noise: Noise, turns: int, seed: int) -> Dialogue:
    rng, dialogue = random.Random(seed), Dialogue(problem)
    for _ in range(turns):
        dialogue.add(next_attempt(rng, dialogue, noise, Variant.SCRIPT))
    return dialogue


def test_what_every_conversation_keeps_to(problems):
    """The format of the reward; no failed program twice; a program that passed is kept; no dev composition."""
    for number, problem in enumerate(problems):
        dialogue = dialogue_of(problem, NOISY, 6, number)
        for attempt in dialogue.attempts:
            parts = training_reward(attempt.response, 1.0, 0.0, lambda text: len(text.split()))
            assert parts.format == 0 and parts.total == 1, attempt.response
            assert split_of(attempt.pipeline) == "train"
        failed = [
            a.pipeline for a, f in zip(dialogue.attempts, dialogue.feedbacks, strict=True) if f != prompts().all_passed
        ]
        assert len(set(failed)) == len(failed)
        if prompts().all_passed in dialogue.feedbacks:
            first = dialogue.feedbacks.index(prompts().all_passed)
            assert len({attempt.pipeline for attempt in dialogue.attempts[first:]}) == 1


def test_clean_programs_are_right_or_agree_with_every_test_seen(problems):
    assert doctest.testmod(demonstrator).failed == 0  # what it reads from feedback
    for number, problem in enumerate(problems):
        dialogue = dialogue_of(problem, CLEAN, 2, number)
        first, second = dialogue.attempts
        if problem.fully_specified:
            assert dialogue.feedbacks[0] == prompts().all_passed
        elif dialogue.feedbacks[0] != prompts().all_passed:
            assert first.pipeline != second.pipeline
            text, want = dialogue.seen[0]
            assert run(second.pipeline, text) == want
