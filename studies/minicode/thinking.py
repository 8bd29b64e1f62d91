"""The thinking before a program: what feedback shows, what changes, what the program does."""

import re
from collections.abc import Sequence

from studies.minicode.dialogue import Attempt, Dialogue
from studies.minicode.programs import Step, plan_of


def quoted(pair: tuple[str, str]) -> str:
    """A test shown: its input and expected output."""
    return f"{pair[0]!r} gives {pair[1]!r}. "


def plan(steps: Sequence[Step | None]) -> str:
    """What the program does, step by step."""
    return "; ".join(plan_of(step) for step in steps if step is not None)


def analysis(dialogue: Dialogue, previous: Attempt, steps: Sequence[Step | None]) -> str:
    """What the feedback shows about a hidden rule, then what changes."""
    changes = [f"{_name(old)} -> {_name(new)}" for old, new in zip(previous.steps, steps, strict=True) if old != new]
    index = dialogue.problem.hidden_index
    evidence = ""
    if index is not None and dialogue.seen:
        step = previous.steps[index]
        assert step is not None
        evidence = f"{evidence_for(step, dialogue.last_output, dialogue.seen[-1][1])}. "
    return f"{evidence}{', '.join(changes)}. " if changes else evidence


def _name(step: Step | None) -> str:
    return "nothing" if step is None else plan_of(step)


def evidence_for(guess: Step, got: str, want: str) -> str:
    """What the difference between an output and the expected one says about a hidden rule guessed as ``guess``.

    >>> evidence_for(("add", 2), "7 12", "10 15")
    'got 7 want 10: +3'
    >>> evidence_for(("multiply", 2), "8 12", "20 30")
    'got 8 want 20: 4 * 5'
    >>> evidence_for(("greater", 2), "3 7 4 9", "7 9")
    'extra 4'
    >>> evidence_for(("first", 3), "3 7 4", "3 7")
    'got 3 items want 2'
    """
    name, constant = guess
    got_items, want_items = _integers(got), _integers(want)
    if not got_items or not want_items:
        return f"want {_start(want)}"
    if len(got_items) != len(want_items):
        return _different_lengths(name, got_items, want_items)
    pair = next(((g, w) for g, w in zip(got_items, want_items, strict=True) if g != w), None)
    if pair is None:
        return f"want {_mark(want)}"
    g, w = pair
    if name == "multiply" and constant and g and g % constant == 0 and w % (g // constant) == 0:
        return f"got {g} want {w}: {g // constant} * {w // (g // constant)}"
    return f"got {g} want {w}: {w - g:+d}"


def _integers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"(?<!\d)-?\d+", text)]


def _start(text: str) -> str:
    return repr(text.strip()[:4])


def _mark(text: str) -> str:
    found = re.search(r"\d([^\d-]|-(?=\d|-))", text.strip())
    return repr(found.group(1)) if found else "no mark"


def _different_lengths(name: str, got: list[int], want: list[int]) -> str:
    if name in ("greater", "less"):
        extreme = max if (name == "greater") == (len(got) > len(want)) else min
        longer, shorter, word = (got, want, "extra") if len(got) > len(want) else (want, got, "missing")
        only = set(longer) - set(shorter)
        if only:
            return f"{word} {extreme(only)}"
    return f"got {len(got)} items want {len(want)}"
