"""The text of a MiniCode problem, composed from the phrases of its operations."""

import random
from collections.abc import Mapping
from types import MappingProxyType

from studies.minicode.operation import Domain
from studies.minicode.operations import OPERATIONS
from studies.minicode.programs import FN_NAME, Pipeline, domain_of, with_constant
from studies.minicode.wider import OTHER_WORDS

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


def statement(rng: random.Random, pipeline: Pipeline, hidden_index: int | None) -> str:
    """A statement in the common words; that of the step ``hidden_index`` keeps its rule back."""
    return _compose(rng, rng.choice(ORDER_WORDS), rng.choice(INTROS[domain_of(pipeline)]), pipeline, hidden_index)


def wider_statement(rng: random.Random, pipeline: Pipeline, hidden_index: int | None, called: bool) -> str:
    """A statement in the words of the wider part; ``called``: it asks for a function and not for a program."""
    intros = CALL_INTROS if called else OTHER_INTROS
    text = _compose(rng, rng.choice(ORDER_WORDS), intros[domain_of(pipeline)], pipeline, hidden_index, OTHER_WORDS)
    return text.replace(" print ", " return ") if called else text


def _compose(
    rng: random.Random,
    order_words: tuple[str, str, str],
    intro: str,
    pipeline: Pipeline,
    hidden_index: int | None,
    other_words: Mapping[str, str] = MappingProxyType({}),
) -> str:
    first, then, finally_ = order_words
    sentences = [intro]
    for index, (name, constant) in enumerate(pipeline):
        operation = OPERATIONS[name]
        phrases = operation.hidden_phrases if index == hidden_index else operation.phrases
        phrase = other_words[name] if name in other_words and index != hidden_index else rng.choice(phrases)
        lead = first if index == 0 else finally_ if index == len(pipeline) - 1 else then
        sentences.append(f"{lead} {with_constant(phrase, constant)}.")
    if hidden_index is not None:
        sentences.append(SECRET_SENTENCE)
    return " ".join(sentences)
