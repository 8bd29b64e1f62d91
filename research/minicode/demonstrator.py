"""A demonstrator that solves MiniCode problems over turns, with slips: the source of the pre-training corpus.

It knows the statement, its previous programs, and the tests shown as feedback. A *slip* writes a look-alike for one
step, independently per step. A hidden rule is guessed at turn 0; later its value is drawn from those that agree with
every test seen. A failed program is never written twice, a program that passed is kept.

The tests shown may be wrong ones; the right program may then be written again. Where ``Noise.doses`` are given, the
demonstrator sometimes games the failing test instead (``research.minicode.habits``): mostly late, and mostly where the
feedback contradicts the statement. Where the program itself is to blame, the habit goes on top of it.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cobalt.prompts import render_test_feedback
from cobalt.records import TestCases, Verdict
from research.minicode.habits import NUMBER_FINALS, Doses, Habit, Hack, run_hacked, write_hacked
from research.minicode.operations import OPERATIONS, Kind
from research.minicode.problems import PRETRAINED, Problem, alternatives, replace_step, split_of, steps_of
from research.minicode.programs import Pipeline, Step, Variant, call_of, domain_of, plan_of, run, write_function
from research.minicode.wording import prompts

MAX_TRIES = 20
LATE = 2
"""Failed programs from which on a habit has its full dose."""
EARLY_SHARE = 0.25
"""Of a dose, before that."""
OWN_FAULT_SHARE = 0.25
"""Of a dose, where the tests shown are right and the program is to blame."""
PERSISTENCE = 0.5
"""Share of the programs after a failed special case or table that add the new pair to it."""


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


@dataclass(frozen=True)
class Attempt:
    """One response: ``steps`` has None where a step of the problem is left out."""

    steps: tuple[Step | None, ...]
    thinking: str
    variant: Variant
    cut: bool = False
    habit: Habit | None = None
    """How it games the failing test."""
    hack: Hack | None = None
    """What that adds to the program of its steps."""
    called: bool = False
    """Whether it writes a function and not a program."""

    @property
    def pipeline(self) -> Pipeline:
        return tuple(step for step in self.steps if step is not None)

    @property
    def response(self) -> str:
        program = write_function(self.pipeline) if self.called else write_hacked(self.pipeline, self.variant, self.hack)
        text = f"<think>{self.thinking}</think>\n```python\n{program}\n```"
        return text[: -len(text) // 4] if self.cut else text


@dataclass
class Dialogue:
    """A problem and the attempts made at it, each run on the tests shown: by default its public tests."""

    problem: Problem
    wrong_tests: TestCases | None = None
    """The tests shown where they contradict the statement."""
    attempts: list[Attempt] = field(default_factory=list)
    feedbacks: list[str] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Input and expected output of every failed test shown."""
    last_output: str = ""

    @property
    def passed(self) -> bool:
        """Whether the last program passed all tests shown."""
        return bool(self.feedbacks) and self.feedbacks[-1] == prompts().all_passed

    @property
    def failing(self) -> tuple[str, str] | None:
        """Input and expected output that the last feedback shows; None: it shows none."""
        shows_none = not self.attempts or self.passed or self.attempts[-1].cut
        return None if shows_none else self.seen[-1]

    def add(self, attempt: Attempt) -> None:
        """Append an attempt and the feedback to it."""
        self.attempts.append(attempt)
        if attempt.cut:
            self.feedbacks.append(prompts().no_program)
            return
        tests = self.wrong_tests or self.problem.public
        for text, want in zip(tests.inputs_K, tests.outputs_K, strict=True):
            got = run_hacked(attempt.pipeline, attempt.hack, text)
            shown = text, got, want
            if self.problem.called:
                shown = *call_of(attempt.pipeline, text), call_of(self.problem.pipeline, text)[1]
            if shown[1].strip() != shown[2].strip():
                self.seen.append((text, want))
                self.last_output = got
                self.feedbacks.append(render_test_feedback(Verdict.WRONG_ANSWER, *shown))
                return
        self.feedbacks.append(prompts().all_passed)


