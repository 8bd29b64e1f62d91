"""A value in a response's thinking is changed, and the rest of the plan is executed from there.

The place is in the first run of the plan, in the middle of a step's work item by item. Both values are known by
execution: those that follow from the change, and those without it.
"""

import random
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from cobalt.extraction import THINK_END
from studies.minicode.problems import WORDS
from studies.minicode.programs import Pipeline, Step
from studies.minicode3.operations import OPERATIONS, Kind, Value
from studies.minicode3.programs import plan_of, read_input, step_function
from studies.minicode3.thinking import PLAN, line_of, shown

THINK, EXAMPLE = "<think>", "Example 1: "
STEPS = {(o.source, plan_of((o.name, c))): (o.name, c) for o in OPERATIONS.values() for c in o.constants or (None,)}
"""The step that a line of a plan means."""
CARRIED = ("running_sum", "running_max", "sum", "max", "min")
"""Each result of their work comes from the one before it and the next item."""
BY_PLACE = ("add_place", "times_place")
"""Each result comes from its own item alone, as with a MAP."""
LARGEST_CHANGE = 5


class Change(NamedTuple):
    """A changed value in a response's first run. Lists hold the values after its step and after each later one."""

    begun: str
    """The response up to the changed value and the comma after it."""
    rest: str
    """About what should come then. Its length bounds the answer."""
    right: list[str]
    """As executed from what the response has."""
    wrong: list[str]
    """As executed from the changed value."""
    own: list[str]
    """As the response itself goes on, without the change."""


def thinking_of(response: str) -> str:
    """All of it, if the response ends within its thinking."""
    return response.removeprefix(THINK).partition(THINK_END)[0]


def read_plan(lines: Sequence[str], source: Value) -> Pipeline | None:
    """The steps that the lines of a plan name; None if they are no whole pipeline."""
    steps, at = [], source
    for line in lines:
        step = STEPS.get((at, line.rpartition(": ")[2].removeprefix("perhaps ")))
        if step is None:
            return None
        steps.append(step)
        at = OPERATIONS[step[0]].target
    return tuple(steps) if at is Value.OUTPUT else None


def values_in(text: str, count: int) -> list[str]:
    """What stands behind the last ``=`` of each of the first lines."""
    return [line.rpartition(" = ")[2] for line in text.split("\n")[:count]]


def change_value(response: str, rng: random.Random) -> Change | None:
    """Change a value in the work of the first run of the response's plan, so that the last value becomes another one.

    None where there is no such run or value, or where the response is wrong before the place. The place is chosen
    without looking at what the response has there, so that it says nothing of how the response goes on.
    """
    lines = thinking_of(response).split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith(EXAMPLE)), 0)
    text = lines[at].removeprefix(EXAMPLE)
    source = Value.NUMBERS if re.fullmatch(r"-?\d+(?: -?\d+)*", text) else Value.WORDS
    plan = read_plan(lines[1:at], source)
    if lines[0] != PLAN or plan is None:
        return None
    before = THINK + "".join(f"{line}\n" for line in lines[: at + 1])
    run, _ = executed(plan, read_input(text, source))
    found: list[tuple[str, Change]] = []
    value: Any = read_input(text, source)
    for index, step in enumerate(plan):
        after, later = step_function(step)(value), plan[index + 1 :]
        by_item = OPERATIONS[step[0]].kind is Kind.MAP or step[0] in (*CARRIED, *BY_PLACE)
        plan_text = f"{index + 1}. {plan_of(step)}: "
        work = run[index].removeprefix(plan_text).split(", ") if by_item and value else []
        for item, of_item in enumerate(work[:-1]):
            old = re.split("[ :]", of_item)[-1]
            if re.fullmatch(r"-?\d+", old):
                new = int(old) + rng.choice([-1, 1]) * rng.randint(1, LARGEST_CHANGE)
            else:
                (new,) = step_function(step)([rng.choice(WORDS)])
            changed = _changed(step, value, after, item, new)
            _, right = executed(later, after)
            rest, wrong = executed(later, changed, index + 2)
            if right[-1] != wrong[-1]:
                head = before + "\n".join([*run[:index], plan_text + ", ".join(work[: item + 1])])
                begun, to_come = f"{head.removesuffix(old)}{new},", "\n".join([", ".join(work[item + 1 :]), *rest])
                own = values_in(response[len(head) + 1 :], len(right))
                found.append((f"{head},", Change(begun, to_come, right, wrong, own)))
        value = after
    if not found:
        return None
    head, change = rng.choice(found)
    return change if response.startswith(head) else None


def _changed(step: Step, value: Any, after: Any, item: int, new: int | str) -> Any:
    """The step's value where the result of its work on one item is ``new`` instead of that in ``after``."""
    if step[0] in CARRIED:
        rest = step_function(step)([new, *value[item + 1 :]])
        return rest if OPERATIONS[step[0]].kind is Kind.FOLD else [*after[:item], *rest]
    if isinstance(after, dict):
        return {**after, list(after)[item]: new}
    return [*after[:item], new, *after[item + 1 :]]


def executed(steps: Pipeline, value: Any, first: int = 1) -> tuple[list[str], list[str]]:
    """The lines of steps that are numbered from ``first`` on; the value before them and after each."""
    lines, values = [], [shown(value)]
    for number, step in enumerate(steps, start=first):
        lines.append(f"{number}. {line_of(step, value)}")
        value = step_function(step)(value)
        values.append(shown(value))
    return lines, values
