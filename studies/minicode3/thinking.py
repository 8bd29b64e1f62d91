"""Thinking that is work: a demonstrator's attempts at a problem, with every value computed by executing.

At turn 0 it reads the statement into a plan, runs the plan on the examples, and where the output is another one reads
steps again or guesses a secret rule anew. In a repair it first runs the failed program on the failing test, then the
plan, finds the first step where the two part, and changes it and any other that differs. What it supposes wrongly it
takes back.

A line of a run is ``2. x + 4: 3 7, 5 9 = 7 9``: the step, its work item by item, the value after it.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from cobalt.prompts import ALL_PASSED, NO_PROGRAM, render_test_feedback
from cobalt.records import Verdict
from studies.minicode.problems import replace_step
from studies.minicode.programs import Pipeline, Step
from studies.minicode3.operations import OPERATIONS, Kind
from studies.minicode3.problems import Problem, alternatives, look_alike
from studies.minicode3.programs import Variant, plan_of, run, states_of, step_function, write_program

NOTHING = "nothing"
PLAN, PROGRAM, CHANGE = "Plan:", "Program:", "Change"
RIGHT, WRONG, FIRST_DIFFERENCE = "Right.", "Wrong.", "First difference:"


@dataclass(frozen=True)
class Noise:
    """How imperfect an attempt is. All are probabilities."""

    misread: float = 0.15
    """Per step: read it as its look-alike, or with a constant beside it. Checking finds most of that."""
    doubt: float = 0.3
    """Per wrong output: suspect a step that is right first."""
    careless: float = 0.0
    """Run nothing, so that what was misread stays."""
    stubborn: float = 0.0
    """Of careless repairs: read the statement as the failed program has it."""
    slip: float = 0.0
    """Per step: write the look-alike in the program, whatever the plan says."""


CLEAN = Noise()
SLOPPY, KEPT = 0.25, 0.5
"""Programs in the history: share of the steps misread, share of the wrong steps that a repair leaves."""
CUT_SHARE = 0.02
"""Share of the responses in the history that end within their thinking."""
BOTH_CHECKS_SHARE = 0.3
"""Share of the repairs of fully specified problems that run the examples, too."""


@dataclass(frozen=True)
class Attempt:
    """One response."""

    pipeline: Pipeline
    thinking: str
    variant: Variant
    cut: bool = False
    """It ends within its thinking."""

    @property
    def response(self) -> str:
        if self.cut:
            return f"<think>{self.thinking}"
        return f"<think>{self.thinking}</think>\n```python\n{write_program(self.pipeline, self.variant)}\n```"


@dataclass
class Dialogue:
    """A problem and the attempts made at it, each run on the public tests."""

    problem: Problem
    attempts: list[Attempt] = field(default_factory=list)
    feedbacks: list[str] = field(default_factory=list)
    failing: tuple[str, str, str] | None = None
    """Input, output and expected output of the test in the last feedback; None: it shows none."""

    def add(self, attempt: Attempt) -> None:
        """Append an attempt and the feedback to it."""
        self.attempts.append(attempt)
        self.failing, feedback = None, NO_PROGRAM if attempt.cut else ALL_PASSED
        tests = self.problem.public
        for text, want in zip(tests.inputs_K, tests.outputs_K, strict=True):
            got = run(attempt.pipeline, text)
            if not attempt.cut and got != want:
                self.failing, feedback = (text, got, want), render_test_feedback(Verdict.WRONG_ANSWER, text, got, want)
                break
        self.feedbacks.append(feedback)


def sloppy_attempt(rng: random.Random, dialogue: Dialogue) -> Attempt:
    """A program for the history, where no thinking is seen. A failed one is seldom written twice."""
    right, vague = dialogue.problem.pipeline, dialogue.problem.vague_index
    if rng.random() < CUT_SHARE:
        whole = careful_attempt(rng, dialogue, CLEAN)
        return Attempt(right, whole.thinking[: rng.randrange(len(whole.thinking))], whole.variant, cut=True)
    before = dialogue.attempts[-1].pipeline if dialogue.attempts else None
    failed = {attempt.pipeline for attempt in dialogue.attempts if not attempt.cut}
    steps = right
    for _ in range(20):
        steps = tuple(
            before[i]
            if before is not None and before[i] != step and rng.random() < KEPT
            else _read(rng, step, SLOPPY, i == vague)
            for i, step in enumerate(right)
        )
        if steps not in failed:
            break
    return Attempt(steps, "", rng.choice(list(Variant)))


def careful_attempt(rng: random.Random, dialogue: Dialogue, noise: Noise) -> Attempt:
    """The next response: its thinking, and the program that follows from it."""
    trace = Trace(rng, dialogue.problem, noise)
    trace.read_statement()
    last = dialogue.attempts[-1] if dialogue.attempts and not dialogue.attempts[-1].cut else None
    careless = rng.random() < noise.careless
    if careless and last is not None and dialogue.failing is not None and rng.random() < noise.stubborn:
        trace.take_plan(last.pipeline)
    if last is not None:
        trace.lines += [PROGRAM, *(f"{i}. {plan_of(step)}" for i, step in enumerate(last.pipeline, start=1))]
    if last is not None and dialogue.failing is None:
        trace.lines.append("All tests passed. Run the program again.")
        trace.steps = last.pipeline
        trace.check()
        trace.lines.append("Keep the program.")
    elif last is None or dialogue.failing is None:
        if not careless:
            trace.check()
    else:
        if not careless:
            both = not dialogue.problem.fully_specified or rng.random() < BOTH_CHECKS_SHARE
            trace.repair(last.pipeline, dialogue.failing, with_examples=both)
        trace.tell_changes(last.pipeline)
    steps = tuple(look_alike(step) if rng.random() < noise.slip else step for step in trace.steps)
    return Attempt(steps, "\n".join(trace.lines), rng.choice(list(Variant)))


def _read(rng: random.Random, step: Step, misread: float, vague: bool) -> Step:
    """A step as it is read or, of a secret rule, guessed."""
    if vague:
        return rng.choice(alternatives(step))
    if rng.random() >= misread:
        return step
    name, constant = step
    near = [] if constant is None else [c for c in (constant - 1, constant + 1) if c in OPERATIONS[name].constants]
    return (name, rng.choice(near)) if near and rng.random() < 0.3 else look_alike(step)


class Trace:
    """Lines of thinking, and the steps that are believed in so far."""

    def __init__(self, rng: random.Random, problem: Problem, noise: Noise):
        self.rng, self.problem, self.noise = rng, problem, noise
        self.lines: list[str] = []
        self.steps: Pipeline = ()
        self.refuted: set[Step] = set()
        """Values of the secret rule that did not give an expected output."""

    def read_statement(self) -> None:
        vague = self.problem.vague_index
        pairs = list(enumerate(self.problem.pipeline))
        self.take_plan(tuple(_read(self.rng, step, self.noise.misread, i == vague) for i, step in pairs))

    def take_plan(self, steps: Pipeline) -> None:
        """Begin with these steps as what the statement says."""
        self.steps, self.lines = steps, [PLAN]
        for i, (phrase, step) in enumerate(zip(self.problem.phrases, steps, strict=True)):
            perhaps = "perhaps " if i == self.problem.vague_index else ""
            self.lines.append(f"{i + 1}. {phrase}: {perhaps}{plan_of(step)}")

    def check(self, failing: tuple[str, str] | None = None, with_examples: bool = True) -> None:
        """Run the steps on the failing test and on the examples, again after a change, until all outputs are right."""
        tests = {f"Example {i}": pair for i, pair in enumerate(self.problem.examples, start=1) if with_examples}
        if failing is not None:
            tests = {"Run the plan": failing, **{name: pair for name, pair in tests.items() if pair != failing}}
        agreed: set[str] = set()
        while left := [name for name in tests if name not in agreed]:
            before, (text, want) = self.steps, tests[left[0]]
            self.lines.append(f"{left[0]}: {text}")
            self.settle(text, want)
            agreed = {left[0]} if self.steps != before else {*agreed, left[0]}

    def repair(self, program: Pipeline, failing: tuple[str, str, str], with_examples: bool) -> None:
        """Run the failed program on the failing test, then the plan, and find where they part."""
        text, got, want = failing
        self.lines.append(f"Run the program: {text}")
        self._run(program, text)
        self.lines.append(f"Got {shown(got)}, expected {shown(want)}. {WRONG}")
        self.check((text, want), with_examples)
        self.lines.append("Compare the plan with the program.")
        values = zip(states_of(self.steps, text)[1:], states_of(program, text)[1:], strict=True)
        for number, (wanted, value) in enumerate(values, start=1):
            # The texts, since dictionaries of another order are equal, and so are a number and its text.
            if shown(wanted) != shown(value):
                self.lines.append(f"{number}. {shown(wanted)}, not {shown(value)}. {FIRST_DIFFERENCE} {number}.")
                break
            self.lines.append(f"{number}. {shown(value)}, the same.")

    def tell_changes(self, program: Pipeline) -> None:
        for number, (old, new) in enumerate(zip(program, self.steps, strict=True), start=1):
            if old != new:
                self.lines.append(f"{CHANGE} {number}. {plan_of(old)} to {plan_of(new)}.")

    def settle(self, text: str, want: str) -> None:
        """Run the steps on an input; while the output is not the expected one, change a step and run on from there."""
        if self._agrees(self.steps, text, want):
            return
        right, vague = self.problem.pipeline, self.problem.vague_index
        if self.rng.random() < self.noise.doubt:
            self._doubt(text, want)
        for i, step in enumerate(right):
            if i != vague and self.steps[i] != step:
                self.lines.append(f"Read {i + 1} again. {self.problem.phrases[i]}: not {plan_of(self.steps[i])}")
                self.steps = replace_step(self.steps, i, step)
                if self._agrees(self.steps, text, want, start=i):
                    return
        # Everything that is said is read right, so the guess was wrong.
        assert vague is not None
        self.refuted.add(self.steps[vague])
        left = [step for step in alternatives(right[vague]) if step not in self.refuted]
        self.rng.shuffle(left)
        for step in left:
            self.lines.append(f"Guess {vague + 1} again: not {plan_of(self.steps[vague])}")
            self.steps = replace_step(self.steps, vague, step)
            if self._agrees(self.steps, text, want, start=vague):
                return
            self.refuted.add(step)
        raise AssertionError("the problem's own pipeline does not give its test")

    def _doubt(self, text: str, want: str) -> None:
        """Suspect a step that is read right, run on from there, and take it back."""
        vague, pairs = self.problem.vague_index, enumerate(self.problem.pipeline)
        sound = [i for i, step in pairs if i != vague and self.steps[i] == step]
        if not sound:
            return
        i = self.rng.choice(sound)
        other = replace_step(self.steps, i, look_alike(self.steps[i]))
        if run(other, text) == want:
            return  # it would be believed
        self.lines.append(f"Perhaps {i + 1} is not {plan_of(self.steps[i])}")
        self._agrees(other, text, want, start=i)
        self.lines.append(f"Back to {plan_of(self.steps[i])}")

    def _agrees(self, steps: Pipeline, text: str, want: str, start: int = 0) -> bool:
        """Whether the steps give the expected output; notes the run from step ``start`` on, and the outcome."""
        got = self._run(steps, text, start)
        self.lines.append(f"Expected {shown(want)}. {RIGHT if got == want else WRONG}")
        return got == want

    def _run(self, steps: Pipeline, text: str, start: int = 0) -> str:
        states = states_of(steps, text)
        self.lines += [f"{i + 1}. {line_of(steps[i], states[i])}" for i in range(start, len(steps))]
        return str(states[-1]).strip()


def line_of(step: Step, value: Any) -> str:
    """The step's work on a value and what comes out, item by item where the operation goes by items.

    >>> line_of(("add", 4), [3, 5])
    'x + 4: 3 7, 5 9 = 7 9'
    >>> line_of(("even", None), [3, 4])
    'keep x % 2 == 0: 3 no, 4 yes = 4'
    >>> line_of(("count_words", None), ["red", "cat", "red"])
    'count each: red:1, cat:1, red:2 = red:2 cat:1'
    >>> line_of(("sum", None), [3, 5, 1])
    'sum: 3 3, 5 8, 1 9 = 9'
    >>> line_of(("reverse", None), [3, 5])
    'reverse = 5 3'
    """
    kind, function = OPERATIONS[step[0]].kind, step_function(step)
    prefixes = [_prefix(value, length) for length in range(len(value) + 1)]
    work = []
    for at, item in enumerate(value if kind is not Kind.WHOLE else ()):
        alone: Any = {item: value[item]} if isinstance(value, dict) else [item]
        if kind is Kind.FILTER:
            work.append(f"{shown(alone)} {'yes' if function(alone) else 'no'}")
        elif kind is Kind.MAP:
            work.append(f"{shown(alone)} {shown(function(alone))}")
        else:
            work.append(_progress(shown(alone), function(prefixes[at]), function(prefixes[at + 1])))
    worked = f": {', '.join(work)}" if work else ""
    return f"{plan_of(step)}{worked} = {shown(function(value))}"


def _prefix(value: Any, length: int) -> Any:
    return dict(list(value.items())[:length]) if isinstance(value, dict) else value[:length]


def _progress(item: str, before: Any, after: Any) -> str:
    """What one more item does to a result: the entry of a tally that it sets, else the item and the result's end."""
    if isinstance(after, dict):
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        return shown(changed) if changed else f"{item} no"
    if isinstance(after, list):
        return f"{item} {after[-1]}" if len(after) > len(before) else f"{item} no"
    return f"{item} {after}"


def shown(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        value = " ".join(f"{key}:{number}" for key, number in value.items())
    elif isinstance(value, list):
        value = " ".join(map(str, value))
    return str(value).strip().replace("\n", " / ") or NOTHING