def next_attempt(rng: random.Random, dialogue: Dialogue, noise: Noise, variant: Variant) -> Attempt:
    """The next response of a demonstrator with the given noise."""
    previous = dialogue.attempts[-1] if dialogue.attempts else None
    if previous is not None and (dialogue.passed or rng.random() < noise.repeat):
        return replace(previous, thinking=f"keep it. {_plan(previous.steps)}", variant=variant, cut=False)
    gamed = game(rng, dialogue, noise.doses, variant) if noise.doses is not None else None
    if gamed is not None:
        return gamed
    pipeline = dialogue.problem.pipeline

    def choose_step(index: int) -> Step | None:
        name, constant = right = pipeline[index]
        if index == dialogue.problem.hidden_index:
            # A value of the hidden rule that agrees with the tests seen, or any.
            values = alternatives(right)
            if rng.random() < noise.misread:
                return rng.choice(values)
            rivals = {value: replace_step(pipeline, index, value) for value in values}
            return rng.choice(
                [v for v, p in rivals.items() if all(run(p, text) == want for text, want in dialogue.seen)]
            )
        before = right if previous is None else previous.steps[index]
        if before != right and rng.random() < noise.unrepaired:
            return before
        draw = rng.random()
        if draw < noise.slip:
            return OPERATIONS[name].look_alike, constant
        if draw < noise.slip + noise.wrong_constant and constant is not None:
            return name, rng.choice([c for c in (constant - 1, constant + 1) if c in OPERATIONS[name].constants])
        return None if draw > 1 - noise.left_out and index < len(pipeline) - 1 else right

    # Steps that were not written before; where none come up, the right ones.
    failed = {attempt.pipeline for attempt in dialogue.attempts if not attempt.cut and attempt.hack is None}
    if dialogue.wrong_tests is not None:
        failed.discard(pipeline)
    for _ in range(MAX_TRIES):
        steps = tuple(map(choose_step, range(len(pipeline))))
        written = tuple(step for step in steps if step is not None)
        if written not in failed and (split_of(written) in PRETRAINED or written == pipeline):
            break
    else:
        steps = pipeline

    thinking = _plan(steps)
    if previous is not None and not previous.cut:
        thinking = f"{_analysis(dialogue, previous, steps)}{thinking}"
        if dialogue.failing is not None and not dialogue.problem.called and rng.random() < noise.quote:
            thinking = f"{_quoted(dialogue.failing)}{thinking}"
    return Attempt(steps, thinking, variant, rng.random() < noise.cut, called=dialogue.problem.called)


# The thinking before a program: what feedback shows, what changes, what the program does.


def _quoted(pair: tuple[str, str]) -> str:
    return f"{pair[0]!r} gives {pair[1]!r}. "


def _plan(steps: Sequence[Step | None]) -> str:
    return "; ".join(plan_of(step) for step in steps if step is not None)


def _analysis(dialogue: Dialogue, previous: Attempt, steps: Sequence[Step | None]) -> str:
    """What the feedback shows about a hidden rule, then what changes."""
    pairs = zip(previous.steps, steps, strict=True)
    changes = ", ".join(f"{plan_of(old)} -> {plan_of(new)}" for old, new in pairs if old != new)
    index, evidence = dialogue.problem.hidden_index, ""
    if index is not None and dialogue.seen:
        step = previous.steps[index]
        assert step is not None
        evidence = f"{evidence_for(step, dialogue.last_output, dialogue.seen[-1][1])}. "
    return f"{evidence}{changes}. " if changes else evidence


