"""Every number in the training reward, in one place. Defaults are the paper's (arXiv 2602.03806)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardConstants:
    """Constants of the three reward parts. Rewards have no unit; lengths are in tokens unless said otherwise."""

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
    """Repetition, not exactly one ``</think>``, or not exactly one clean program block."""
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
