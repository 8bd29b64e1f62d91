"""The reward of one response as a sum of named parts (arXiv 2602.03806; the rules are in docs/method.md)."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from cobalt.extraction import DEFAULT_RULE, THINK_END, Rule, answer_of
from cobalt.fences import blocks_of
from cobalt.rewards.lengths import CountTokens
from cobalt.rewards.repetition import has_repetition

Thinking = Literal["required", "optional", "none"]
"""How many ``</think>`` a well-formed response has: exactly one (the paper's rule), at most one, or none."""
BLOCK_START = "```python"
BLOCK_END = "\n```"


def thinking_of(tokenizer: Any) -> Thinking:
    """A policy thinks whose chat template holds ``</think>``, or that has a token for it."""
    thinks = THINK_END in str(tokenizer.chat_template) or THINK_END in tokenizer.get_vocab()
    return "required" if thinks else "none"


@dataclass(frozen=True)
class RewardConstants:
    """Every number in the training reward; the defaults are the paper's (arXiv 2602.03806).

    Rewards have no unit; lengths are in tokens unless said otherwise.
    """

    correct_all: float = 1.0
    """All tests pass."""
    correct_half: float = 0.2
    """Pass rate of at least ``half``, but not all."""
    correct_some: float = 0.0
    """Pass rate above 0, below ``half``."""
    correct_none: float = -0.1
    """No test passes."""
    half: float = 0.5
    """Pass rate from which ``correct_half`` is given."""
    no_program: float = -1.0
    """No program could be extracted; the other parts are 0."""

    improvement: bool = True
    """False: there is no part for improvement."""
    improve_scale: float = 0.1
    """Weight of the relative change against the best pass rate in the context."""
    not_improved: float = -0.1
    """What replaces the reward so far when the pass rate is not better than the best in the context."""

    malformed: float = -0.9
    """Repetition, thinking that is not as it should be (``Thinking``), or not exactly one clean program block."""
    repeat_chars: int = 32
    """Shortest repeated block that counts, in characters."""
    repeat_times: int = 8
    """Repetitions in a row that count."""
    max_think: int = 4096
    """Longest thinking without a penalty."""
    max_answer: int = 2048
    """Longest answer (program included) without a penalty."""
    max_explanation: int = 512
    """Longest explanation after the program without a penalty."""
    overlong: float = -0.01
    """Any length above its limit, when the reward so far is not negative."""
    overlong_failed: float = -0.1
    """Each length above its limit, when the reward so far is negative."""
    think_scale: float = 0.075
    """Weight of tanh(thinking length / ``think_tokens``) when the reward so far is negative."""
    think_tokens: int = 1024
    """Scale of the thinking length inside tanh."""
    keyword: float = 0.005
    """Per keyword of reflection that occurs between 1 and ``keyword_max_uses`` times in the thinking."""
    keyword_cap: float = 0.025
    """Upper bound on the sum over keywords."""
    keyword_max_uses: int = 4
    """A keyword used more often than this counts nothing."""
    keywords: tuple[str, ...] = ("wait", "mistake", "however", "but", "retry", "error", "verify", "wrong", "evaluate")
    """Whole words, looked up in the lower-cased thinking."""

    hard_coding: float = 0.0
    """Subtracted where a program changes nothing but the answer to the test that it was shown; 0: not looked for."""

    low: float = -1.0
    """Lower bound of the total."""
    high: float = 1.0
    """Upper bound of the total."""


PAPER = RewardConstants()


@dataclass(frozen=True)
class RewardParts:
    """``correct + improve + format`` is the reward before clipping and penalties; ``total`` is clipped."""

    correct: float
    improve: float
    format: float
    total: float


@dataclass(frozen=True)
class WellFormed:
    """The pieces of a well-formed response, each stripped: ``answer`` holds program and ``explanation``."""

    thinking: str
    answer: str
    explanation: str


def training_reward(
    response: str,
    pass_rate: float | None,
    prev_best_pass_rate: float | None,
    count_tokens: CountTokens,
    constants: RewardConstants = PAPER,
    extraction: Rule = DEFAULT_RULE,
    thinking: Thinking = "required",
) -> RewardParts:
    """Reward of ``response``, whose program passed the share ``pass_rate`` of its tests.

    ``pass_rate`` None: no program could be extracted. ``prev_best_pass_rate``: best pass rate among the programs in
    the context; 0 or None if there is none. ``count_tokens``: length of a text in tokens. ``extraction``: the rule by
    which the program was found and its form is read. ``thinking``: what the form requires, see ``Thinking``.

    >>> training_reward("<think>t</think>\\n```python\\nprint(1)\\n```", 0.75, 0.5, len)
    RewardParts(correct=0.2, improve=0.05, format=0.0, total=0.25)
    """
    correct, improve, form = constants.no_program, 0.0, 0.0
    if pass_rate is not None:
        correct = correctness(pass_rate, constants)
        improve = improvement(pass_rate, prev_best_pass_rate or 0.0, correct, constants)
        form = format_part(response, correct + improve, count_tokens, constants, extraction, thinking)
    return penalised(RewardParts(correct, improve, form, total=0.0), 0.0, constants)


def penalised(parts: RewardParts, penalty: float, constants: RewardConstants = PAPER) -> RewardParts:
    """The reward with ``penalty`` subtracted before clipping."""
    total = parts.correct + parts.improve + parts.format - penalty
    return replace(parts, total=min(max(total, constants.low), constants.high))


def validation_reward(pass_rate: float | None) -> float:
    """1 iff all tests pass, else 0."""
    return float(pass_rate == 1)


def correctness(pass_rate: float, constants: RewardConstants) -> float:
    """The part for passing tests, in three steps and a bonus for all."""
    if pass_rate == 1:
        return constants.correct_all
    if pass_rate >= constants.half:
        return constants.correct_half
    return constants.correct_some if pass_rate > 0 else constants.correct_none


def improvement(pass_rate: float, prev_best: float, correct: float, constants: RewardConstants) -> float:
    """The part for changing the best pass rate in the context.

    Better: a bonus relative to what was missing. Not better: the reward so far is *replaced*, so ``correct`` is
    subtracted here.
    """
    if not constants.improvement or pass_rate == 1 or prev_best <= 0:
        return 0.0
    change = pass_rate - prev_best
    if change > 0:
        return constants.improve_scale * change / (1 - prev_best)
    return constants.not_improved + constants.improve_scale * change / prev_best - correct


def format_part(
    response: str,
    so_far: float,
    count_tokens: CountTokens,
    constants: RewardConstants,
    extraction: Rule,
    thinking: Thinking,
) -> float:
    """The part for form: ``so_far`` (correctness and improvement) decides whether reflection is rewarded."""
    pieces = split_response(response, extraction, thinking)
    if pieces is None or has_repetition(response, constants.repeat_chars, constants.repeat_times):
        return constants.malformed
    think = count_tokens(pieces.thinking)
    long_answer = count_tokens(pieces.answer) > constants.max_answer
    long_explanation = count_tokens(pieces.explanation) > constants.max_explanation
    if so_far >= 0:
        return constants.overlong if think > constants.max_think or long_answer or long_explanation else 0.0
    penalty = constants.overlong_failed * (long_answer + long_explanation)
    if think > constants.max_think:
        return constants.overlong_failed + penalty
    return constants.think_scale * math.tanh(think / constants.think_tokens) + reflection(pieces, constants) + penalty


def reflection(pieces: WellFormed, constants: RewardConstants) -> float:
    """Bonus for words of reflection in the thinking, used but not overused."""
    uses = Counter(re.findall(r"\w+", pieces.thinking.lower()))
    used = sum(1 <= uses[word] <= constants.keyword_max_uses for word in constants.keywords)
    return min(constants.keyword * used, constants.keyword_cap)


def split_response(
    response: str, extraction: Rule = DEFAULT_RULE, thinking: Thinking = "required"
) -> WellFormed | None:
    """The pieces of a response with thinking as required and one clean program block after it, else None.

    Clean: opened once, closed once on its own line, no backtick inside. A block of another language may come before.
    """
    thought, *answers = response.split(THINK_END)
    if not answers and thinking != "required":
        thought, answers = "", [response]
    elif thinking == "none":
        return None
    if len(answers) != 1 or (extraction == "markdown" and answers[0] != answer_of(response)):
        return None
    code, explanation = (_released_program if extraction == "released" else _program)(answers[0])
    if code is None or "`" in code:
        return None
    return WellFormed(thought.strip(), answers[0].strip(), explanation.strip())


def _program(answer: str) -> tuple[str | None, str]:
    """The code of the only Python block, if it is the last block and is closed, and what follows it."""
    blocks = blocks_of(answer)
    if [block.is_python for block in blocks].count(True) != 1 or not blocks[-1].is_python or blocks[-1].end != "fence":
        return None, ""
    fence, *rest = answer.split("\n")[blocks[-1].next_line - 1 :]
    return blocks[-1].code, "\n".join([fence.strip().lstrip("`~"), *rest])


def _released_program(answer: str) -> tuple[str | None, str]:
    """What stands between the only ``BLOCK_START`` and the only ``BLOCK_END`` after it, and what follows it."""
    programs = answer.split(BLOCK_START)[1:]
    pieces = programs[0].split(BLOCK_END) if len(programs) == 1 else []
    return (pieces[0], pieces[1]) if len(pieces) == 2 else (None, "")
