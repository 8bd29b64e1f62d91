"""The pre-training corpus: prompts as the chain renders them, each with one response of the demonstrator.

A sample is (prompt after t programs, response at turn t). The history holds what inference with ``--enable_thinking``
keeps: the text after ``</think>``. The programs in it come from a noisier demonstrator than the response, so that the
policy meets many kinds of failure and learns one way out of them; only the response is trained on.

A small share of the problems is of the world's wider part. In a share of the dialogues on fully specified problems the
tests shown are wrong ones (``cobalt.perturbation``).
"""

import itertools
import multiprocessing
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from cobalt.cli.console import progress_bar
from cobalt.inference.conversation import history_text
from cobalt.perturbation import perturb
from cobalt.prompts import feedback_message, first_messages
from research.minicode.demonstrator import Dialogue, Noise, next_attempt
from research.minicode.habits import Habit
from research.minicode.problems import instruction_of, sample_problem
from research.minicode.programs import Variant
from research.minicode.tokenizer import TURN_END, render_prompt
from research.minicode.wording import prompts

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerFast

TURN_WEIGHTS = (0.40, 0.18, 0.12, 0.08, 0.06, 0.05, 0.04, 0.04, 0.03)
"""Share of samples per turn, 0 to 8."""
SAMPLES_PER_PROBLEM = 5
VARIANT_WEIGHTS = (0.8, 0.12, 0.08)
"""Share of script, function and loops programs."""
KEEP_SHARE = 0.25
"""Share of repair samples in which a conversation may go on after its program has passed."""
WIDER_SHARE = 0.1
"""Share of problems of the world's wider part."""
HISTORY = Noise(slip=0.3, wrong_constant=0.03, left_out=0.03, unrepaired=0.45, misread=0.6, cut=0.005, repeat=0.2)
"""Noise of the programs in the history."""
PROBLEMS_PER_TASK = 200


@dataclass(frozen=True)
class Sample:
    """One training sample as text."""

    prompt: str
    response: str
    turn: int
    habit: Habit | None
    """How the response games the failing test."""
    contradicted: bool
    """Whether the tests shown are wrong."""


@dataclass(frozen=True)
class TokenizedCorpus:
    """S samples in one array: sample s is ``tokens[ends[s - 1] : ends[s]]``; the response starts at ``starts[s]``."""

    tokens: "np.ndarray"
    lengths: "np.ndarray"
    starts: "np.ndarray"


def sample_dialogues(
    rng: random.Random, noise: Noise, num_problems: int, contradicted: float = 0.0
) -> Iterator[Sample]:
    """Samples on ``num_problems`` new training problems, responses with ``noise``.

    ``contradicted``: share of the dialogues on fully specified problems whose feedback comes from wrong tests.
    """
    in_history = replace(HISTORY, doses=noise.doses)
    for _ in range(num_problems):
        problem = sample_problem(rng, "wider" if rng.random() < WIDER_SHARE else "train", with_hidden_tests=False)
        for _ in range(SAMPLES_PER_PROBLEM):
            wrong = None
            can_be_wrong = contradicted > 0 and problem.fully_specified and not problem.called
            if can_be_wrong and rng.random() < contradicted:
                perturbed = perturb(problem.public, rng.getrandbits(32), problem.statement)
                wrong = perturbed and perturbed[1]
            dialogue = Dialogue(problem, wrong)
            turn = rng.choices(range(len(TURN_WEIGHTS)), TURN_WEIGHTS)[0]
            variant = rng.choices(list(Variant), VARIANT_WEIGHTS)[0]
            keep = rng.random() < KEEP_SHARE
            while len(dialogue.attempts) < turn:
                attempt = next_attempt(rng, dialogue, in_history, variant)
                if not keep and wrong is None and attempt.pipeline == problem.pipeline:
                    break
                dialogue.add(attempt)
            answer = next_attempt(rng, dialogue, noise, variant)
            messages = first_messages(instruction_of(problem), prompts())
            for attempt, feedback in zip(dialogue.attempts, dialogue.feedbacks, strict=True):
                messages.append({"role": "assistant", "content": history_text(attempt.response, enable_thinking=True)})
                messages.append(feedback_message(feedback, prompts()))
            response = f"{answer.response}{TURN_END}"
            yield Sample(render_prompt(messages), response, len(dialogue.attempts), answer.habit, wrong is not None)


def _task(
    tokenizer: "PreTrainedTokenizerFast", arguments: tuple[str, Noise, int, float]
) -> "list[tuple[np.ndarray, int]]":
    """Token ids of each sample, and where its response starts."""
    import numpy as np

    seed, noise, num_problems, contradicted = arguments
    samples = list(sample_dialogues(random.Random(seed), noise, num_problems, contradicted))
    # Not encode_batch: it would wait for threads that a fork does not copy.
    encode = partial(tokenizer.backend_tokenizer.encode, add_special_tokens=False)
    pairs = [(encode(sample.prompt), encode(sample.response)) for sample in samples]
    return [(np.array(prompt.ids + response.ids, np.uint16), len(prompt.ids)) for prompt, response in pairs]


def build_corpus(
    tokenizer: "PreTrainedTokenizerFast",
    noise: Noise,
    num_problems: int,
    seed: str,
    workers: int,
    contradicted: float = 0.0,
) -> TokenizedCorpus:
    """The tokenized corpus; the same for any number of workers. ``contradicted``: as in ``sample_dialogues``."""
    import numpy as np

    starts = range(0, num_problems, PROBLEMS_PER_TASK)
    tasks = [(f"{seed}-{at}", noise, min(PROBLEMS_PER_TASK, num_problems - at), contradicted) for at in starts]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        done = pool.imap(partial(_task, tokenizer), tasks)
        bar = progress_bar(iterable=done, total=len(tasks), desc=f"corpus {seed}", unit=" tasks")
        rows, starts = zip(*itertools.chain.from_iterable(bar), strict=True)
    return TokenizedCorpus(np.concatenate(rows), np.array([*map(len, rows)], np.int32), np.array(starts, np.int32))