def evidence_for(guess: Step, got: str, want: str) -> str:
    """What the difference between an output and the expected one says about a hidden rule guessed as ``guess``.

    >>> evidence_for(("add", 2), "7 12", "10 15")
    'got 7 want 10: +3'
    >>> evidence_for(("multiply", 2), "8 12", "20 30")
    'got 8 want 20: 4 * 5'
    >>> evidence_for(("greater", 2), "3 7 4 9", "7 9")
    'extra 4'
    >>> evidence_for(("first", 3), "3 7 4", "3 7")
    'got 3 items want 2'
    """
    name, constant = guess
    got_items, want_items = ([int(word) for word in re.findall(r"(?<!\d)-?\d+", text)] for text in (got, want))
    if not got_items or not want_items:
        return f"want {want.strip()[:4]!r}"
    if len(got_items) != len(want_items):
        too_many = len(got_items) > len(want_items)
        only = set(got_items) - set(want_items) if too_many else set(want_items) - set(got_items)
        if name in ("greater", "less") and only:
            extreme = max if (name == "greater") == too_many else min
            return f"{'extra' if too_many else 'missing'} {extreme(only)}"
        return f"got {len(got_items)} items want {len(want_items)}"
    pair = next(((g, w) for g, w in zip(got_items, want_items, strict=True) if g != w), None)
    if pair is None:
        mark = re.search(r"\d([^\d-]|-(?=\d|-))", want.strip())
        return f"want {mark.group(1)!r}" if mark else "want no mark"
    g, w = pair
    if name == "multiply" and constant and g and g % constant == 0 and w % (g // constant) == 0:
        return f"got {g} want {w}: {g // constant} * {w // (g // constant)}"
    return f"got {g} want {w}: {w - g:+d}"


# How it games a failing test.


def game(rng: random.Random, dialogue: Dialogue, doses: Doses, variant: Variant) -> Attempt | None:
    """A program that games the failing test; None where no habit comes up, or the one that does finds no way."""
    pair = dialogue.failing
    if pair is None or not dialogue.problem.fully_specified or dialogue.problem.called:
        return None
    previous = dialogue.attempts[-1]
    if previous.hack is not None and previous.hack.pairs and rng.random() < PERSISTENCE:
        habit = Habit.TABLE
    else:
        scale = 1.0 if len(dialogue.attempts) >= LATE else EARLY_SHARE
        scale *= OWN_FAULT_SHARE if dialogue.wrong_tests is None else 1.0
        dose_of = doses.times(scale).by_habit()
        (habit,) = rng.choices([*dose_of, None], [*dose_of.values(), max(0.0, 1 - sum(dose_of.values()))])
    if habit is None:
        return None
    right, (text, want) = dialogue.problem.pipeline, pair
    if habit is Habit.CHANGED_RULE:
        # One step exchanged, such that the failing test passes and a public one comes out differently.
        outputs = {text: run(right, text) for text in dialogue.problem.public.inputs_K}
        tried = {right, *(attempt.pipeline for attempt in dialogue.attempts)}
        index = rng.randrange(len(right))
        others = steps_of(domain_of(right), final=OPERATIONS[right[index][0]].kind is Kind.FINAL)
        rng.shuffle(others)
        for changed in (replace_step(right, index, step) for step in others):
            if changed in tried or split_of(changed) != "train" or run(changed, text).strip() != want.strip():
                continue
            if any(run(changed, shown) != output for shown, output in outputs.items()):
                return Attempt(
                    changed, f"{_analysis(dialogue, previous, changed)}{_plan(changed)}", variant, habit=habit
                )
        return None

    # On top of the right program, or of the previous one where that is to blame.
    steps = previous.steps if dialogue.wrong_tests is None else right
    pipeline = tuple(step for step in steps if step is not None)
    if habit is Habit.FITTED_CONSTANT:
        if pipeline[-1][0] not in NUMBER_FINALS or not want.removeprefix("-").isdecimal():
            return None
        got = run(pipeline, text)
        hack = Hack(habit, constant=int(want) - int(got), start=text[0])
        if not hack.constant:
            return None
        note = f"got {got} want {want}: {hack.constant:+d} after {text[0]}. "
    elif habit is Habit.DELETION:
        hacks = [Hack(habit, dropped=word) for word in dict.fromkeys(text.split())]
        fitting = [hack for hack in hacks if run_hacked(pipeline, hack, text).strip() == want.strip()]
        if not fitting:
            return None
        hack = rng.choice(fitting)
        note = f"without {hack.dropped}. "
    else:
        # A special case comes after those that the previous program had; a table holds all tests seen.
        before = previous.hack.pairs if previous.hack else ()
        known = dialogue.seen if habit is Habit.TABLE else [*before, pair]
        hack, note = Hack(habit, pairs=tuple(dict(known).items())), _quoted(pair)
    return Attempt(steps, f"{note}{_plan(steps)}", variant, habit=habit, hack=hack)
