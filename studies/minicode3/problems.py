"""Seeded generation of MiniCode 3's problems: a pipeline, its statement with examples, and tests that fit only it.

*Split.* The set of a pipeline's operations decides between train and dev. Pipelines of six steps and those with a rare
pair of neighbouring operations are the *wider* part: a share of it is the shifted test set, the rest a small part of
the pre-training corpus, as in MiniCode. Nothing proves that no other pipeline behaves like a dev problem's.
*Tests.* Four short public ones and sixteen longer hidden ones, as TACO's preparation will divide them. Every look-alike
of a step, and every other value of a secret rule, fails a public and a hidden test. A constant off by one, a step left
out or two steps swapped fail a hidden one. Public inputs pass through short lists of small numbers only.
"""

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cobalt.prompts import problem_instruction
from cobalt.records import TestCases
from studies.minicode import problems as minicode
from studies.minicode.operations import Domain
from studies.minicode.problems import NUM_HIDDEN, NUM_PUBLIC, ORDER_WORDS, WORDS, replace_step
from studies.minicode.programs import Pipeline, Step, with_constant
from studies.minicode3.operations import OPERATIONS, Kind, Operation, Value
from studies.minicode3.programs import run, source_of, states_of

STEP_WEIGHTS = {3: 0.35, 4: 0.35, 5: 0.3}
"""Share of the lengths in train and dev, the final step included."""
MOST_STEPS = 6
"""Only in the wider part."""
SIX_STEPS_SHARE, RARE_SHARE = 0.5, 0.1
"""Of the wider part, six steps and not a rare pair; of the pairs of neighbouring operations, the rare ones."""
VAGUE_SHARE, WORDS_SHARE, TYPE_CHANGE_SHARE = 0.25, 0.45, 0.4
LONGEST_PUBLIC, LONGEST_OUTPUT, MOST_ITEMS, LARGEST_NUMBER = 28, 100, 6, 199
"""Characters of a public input, which hidden ones exceed, and of any output; what a public test passes through."""
LEAST_WORKED = 2
"""Steps of a problem that go item by item: there is something to think about."""
CANDIDATES = {True: 32, False: 44}
"""Inputs that the public tests, or the hidden ones, are chosen from."""
NUM_EXAMPLES = 3
EXAMPLE, EXAMPLE_OUTPUT = "\nExample input:\n", "\nExample output:\n"
INTROS = {
    Value.NUMBERS: (*minicode.INTROS[Domain.NUMBERS], minicode.OTHER_INTROS[Domain.NUMBERS]),
    Value.WORDS: (*minicode.INTROS[Domain.TEXT], minicode.OTHER_INTROS[Domain.TEXT]),
}
SECRET_SENTENCE = "What is kept secret must be found from the examples or from the execution feedback."
FIXED_SENTENCES = (*(text for texts in INTROS.values() for text in texts), SECRET_SENTENCE, EXAMPLE, EXAMPLE_OUTPUT)


@dataclass(frozen=True)
class Problem:
    """One problem. ``vague_index``: the step whose rule the statement keeps back, or None."""

    statement: str
    phrases: tuple[str, ...]
    """What the statement says of each step."""
    pipeline: Pipeline
    vague_index: int | None
    public: TestCases
    """The first ``NUM_EXAMPLES`` stand in the statement."""
    hidden: TestCases

    @property
    def fully_specified(self) -> bool:
        """False where a rule must be found from tests."""
        return self.vague_index is None

    @property
    def examples(self) -> list[tuple[str, str]]:
        return list(zip(self.public.inputs_K, self.public.outputs_K, strict=True))[:NUM_EXAMPLES]

    @property
    def instruction(self) -> str:
        """The user prompt of turn 0."""
        return problem_instruction(self.statement)


def has_rare_pair(pipeline: Pipeline) -> bool:
    return any(minicode.share_of(f"{a} {b}") < RARE_SHARE for (a, _), (b, _) in pairwise(pipeline))


