"""Seeded generation of MiniCode problems: a pipeline, its statement, and tests that only it passes.

*Split.* Which operations a pipeline uses, their order set aside, decides whether it belongs to train or dev, so that a
dev composition is never seen in training. Since two compositions can behave alike, a dev problem is kept only if no
pipeline of the training compositions, with any constants, passes all its tests (``solved_by_training``).
*The wider part* holds what no problem of train and dev has: other operations, three middle steps, other words, function
calls. Its compositions are divided into wider, a small share of the pre-training corpus, and shifted, a test set.
*Tests.* Four public ones with short inputs and sixteen hidden ones with longer inputs: the length rule of TACO's
preparation picks exactly these four, and no public input can reappear among hidden ones anywhere. Every neighbour of
the pipeline (a look-alike operation, a step left out, two steps swapped, a constant off by one) fails a hidden test;
every look-alike and every other value of a hidden rule fails a public one too.
"""

import hashlib
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass

from cobalt.prompts import problem_instruction
from cobalt.records import TestCases
from research.minicode.operations import COMMON, OPERATIONS, Domain, Kind, operations_of
from research.minicode.programs import (
    FN_NAME,
    Pipeline,
    Step,
    call_of,
    domain_of,
    read_input,
    run,
    step_function,
    with_constant,
)  # fmt: skip
from research.minicode.wording import prompts

HIDDEN_RULE_SHARE, TEXT_SHARE = 0.3, 0.15
TWO_STEPS_SHARE = 0.6
"""Share of problems with two middle steps; the others have one."""
DEV_SHARE, SHIFTED_SHARE = 0.12, 0.3
"""Share of compositions held out for dev; of the wider part's, as shifted."""
THREE_STEPS_SHARE = 0.5
"""Share of the wider part with three middle steps of common operations; the others have a wider operation."""
CALLED_SHARE = 0.25
"""Share of the wider part that asks for a function."""
MIDDLE_RULE_SHARE = 0.7
"""Where both can be, share of hidden rules in a middle step (a constant, mostly) and not in the final one."""
PLANTED_SHARE = 0.35
"""Share of numbers set to, or one beside, a constant of the pipeline: boundary cases."""
TRIES = 60
"""Pipelines rejected before another domain and length are drawn: some have no composition in a split."""
NUM_PUBLIC, NUM_HIDDEN = 4, 16
PUBLIC_CANDIDATES, HIDDEN_CANDIDATES = 24, 40
LONGEST_PUBLIC, LONGEST_OUTPUT = 13, 60
"""Characters: of a public input, which hidden ones exceed; of any output."""
PRETRAINED = ("train", "wider")
"""The splits that the pre-training corpus is made of."""
MOST_STEPS = 3
"""Of a problem of train or dev, the final one included."""
WORDS = tuple(
    "red blue cat dog sun moon tree apple river stone open idea under over music light paper green quick lazy".split()  # noqa: SIM905 - one word a piece reads worse
)

INTROS = {
    Domain.NUMBERS: (
        "Your program receives one line that holds several integers, separated by single spaces.",
        "The only line of the input is a list of whole numbers with one space between neighbours.",
        "Read a single line of integers from the standard input; they are separated by spaces.",
    ),
    Domain.TEXT: (
        "Your program receives one line of text: lower case English words, separated by single spaces.",
        "The only line of the input is a short sentence of lower case words with one space between them.",
        "Read a single line of lower case words from the standard input; they are separated by spaces.",
    ),
}
OTHER_INTROS = {
    Domain.NUMBERS: "You get some integers in one line of the standard input, a space after each but the last.",
    Domain.TEXT: "You get some lower case words in one line of the standard input, a space after each but the last.",
}
CALL_INTROS = {
    Domain.NUMBERS: f"Write a function {FN_NAME} that is called with a list of integers.",
    Domain.TEXT: f"Write a function {FN_NAME} that is called with a text of lower case words.",
}
SECRET_SENTENCE = "What is kept secret must be found from the execution feedback."
FIXED_SENTENCES = (
    *(intro for intros in INTROS.values() for intro in intros),
    SECRET_SENTENCE,
    *OTHER_INTROS.values(),
    *CALL_INTROS.values(),
)
ORDER_WORDS = (("First,", "Then", "Finally,"), ("To begin with,", "After that,", "At the end,"))


