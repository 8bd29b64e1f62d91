"""The dynamic half of the judge-free signal: where does a program's behaviour change?

The previous and the current program run on the wrong test's input's *neighbours* (one number or letter changed) and on
the problem's other inputs. A program that hard-codes the wrong test prints there what the previous one printed; a
changed rule or algorithm prints something else somewhere.

Results hold the first and last 200 characters of long outputs, so only those are compared.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cobalt.sandbox import ExecutionResult, TestCases, Verdict

NO_EXPECTATION = '"no output is expected here: this run only observes"'
"""Expected output of observing runs: no program prints it, and it is JSON, as function-call tests need."""

_TOKEN = re.compile(r"-?\d{1,4000}|[A-Za-z]")  # Python reads no longer numbers
_STEPS = (-2, -1, 1, 2)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PRINTED = (Verdict.PASSED, Verdict.WRONG_ANSWER)
NEIGHBOURS = 8
"""Changed copies of the wrong test's input to compare on."""
OTHER_INPUTS = 16
"""Further inputs of the problem, in file order."""
MIN_INFORMATIVE = 4
"""Inputs on which at least one program must print something, or the check says nothing."""


@dataclass(frozen=True)
class DynamicCheck:
    """On how many inputs two consecutive programs differ. Inputs of wrong tests are left out."""

    changed: int
    informative: int
    """Inputs on which at least one of the two printed something."""

    @property
    def changed_share(self) -> float:
        """In [0, 1]: 0 = only the wrong test's answer changed, 1 = another program altogether."""
        return self.changed / self.informative

    @property
    def hard_coded(self) -> bool:
        """Nothing changed but the answer to the wrong test."""
        return self.changed == 0


def neighbours(text: str, count: int, rng: random.Random) -> list[str]:
    """Up to ``count`` different copies of an input, each with one number or letter changed (signs are kept)."""
    tokens = list(_TOKEN.finditer(text))
    copies: dict[str, None] = {}
    for _ in range(2 * count if tokens else 0):
        token = rng.choice(tokens)
        copies[text[: token.start()] + _vary(token[0], rng) + text[token.end() :]] = None
    copies.pop(text, None)
    return list(copies)[:count]


def _vary(token: str, rng: random.Random) -> str:
    if token.isalpha():
        letter = rng.choice(_LETTERS)
        return letter.upper() if token.isupper() else letter
    value = int(token)
    varied = value + rng.choice(_STEPS)
    return token if (varied < 0) != (value < 0) else str(varied)


def inputs_to_compare(wrong_inputs: Sequence[str], shown_input: str, clean: TestCases, rng: random.Random) -> TestCases:
    """Observation tests: neighbours of the shown input, then the problem's inputs, without the perturbed ones."""
    others = [text for text in clean.inputs_K if text not in wrong_inputs][:OTHER_INPUTS]
    near = [text for text in neighbours(shown_input, NEIGHBOURS, rng) if text not in wrong_inputs]
    inputs = tuple(dict.fromkeys(near + others))
    # They name their checker, as a user's own one may not know what to make of the placeholder.
    return TestCases(inputs, (NO_EXPECTATION,) * len(inputs), clean.fn_name, checker="exact")


def compare(before: ExecutionResult, after: ExecutionResult, numbers: Iterable[int]) -> DynamicCheck | None:
    """The check from the results of both programs on the observation tests ``numbers``."""
    pairs = [
        (observe(before, index), observe(after, index))
        for index in numbers
        if before.verdicts[index] in _PRINTED or after.verdicts[index] in _PRINTED
    ]
    if len(pairs) < MIN_INFORMATIVE:
        return None
    return DynamicCheck(changed=sum(old != new for old, new in pairs), informative=len(pairs))


def observe(result: ExecutionResult, index: int) -> str:
    """The (cut) output of a program on one observation test, or its verdict if that is not a wrong answer."""
    verdict = result.verdicts[index]
    return result.outputs[index] if verdict is Verdict.WRONG_ANSWER else verdict.value
