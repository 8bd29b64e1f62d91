"""The pre-training corpus: prompts as the chain renders them, each with one response of the demonstrator.

A sample is (prompt after t programs, response at turn t). The history holds what inference with ``--enable_thinking``
keeps: the text after ``</think>``. The programs in it come from a noisier demonstrator than the response, so that the
policy meets many kinds of failure and learns one way out of them; only the response is trained on.

A small share of the problems is of the world's wider part. In a share of the dialogues on fully specified problems the
tests shown are wrong ones (``cobalt.perturbation``).
"""

import multiprocessing
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cobalt.commands.console import progress_bar
from cobalt.inference.conversation import history_text
from cobalt.perturbation import perturb
from cobalt.prompts import feedback_message, first_messages
from cobalt.records import TestCases
from studies.minicode.attempts import Noise, next_attempt
from studies.minicode.dialogue import Dialogue
from studies.minicode.habits import Habit
from studies.minicode.problems import Problem, instruction_of, sample_problem
from studies.minicode.programs import Variant
from studies.minicode.tokenizer import TURN_END, render_prompt

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerFast


def _context_noise() -> Noise:
    return Noise(slip=0.3, wrong_constant=0.03, left_out=0.03, unrepaired=0.45, misread=0.6, cut=0.005, repeat=0.2)


@dataclass(frozen=True)
class CorpusConfig:
    """Which samples the corpus holds."""

    turn_weights: tuple[float, ...] = (0.40, 0.18, 0.12, 0.08, 0.06, 0.05, 0.04, 0.04, 0.03)
    """Share of samples per turn, 0 to 8."""
    samples_per_problem: int = 5
    variant_weights: tuple[float, ...] = (0.8, 0.12, 0.08)
    """Share of script, function and loops programs."""
    keep_share: float = 0.25
    """Share of repair samples in which a conversation may go on after its program has passed."""
    wider_share: float = 0.1
    """Share of problems of the world's wider part."""
    context: Noise = field(default_factory=_context_noise)
    """Noise of the programs in the history."""


CORPUS = CorpusConfig()
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
    """S samples in one array: sample s is ``tokens[ends[s - 1] : ends[s]]``; the response starts at ``starts_E[s]``."""

    tokens: "np.ndarray"
    lengths_E: "np.ndarray"
    starts_E: "np.ndarray"


def sample_dialogues(
    rng: random.Random, noise: Noise, num_problems: int, contradicted: float = 0.0
) -> Iterator[Sample]:
    """Samples on ``num_problems`` new training problems, responses with ``noise``.

    ``contradicted``: share of the dialogues on fully specified problems whose feedback comes from wrong tests.
    """
    for _ in range(num_problems):
        split = "wider" if rng.random() < CORPUS.wider_share else "train"
        problem = sample_problem(rng, split, with_hidden_tests=False)
        for _ in range(CORPUS.samples_per_problem):
            yield _sample(rng, Dialogue(problem, _wrong_tests(rng, problem, contradicted)), noise)


def _wrong_tests(rng: random.Random, problem: Problem, contradicted: float) -> TestCases | None:
    if contradicted == 0 or not problem.fully_specified or problem.called or rng.random() >= contradicted:
        return None
    perturbed = perturb(problem.public, rng.getrandbits(32), problem.statement)
    return None if perturbed is None else perturbed[1]


def _sample(rng: random.Random, dialogue: Dialogue, noise: Noise) -> Sample:
    turn = rng.choices(range(len(CORPUS.turn_weights)), CORPUS.turn_weights)[0]
    variant = rng.choices(list(Variant), CORPUS.variant_weights)[0]
    keep = rng.random() < CORPUS.keep_share
    in_history = replace(CORPUS.context, doses=noise.doses)
    while len(dialogue.attempts) < turn:
        attempt = next_attempt(rng, dialogue, in_history, variant)
        if not keep and dialogue.wrong_tests is None and attempt.pipeline == dialogue.problem.pipeline:
            break
        dialogue.add(attempt)
    attempt = next_attempt(rng, dialogue, noise, variant)
    return Sample(
        render_prompt(_messages(dialogue)),
        f"{attempt.response}{TURN_END}",
        len(dialogue.attempts),
        attempt.habit,
        dialogue.wrong_tests is not None,
    )


def _messages(dialogue: Dialogue) -> list[dict[str, str]]:
    messages = first_messages(instruction_of(dialogue.problem))
    for attempt, feedback in zip(dialogue.attempts, dialogue.feedbacks, strict=True):
        messages.append({"role": "assistant", "content": history_text(attempt.response, enable_thinking=True)})
        messages.append(feedback_message(feedback))
    return messages


_tokenizer: "PreTrainedTokenizerFast | None" = None


def _start_worker(tokenizer: "PreTrainedTokenizerFast") -> None:
    global _tokenizer
    _tokenizer = tokenizer


def _task(arguments: tuple[str, Noise, int, float]) -> TokenizedCorpus:
    import numpy as np

    seed, noise, num_problems, contradicted = arguments
    assert _tokenizer is not None
    samples = list(sample_dialogues(random.Random(seed), noise, num_problems, contradicted))
    encode = _tokenizer.backend_tokenizer.encode_batch
    prompts = encode([sample.prompt for sample in samples], add_special_tokens=False)
    responses = encode([sample.response for sample in samples], add_special_tokens=False)
    rows = [prompt.ids + response.ids for prompt, response in zip(prompts, responses, strict=True)]
    return TokenizedCorpus(
        np.concatenate([np.array(row, dtype=np.uint16) for row in rows]),
        np.array([len(row) for row in rows], dtype=np.int32),
        np.array([len(prompt.ids) for prompt in prompts], dtype=np.int32),
    )


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

    tasks = [
        (f"{seed}-{start}", noise, min(PROBLEMS_PER_TASK, num_problems - start), contradicted)
        for start in range(0, num_problems, PROBLEMS_PER_TASK)
    ]
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, _start_worker, (tokenizer,)) as pool:
        done = pool.imap(_task, tasks)
        parts = list(progress_bar(iterable=done, total=len(tasks), desc=f"corpus {seed}", unit=" tasks"))
    return TokenizedCorpus(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.lengths_E for part in parts]),
        np.concatenate([part.starts_E for part in parts]),
    )