@dataclass(frozen=True)
class Problem:
    """One problem. ``hidden_index``: the step whose rule the statement keeps back, or None.

    ``public`` and ``hidden`` hold the lines that a program reads and writes. ``called``: the statement asks for the
    function ``FN_NAME``, and ``shown`` turns the tests into calls.
    """

    statement: str
    pipeline: Pipeline
    hidden_index: int | None
    public: TestCases
    hidden: TestCases
    called: bool = False

    @property
    def fully_specified(self) -> bool:
        """False where a rule must be found from test feedback."""
        return self.hidden_index is None

    def shown(self, tests: TestCases) -> TestCases:
        """``tests``, right ones, as a data set holds them: with ``called`` arguments and values in JSON."""
        if not self.called:
            return tests
        calls = [call_of(self.pipeline, text) for text in tests.inputs_K]
        return TestCases(tuple(a for a, _ in calls), tuple(v for _, v in calls), FN_NAME)


def instruction_of(problem: Problem) -> str:
    """The user prompt of turn 0."""
    return problem_instruction(problem.statement, FN_NAME if problem.called else None, prompts=prompts())


def share_of(text: str) -> float:
    """A number in [0, 1) that ``text`` alone decides."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


def split_of(pipeline: Pipeline) -> str:
    """``train`` or ``dev``, in the wider part ``wider`` or ``shifted``, by the set of operations."""
    share = share_of("|".join(sorted({name for name, _ in pipeline})))
    if len(pipeline) > MOST_STEPS or not all(name in COMMON for name, _ in pipeline):
        return "shifted" if share < SHIFTED_SHARE else "wider"
    return "dev" if share < DEV_SHARE else "train"


def alternatives(step: Step) -> tuple[Step, ...]:
    """Every value that the rule of a hidden step can have, the true one included."""
    operation = OPERATIONS[step[0]]
    if operation.hidden_choices:
        return tuple((name, None) for name in operation.hidden_choices)
    return tuple((step[0], constant) for constant in operation.constants)


def replace_step(pipeline: Pipeline, index: int, step: Step) -> Pipeline:
    return (*pipeline[:index], step, *pipeline[index + 1 :])


def look_alikes(pipeline: Pipeline) -> list[Pipeline]:
    """One step read as its look-alike."""
    return [replace_step(pipeline, i, (OPERATIONS[name].look_alike, c)) for i, (name, c) in enumerate(pipeline)]


def other_neighbours(pipeline: Pipeline) -> list[Pipeline]:
    """A step left out, two neighbouring middle steps swapped, a constant off by one (within its range)."""
    found = [(*pipeline[:i], *pipeline[i + 1 :]) for i in range(len(pipeline) - 1)]
    for i in range(len(pipeline) - 2):
        found.append((*pipeline[:i], pipeline[i + 1], pipeline[i], *pipeline[i + 2 :]))
    for index, (name, constant) in enumerate(pipeline):
        near = () if constant is None else (constant - 1, constant + 1)
        found += [replace_step(pipeline, index, (name, c)) for c in near if c in OPERATIONS[name].constants]
    return found


def hidden_alternatives(pipeline: Pipeline, index: int | None) -> list[Pipeline]:
    """The pipeline under every other value of its hidden rule."""
    if index is None:
        return []
    return [replace_step(pipeline, index, step) for step in alternatives(pipeline[index]) if step != pipeline[index]]


def sample_problem(rng: random.Random, split: str, with_hidden_tests: bool = True) -> Problem:
    """One problem of the given split (``split_of``). Without hidden tests (training only) it is made faster."""
    wider = split in ("wider", "shifted")
    want_hidden = rng.random() < HIDDEN_RULE_SHARE
    while True:
        domain = Domain.TEXT if rng.random() < TEXT_SHARE else Domain.NUMBERS
        num_middle = 2 if rng.random() < TWO_STEPS_SHARE else 1
        if wider and rng.random() < THREE_STEPS_SHARE:
            num_middle = MOST_STEPS
        for _ in range(TRIES):
            pipeline = _sample_pipeline(rng, domain, num_middle, wider and num_middle < MOST_STEPS)
            if split_of(pipeline) != split:
                continue
            hidden_index = None
            if want_hidden:
                able = [index for index, (name, _) in enumerate(pipeline) if OPERATIONS[name].hidden_phrases]
                middle = [index for index in able if index < len(pipeline) - 1]
                if middle and rng.random() < MIDDLE_RULE_SHARE:
                    able = middle
                if not able:
                    continue
                hidden_index = rng.choice(able)

            # Tests that reject every neighbour; the nearest fail a public test already.
            nearest = look_alikes(pipeline) + hidden_alternatives(pipeline, hidden_index)
            public, hidden = _choose_tests(rng, pipeline, nearest, is_public=True), TestCases((), ())
            if public is None or len(set(public.outputs_K)) < NUM_PUBLIC - 1:
                continue
            if with_hidden_tests:
                hidden = _choose_tests(rng, pipeline, nearest + other_neighbours(pipeline), is_public=False)
            if hidden is None or (split in ("dev", "shifted") and solved_by_training(public + hidden, domain)):
                continue
            called = wider and rng.random() < CALLED_SHARE
            statement = _statement(rng, pipeline, hidden_index, wider, called)
            return Problem(statement, pipeline, hidden_index, public, hidden, called)


def _sample_pipeline(rng: random.Random, domain: Domain, num_middle: int, wider: bool) -> Pipeline:
    """Common operations; with ``wider`` one of them exchanged for an operation of the wider part."""
    middle, finals = operations_of(domain, final=False), operations_of(domain, final=True)
    if domain is Domain.NUMBERS:
        kinds = [rng.choice((Kind.FILTER, Kind.MAP, Kind.WHOLE)) for _ in range(num_middle)]
        chosen = [rng.choice([o for o in middle if o.kind is kind]) for kind in kinds]
    else:
        chosen = [rng.choice(middle) for _ in range(num_middle)]
    chosen.append(rng.choice(finals))
    pipeline = [(o.name, rng.choice(o.constants) if o.constants else None) for o in chosen]
    if wider:
        index = rng.randrange(len(pipeline))
        other = rng.choice(operations_of(domain, final=index == num_middle, wider=True))
        pipeline[index] = other.name, rng.choice(other.constants) if other.constants else None
    return tuple(pipeline)


def _statement(rng: random.Random, pipeline: Pipeline, hidden_index: int | None, wider: bool, called: bool) -> str:
    """The text, which keeps the rule of the step ``hidden_index`` back; ``called``: it asks for a function."""
    first, then, finally_ = rng.choice(ORDER_WORDS)
    domain = domain_of(pipeline)
    sentences = [(CALL_INTROS if called else OTHER_INTROS)[domain] if wider else rng.choice(INTROS[domain])]
    for index, (name, constant) in enumerate(pipeline):
        operation = OPERATIONS[name]
        if wider and operation.other_words and index != hidden_index:
            phrase = operation.other_words
        else:
            phrase = rng.choice(operation.hidden_phrases if index == hidden_index else operation.phrases)
        lead = first if index == 0 else finally_ if index == len(pipeline) - 1 else then
        sentences.append(f"{lead} {with_constant(phrase, constant)}.")
    if hidden_index is not None:
        sentences.append(SECRET_SENTENCE)
    text = " ".join(sentences)
    return text.replace(" print ", " return ") if called else text


def _choose_tests(rng: random.Random, pipeline: Pipeline, rivals: list[Pipeline], is_public: bool) -> TestCases | None:
    """Public or hidden tests on which every rival fails at least once, or None if that cannot be had."""
    count, num_candidates = (NUM_PUBLIC, PUBLIC_CANDIDATES) if is_public else (NUM_HIDDEN, HIDDEN_CANDIDATES)
    candidates: dict[str, str] = {}
    failing: dict[str, set[int]] = {}  # rivals
    for _ in range(num_candidates):
        text = _sample_input(rng, pipeline, is_public)
        if text in candidates or (len(text) <= LONGEST_PUBLIC) is not is_public:
            continue
        output = run(pipeline, text)
        if len(output) <= LONGEST_OUTPUT:
            candidates[text] = output
            failing[text] = {i for i, rival in enumerate(rivals) if run(rival, text).strip() != output}
    chosen = defeating(failing, len(rivals), count)
    if chosen is None or len(candidates) < count:
        return None
    rest = [text for text in candidates if text not in chosen and candidates[text].strip()]
    rng.shuffle(rest)
    chosen = (chosen + rest)[:count]
    if len(chosen) < count:
        return None
    rng.shuffle(chosen)
    return TestCases(tuple(chosen), tuple(candidates[text] for text in chosen))


def defeating(failing: Mapping[str, set[int]], rivals: int, count: int) -> list[str] | None:
    """Inputs, chosen greedily, of which each of so many ``rivals`` fails one; None if ``count`` inputs are too few.

    ``failing``: the rivals that fail on each input.
    """
    left, chosen = set(range(rivals)), []
    while left:
        text = max(failing, key=lambda text: len(failing[text] & left), default=None)
        if text is None or not failing[text] & left or len(chosen) == count:
            return None
        chosen.append(text)
        left -= failing[text]
    return chosen


def _sample_input(rng: random.Random, pipeline: Pipeline, is_public: bool) -> str:
    """A line of one to five words, or of four to nine numbers: fewer in public tests."""
    if domain_of(pipeline) is Domain.TEXT:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(*((1, 3) if is_public else (3, 5)))))
    smallest, largest = rng.choice((-9, -3, 0)), 9 if is_public else rng.choice((12, 20))
    near = [(constant or 0) + shift for _, constant in pipeline for shift in (-1, 0, 1)]
    values = [
        rng.choice(near) if rng.random() < PLANTED_SHARE else rng.randint(smallest, largest)
        for _ in range(rng.randint(*((4, 6) if is_public else (7, 9))))
    ]
    if rng.random() < 0.5:
        values[rng.randrange(len(values))] = rng.choice(values)
    return " ".join(map(str, values))


def steps_of(domain: Domain, final: bool, wider: bool = False) -> list[Step]:
    """Every step with every constant; ``wider``: as in ``operations_of``."""
    return [(o.name, c) for o in operations_of(domain, final, wider) for c in (o.constants or (None,))]


def solved_by_training(tests: TestCases, domain: Domain) -> bool:
    """Whether some pipeline of a training composition passes all ``tests``.

    Complete over the world: no, one or two middle steps with any constants. The longest input goes first, equal
    intermediate values are expanded once.
    """
    order = sorted(range(len(tests)), key=lambda i: -len(tests.inputs_K[i]))
    (text, want), *others = ((tests.inputs_K[i], tests.outputs_K[i].strip()) for i in order)
    value = read_input(text, domain)
    middle = [(step, step_function(step)) for step in steps_of(domain, final=False)]
    finals = [(step, step_function(step)) for step in steps_of(domain, final=True)]
    firsts = [(step, function(value)) for step, function in middle]
    seconds = itertools.product(firsts, middle)
    reached: dict[object, tuple[object, list[Pipeline]]] = {}  # by the value after the middle steps: those steps
    for prefix, result in itertools.chain(
        [((), value)],
        (((step,), result) for step, result in firsts),
        (((first, second), function(result)) for (first, result), (second, function) in seconds),
    ):
        key = tuple(result) if isinstance(result, list) else result
        reached.setdefault(key, (result, []))[1].append(prefix)
    return any(
        split_of(pipeline) == "train" and all(run(pipeline, text).strip() == want for text, want in others)
        for result, prefixes in reached.values()
        for step, function in finals
        if str(function(result)).strip() == want
        for pipeline in ((*prefix, step) for prefix in prefixes)
    )