def split_of(pipeline: Pipeline) -> str:
    """``train`` or ``dev``, in the wider part ``wider`` or ``shifted``."""
    share = minicode.share_of("|".join(sorted({name for name, _ in pipeline})))
    if len(pipeline) == MOST_STEPS or has_rare_pair(pipeline):
        return "shifted" if share < minicode.SHIFTED_SHARE else "wider"
    return "dev" if share < minicode.DEV_SHARE else "train"


def alternatives(step: Step) -> tuple[Step, ...]:
    """Every value that the rule of a vague step can have, the true one included."""
    operation = OPERATIONS[step[0]]
    if operation.vague_choices:
        return tuple((name, None) for name in operation.vague_choices)
    return tuple((step[0], constant) for constant in operation.constants)


def look_alike(step: Step) -> Step:
    return OPERATIONS[step[0]].look_alike, step[1]


def other_neighbours(pipeline: Pipeline) -> list[Pipeline]:
    """A step left out, two neighbours swapped, where the types allow it; a constant off by one within its range."""
    keeps = [o.source is o.target for o in (OPERATIONS[name] for name, _ in pipeline)]
    found = [(*pipeline[:i], *pipeline[i + 1 :]) for i, same in enumerate(keeps) if same]
    for i, both in enumerate(pairwise(keeps)):
        if all(both):
            found.append((*pipeline[:i], pipeline[i + 1], pipeline[i], *pipeline[i + 2 :]))
    for index, (name, constant) in enumerate(pipeline):
        near = () if constant is None else (constant - 1, constant + 1)
        found += [replace_step(pipeline, index, (name, c)) for c in near if c in OPERATIONS[name].constants]
    return found


def sample_problem(rng: random.Random, split: str, with_hidden_tests: bool = True) -> Problem:
    """One problem of the given split (``split_of``). Without hidden tests (pre-training) it is made faster."""
    wider = split in ("wider", "shifted")
    want_vague = rng.random() < VAGUE_SHARE
    # Drawn once, so that what is seldom accepted is not drawn away.
    source = Value.WORDS if rng.random() < WORDS_SHARE else Value.NUMBERS
    if wider and rng.random() < SIX_STEPS_SHARE:
        length = MOST_STEPS
    else:
        (length,) = rng.choices([*STEP_WEIGHTS], [*STEP_WEIGHTS.values()])
    while True:
        pipeline = _sample_pipeline(rng, source, length)
        worked = sum(OPERATIONS[name].kind is not Kind.WHOLE for name, _ in pipeline)
        if split_of(pipeline) != split or worked < LEAST_WORKED:
            continue
        vague_index, others = None, []
        if want_vague:
            able = [i for i, (name, _) in enumerate(pipeline) if OPERATIONS[name].vague_phrases]
            if not able:
                continue
            vague_index = rng.choice(able)
            others = [step for step in alternatives(pipeline[vague_index]) if step != pipeline[vague_index]]

        # The rivals that differ most from what is meant must fail a public test already.
        nearest = [replace_step(pipeline, i, look_alike(step)) for i, step in enumerate(pipeline)]
        nearest += [replace_step(pipeline, vague_index, step) for step in others if vague_index is not None]
        public = _choose_tests(rng, pipeline, nearest, is_public=True)
        if public is None or len(set(public.outputs_K)) < 2:
            continue
        hidden: TestCases | None = TestCases((), ())
        if with_hidden_tests:
            hidden = _choose_tests(rng, pipeline, nearest + other_neighbours(pipeline), is_public=False)
        if hidden is None:
            continue
        phrases = tuple(
            with_constant(rng.choice(operation.vague_phrases if i == vague_index else operation.phrases), constant)
            for i, (operation, constant) in enumerate((OPERATIONS[name], constant) for name, constant in pipeline)
        )
        statement = _statement(rng, pipeline, phrases, vague_index, public)
        return Problem(statement, phrases, pipeline, vague_index, public, hidden)


_FROM = {source: [o for o in OPERATIONS.values() if o.source is source] for source in Value}


