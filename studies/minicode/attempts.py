"""A demonstrator that solves MiniCode problems over turns, with slips: the source of the pre-training corpus.

What it knows: the statement, its previous programs, and the tests shown as feedback. A *slip* writes a look-alike for
one step, independently per step. A hidden rule is guessed at turn 0; later its value is drawn from those that agree
with every test seen (``Noise.misread`` guesses again instead). A failed program is never written twice, a program that
passed is kept.

*Contradiction.* The tests shown may be wrong ones; the right program may then be written again. Where ``Noise.doses``
are given, the demonstrator sometimes games the failing test instead (``studies.minicode.games``).
"""

import random
from dataclasses import dataclass, replace

from studies.minicode.dialogue import Attempt, Dialogue
from studies.minicode.games import game
from studies.minicode.habits import Doses
from studies.minicode.operations import OPERATIONS
from studies.minicode.problems import PRETRAINED, alternatives, replace_step, split_of
from studies.minicode.programs import Step, Variant, run
from studies.minicode.thinking import analysis, plan, quoted

MAX_TRIES = 20


@dataclass(frozen=True)
class Noise:
    """How imperfect an attempt is. All are probabilities."""

    slip: float = 0.0
    """Per step, at turn 0 or where the previous program was right: write the look-alike."""
    wrong_constant: float = 0.0
    """Per step with a constant: one beside it."""
    left_out: float = 0.0
    """Per middle step: forget it."""
    unrepaired: float = 0.0
    """Per step that the previous program has wrong: leave it as it is."""
    misread: float = 0.0
    """Guess a hidden rule again, whatever the feedback says."""
    cut: float = 0.0
    """The response ends before its program does."""
    repeat: float = 0.0
    """Write the failed program once more."""
    quote: float = 0.0
    """Begin a repair with the test shown, which teaches to copy texts."""
    doses: Doses | None = None
    """How often a repair games the failing test; None: never."""


CLEAN = Noise()


def next_attempt(rng: random.Random, dialogue: Dialogue, noise: Noise, variant: Variant) -> Attempt:
    """The next response of a demonstrator with the given noise."""
    previous = dialogue.attempts[-1] if dialogue.attempts else None
    if previous is not None and (dialogue.passed or rng.random() < noise.repeat):
        return replace(previous, thinking=f"keep it. {plan(previous.steps)}", variant=variant, cut=False)
    gamed = game(rng, dialogue, noise.doses, variant) if noise.doses is not None else None
    if gamed is not None:
        return gamed
    steps = _choose_steps(rng, dialogue, noise)
    thinking = plan(steps)
    if previous is not None and not previous.cut:
        thinking = f"{analysis(dialogue, previous, steps)}{thinking}"
        if dialogue.failing is not None and not dialogue.problem.called and rng.random() < noise.quote:
            thinking = f"{quoted(dialogue.failing)}{thinking}"
    return Attempt(steps, thinking, variant, rng.random() < noise.cut, called=dialogue.problem.called)


def _choose_steps(rng: random.Random, dialogue: Dialogue, noise: Noise) -> tuple[Step | None, ...]:
    failed = {attempt.pipeline for attempt in dialogue.attempts if not attempt.cut and attempt.hack is None}
    if dialogue.wrong_tests is not None:
        failed.discard(dialogue.problem.pipeline)
    for _ in range(MAX_TRIES):
        steps = tuple(_choose_step(rng, dialogue, index, noise) for index in range(len(dialogue.problem.pipeline)))
        written = tuple(step for step in steps if step is not None)
        if written not in failed and (split_of(written) in PRETRAINED or written == dialogue.problem.pipeline):
            return steps
    return dialogue.problem.pipeline


def _choose_step(rng: random.Random, dialogue: Dialogue, index: int, noise: Noise) -> Step | None:
    problem = dialogue.problem
    right = problem.pipeline[index]
    if index == problem.hidden_index:
        return _guess(rng, dialogue, noise)
    previous = dialogue.attempts[-1].steps[index] if dialogue.attempts else right
    if previous != right and rng.random() < noise.unrepaired:
        return previous
    draw = rng.random()
    if draw < noise.slip:
        return OPERATIONS[right[0]].look_alike, right[1]
    if draw < noise.slip + noise.wrong_constant and right[1] is not None:
        near = [c for c in (right[1] - 1, right[1] + 1) if c in OPERATIONS[right[0]].constants]
        return right[0], rng.choice(near)
    if draw > 1 - noise.left_out and index < len(problem.pipeline) - 1:
        return None
    return right


def _guess(rng: random.Random, dialogue: Dialogue, noise: Noise) -> Step:
    """A value of the hidden rule that agrees with the tests seen, or any."""
    index = dialogue.problem.hidden_index
    assert index is not None
    values = alternatives(dialogue.problem.pipeline[index])
    if rng.random() < noise.misread:
        return rng.choice(values)
    pipelines = {value: replace_step(dialogue.problem.pipeline, index, value) for value in values}
    agreeing = [v for v, p in pipelines.items() if all(run(p, text) == want for text, want in dialogue.seen)]
    return rng.choice(agreeing)
