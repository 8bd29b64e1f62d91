"""The demonstrator behind the corpus: what its responses look like, what it repeats, what it reads from feedback."""

import doctest
import random

import pytest

from cobalt.extraction import extract_code
from cobalt.prompts import ALL_PASSED
from cobalt.rewards import training_reward
from research.minicode import demonstrator
from research.minicode.corpus import sample_dialogues
from research.minicode.demonstrator import CLEAN, Dialogue, Noise, next_attempt
from research.minicode.problems import Problem, sample_problem, split_of
from research.minicode.programs import Variant, run
from research.minicode.tokenizer import TURN_END

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
        failed = [a.pipeline for a, f in zip(dialogue.attempts, dialogue.feedbacks, strict=True) if f != ALL_PASSED]
        assert len(set(failed)) == len(failed)
        if ALL_PASSED in dialogue.feedbacks:
            first = dialogue.feedbacks.index(ALL_PASSED)
            assert len({attempt.pipeline for attempt in dialogue.attempts[first:]}) == 1


def test_clean_programs_are_right_or_agree_with_every_test_seen(problems):
    assert doctest.testmod(demonstrator).failed == 0  # what it reads from feedback
    for number, problem in enumerate(problems):
        dialogue = dialogue_of(problem, CLEAN, 2, number)
        first, second = dialogue.attempts
        if problem.fully_specified:
            assert dialogue.feedbacks[0] == ALL_PASSED
        elif dialogue.feedbacks[0] != ALL_PASSED:
            assert first.pipeline != second.pipeline
            text, want = dialogue.seen[0]
            assert run(second.pipeline, text) == want


def test_slips_follow_their_rate(problems):
    full = [problem for problem in problems if problem.fully_specified]
    steps = slipped = 0
    for seed in range(20):
        for problem in full:
            attempt = dialogue_of(problem, Noise(slip=0.3), 1, seed).attempts[0]
            steps += len(problem.pipeline)
            slipped += sum(a != b for a, b in zip(attempt.pipeline, problem.pipeline, strict=True))
    assert 0.17 < slipped / steps < 0.33  # below 0.3: a slip into a dev composition is taken back


def test_a_quoting_repair_begins_with_the_test_shown(problems):
    for number, problem in enumerate(problems):
        rng, dialogue = random.Random(number), Dialogue(problem)
        dialogue.add(next_attempt(rng, dialogue, NOISY, Variant.SCRIPT))
        repaired = next_attempt(rng, dialogue, Noise(quote=1.0), Variant.SCRIPT)
        if dialogue.passed:
            assert " gives " not in repaired.thinking
        else:
            text, want = dialogue.seen[0]
            assert repaired.thinking.startswith(f"{text!r} gives {want!r}. ")


def test_the_history_holds_no_thinking():
    samples = list(sample_dialogues(random.Random(5), CLEAN, 20))
    assert {sample.turn for sample in samples} >= {0, 1, 2}
    for sample in samples:
        assert "</think>" not in sample.prompt
        assert sample.response.count("</think>") == 1 and sample.response.endswith(f"```{TURN_END}")
        assert extract_code(sample.response) is not None