def _sample_pipeline(rng: random.Random, at: Value, length: int) -> Pipeline:
    """A walk over the types from ``at`` to an output, no operation twice."""
    pipeline: list[Step] = []
    while len(pipeline) < length:
        final = len(pipeline) == length - 1
        able = [o for o in _FROM[at] if (o.target is Value.OUTPUT) is final and all(o.name != n for n, _ in pipeline)]
        changing = [o for o in able if o.target is not at]
        if not final and rng.random() < TYPE_CHANGE_SHARE:
            able = changing or able
        elif not final:
            able = [o for o in able if o.target is at] or able
        operation: Operation = rng.choice(able)
        pipeline.append((operation.name, rng.choice(operation.constants) if operation.constants else None))
        at = operation.target
    return tuple(pipeline)


def _statement(
    rng: random.Random, pipeline: Pipeline, phrases: tuple[str, ...], vague_index: int | None, public: TestCases
) -> str:
    first, then, finally_ = rng.choice(ORDER_WORDS)
    leads = [first, *[then] * (len(phrases) - 2), finally_]
    sentences = [rng.choice(INTROS[source_of(pipeline)])]
    sentences += [f"{lead} {phrase}." for lead, phrase in zip(leads, phrases, strict=True)]
    if vague_index is not None:
        sentences.append(SECRET_SENTENCE)
    shown = zip(public.inputs_K, public.outputs_K, strict=True)
    examples = [f"{EXAMPLE}{text}{EXAMPLE_OUTPUT}{output}" for text, output in shown][:NUM_EXAMPLES]
    return " ".join(sentences) + "".join(examples)


def _choose_tests(rng: random.Random, pipeline: Pipeline, rivals: list[Pipeline], is_public: bool) -> TestCases | None:
    """Public or hidden tests on which every rival fails at least once, or None if that cannot be had."""
    count = NUM_PUBLIC if is_public else NUM_HIDDEN
    candidates: dict[str, str] = {}
    for _ in range(CANDIDATES[is_public]):
        text = _sample_input(rng, pipeline, is_public)
        if (len(text) <= LONGEST_PUBLIC) is not is_public:
            continue
        states = states_of(pipeline, text)
        output = str(states[-1]).strip()
        if output and len(output) <= LONGEST_OUTPUT and (not is_public or all(map(_is_small, states))):
            candidates[text] = output
    if len(candidates) < count:
        return None
    failing = {
        text: {i for i, rival in enumerate(rivals) if run(rival, text) != candidates[text]} for text in candidates
    }
    chosen = minicode.defeating(failing, len(rivals), count)
    if chosen is None:
        return None
    rest = [text for text in candidates if text not in chosen]
    chosen = (chosen + rng.sample(rest, len(rest)))[:count]
    rng.shuffle(chosen)
    return TestCases(tuple(chosen), tuple(candidates[text] for text in chosen))


def _is_small(state: Any) -> bool:
    """Short and with small numbers, but not empty: it can be worked out step by step."""
    if not isinstance(state, list | dict):
        return True
    numbers = state.values() if isinstance(state, dict) else [x for x in state if isinstance(x, int)]
    return 1 <= len(state) <= MOST_ITEMS and all(abs(x) <= LARGEST_NUMBER for x in numbers)


def _sample_input(rng: random.Random, pipeline: Pipeline, is_public: bool) -> str:
    """A line of words or numbers, some of them repeated, numbers often beside a constant of the pipeline."""
    if source_of(pipeline) is Value.WORDS:
        few = rng.sample(WORDS, 4)
        return " ".join(
            rng.choice(few if rng.random() < 0.6 else WORDS)
            for _ in range(rng.randint(*((4, 5) if is_public else (7, 9))))
        )
    smallest, largest = rng.choice((-9, -3, 0)), 9 if is_public else rng.choice((12, 20))
    near = [(constant or 0) + shift for _, constant in pipeline for shift in (-1, 0, 1)]
    values: list[int] = []
    for _ in range(rng.randint(*((5, 6) if is_public else (11, 14)))):
        draw = rng.random()
        if draw < 0.2 and values:
            values.append(rng.choice(values))
        else:
            values.append(rng.choice(near) if draw < 0.45 else rng.randint(smallest, largest))
    return " ".join(map(str, values))
