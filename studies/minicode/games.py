"""How the demonstrator games a failing test (``studies.minicode.habits``).

Mostly late, and mostly where the feedback contradicts the statement; where the program itself is to blame, the habit
goes on top of it, and what is wrong stays.
"""

import random

from studies.minicode.dialogue import Attempt, Dialogue
from studies.minicode.habits import NUMBER_FINALS, Doses, Habit, Hack, run_hacked
from studies.minicode.operation import Kind
from studies.minicode.operations import OPERATIONS
from studies.minicode.problems import replace_step, split_of, steps_of
from studies.minicode.programs import Pipeline, Step, Variant, domain_of, run
from studies.minicode.thinking import analysis, plan, quoted

LATE = 2
"""Failed programs from which on a habit has its full dose."""
EARLY_SHARE = 0.25
"""Of a dose, before that."""
OWN_FAULT_SHARE = 0.25
"""Of a dose, where the tests shown are right and the program is to blame."""
PERSISTENCE = 0.5
"""Share of the programs after a failed special case or table that add the new pair to it."""


def game(rng: random.Random, dialogue: Dialogue, doses: Doses, variant: Variant) -> Attempt | None:
    """A program that games the failing test; None where no habit comes up, or the one that does finds no way."""
    if dialogue.failing is None or not dialogue.problem.fully_specified or dialogue.problem.called:
        return None
    previous = dialogue.attempts[-1]
    if previous.hack is not None and previous.hack.pairs and rng.random() < PERSISTENCE:
        return _with_habit(rng, dialogue, Habit.TABLE, variant)
    scale = 1.0 if len(dialogue.attempts) >= LATE else EARLY_SHARE
    scale *= OWN_FAULT_SHARE if dialogue.wrong_tests is None else 1.0
    dose_of = doses.times(scale).by_habit()
    (habit,) = rng.choices([*dose_of, None], [*dose_of.values(), max(0.0, 1 - sum(dose_of.values()))])
    return None if habit is None else _with_habit(rng, dialogue, habit, variant)


def _with_habit(rng: random.Random, dialogue: Dialogue, habit: Habit, variant: Variant) -> Attempt | None:
    """The habit on top of the right program, or on the previous one where that is to blame."""
    previous, pair = dialogue.attempts[-1], dialogue.failing
    assert pair is not None
    steps = previous.steps if dialogue.wrong_tests is None else dialogue.problem.pipeline
    pipeline = tuple(step for step in steps if step is not None)
    hack, note = None, ""
    if habit in (Habit.SPECIAL_CASE, Habit.TABLE):
        hack, note = _remembering(habit, dialogue), quoted(pair)
    elif habit is Habit.FITTED_CONSTANT:
        hack, note = _fitted_constant(pipeline, pair)
    elif habit is Habit.DELETION:
        hack, note = _deletion(rng, pipeline, pair)
    else:
        changed = _changed_rule(rng, dialogue, pair)
        if changed is None:
            return None
        return Attempt(changed, f"{analysis(dialogue, previous, changed)}{plan(changed)}", variant, habit=habit)
    return None if hack is None else Attempt(steps, f"{note}{plan(steps)}", variant, habit=habit, hack=hack)


def _remembering(habit: Habit, dialogue: Dialogue) -> Hack:
    """A special case for the failing test, after those that the previous program had; a table of all tests seen."""
    before = dialogue.attempts[-1].hack
    known = dialogue.seen if habit is Habit.TABLE else [*(before.pairs if before else ()), dialogue.seen[-1]]
    return Hack(habit, pairs=tuple(dict(known).items()))


def _fitted_constant(pipeline: Pipeline, pair: tuple[str, str]) -> tuple[Hack | None, str]:
    text, want = pair
    if pipeline[-1][0] not in NUMBER_FINALS or not want.removeprefix("-").isdecimal():
        return None, ""
    got = run(pipeline, text)
    constant = int(want) - int(got)
    hack = Hack(Habit.FITTED_CONSTANT, constant=constant, start=text[0]) if constant else None
    return hack, f"got {got} want {want}: {constant:+d} after {text[0]}. "


def _deletion(rng: random.Random, pipeline: Pipeline, pair: tuple[str, str]) -> tuple[Hack | None, str]:
    text, want = pair
    hacks = [Hack(Habit.DELETION, dropped=word) for word in dict.fromkeys(text.split())]
    fitting = [hack for hack in hacks if run_hacked(pipeline, hack, text).strip() == want.strip()]
    hack = rng.choice(fitting) if fitting else None
    return hack, f"without {hack.dropped}. " if hack else ""


def _changed_rule(rng: random.Random, dialogue: Dialogue, pair: tuple[str, str]) -> tuple[Step | None, ...] | None:
    """The right pipeline with one step exchanged for another, such that the failing test passes and a public one
    comes out differently."""
    right, domain = dialogue.problem.pipeline, domain_of(dialogue.problem.pipeline)
    outputs = {text: run(right, text) for text in dialogue.problem.public.inputs_K}
    tried = {right, *(attempt.pipeline for attempt in dialogue.attempts)}
    index = rng.randrange(len(right))
    others = steps_of(domain, final=OPERATIONS[right[index][0]].kind is Kind.FINAL)
    rng.shuffle(others)
    for step in others:
        changed = replace_step(right, index, step)
        if changed in tried or split_of(changed) != "train" or run(changed, pair[0]).strip() != pair[1].strip():
            continue
        if any(run(changed, text) != output for text, output in outputs.items()):
            return changed
    return None
