"""Pipelines of MiniCode 3 as values and as Python programs. ``states_of`` evaluates the text that a program is made of.

A pipeline is a tuple of steps ``(operation name, constant or None)``; the last one gives the output.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any

from studies.minicode.programs import Pipeline, Step, with_constant
from studies.minicode3.operations import OPERATIONS, TALLIES, VARIABLES, Kind, Value


class Variant(StrEnum):
    """Structures that a solution can have: one script, a function for all, a function for each step on items."""

    SCRIPT = "script"
    FUNCTION = "function"
    HELPERS = "helpers"


FN_NAME = "solve"


def plan_of(step: Step) -> str:
    return with_constant(OPERATIONS[step[0]].plan, step[1])


def source_of(pipeline: Pipeline) -> Value:
    return OPERATIONS[pipeline[0][0]].source


def _statements(step: Step, value: str, result: str, of_item: str | None = None) -> list[str]:
    """The lines that assign the step's result. ``of_item``: an expression in ``x`` instead of the operation's own."""
    operation = OPERATIONS[step[0]]
    code = with_constant(operation.code, step[1])
    item, tally = of_item or code, operation.source in TALLIES
    if operation.kind is Kind.FILTER:
        code = f"B = {{k: x for k, x in A.items() if {item}}}" if tally else f"B = [x for x in A if {item}]"
    elif operation.kind is Kind.MAP:
        code = f"B = {{k: {item} for k, x in A.items()}}" if tally else f"B = [{item} for x in A]"
    elif operation.kind is not Kind.LOOP:
        code = f"B = {code}"
    return re.sub(r"\bA\b", value, re.sub(r"\bB\b", result, code)).split("\n")


@lru_cache(maxsize=4096)
def step_function(step: Step) -> Callable[[Any], Any]:
    """The step as a function of the whole value."""
    space: dict[str, Any] = {}
    body = "\n    ".join([*_statements(step, "A", "B"), "return B"])
    exec(f"def function(A):\n    {body}", space)
    return space["function"]


def read_input(text: str, source: Value) -> list[Any]:
    """What a program makes of its input line."""
    return [int(word) for word in text.split()] if source is Value.NUMBERS else text.split()


def states_of(pipeline: Pipeline, text: str) -> list[Any]:
    """The input as a list, then the value after each step; the last one is what is printed."""
    states: list[Any] = [read_input(text, source_of(pipeline))]
    for step in pipeline:
        states.append(step_function(step)(states[-1]))
    return states


def run(pipeline: Pipeline, text: str) -> str:
    """The output of the pipeline's program on an input line, without white space around it."""
    return str(states_of(pipeline, text)[-1]).strip()


def write_program(pipeline: Pipeline, variant: Variant) -> str:
    """A complete stdin to stdout program."""
    value = VARIABLES[source_of(pipeline)]
    read = "[int(w) for w in input().split()]" if source_of(pipeline) is Value.NUMBERS else "input().split()"
    helpers, body = [], []
    for number, step in enumerate(pipeline, start=1):
        operation = OPERATIONS[step[0]]
        of_item = None
        if variant is Variant.HELPERS and operation.kind in (Kind.FILTER, Kind.MAP):
            helpers += [f"def step{number}(x):", f"    return {with_constant(operation.code, step[1])}"]
            of_item = f"step{number}(x)"
        body += _statements(step, value, VARIABLES[operation.target], of_item)
        value = VARIABLES[operation.target]
    final = body.pop().removeprefix(f"{value} = ")
    if variant is Variant.FUNCTION:
        parameter = VARIABLES[source_of(pipeline)]
        lines = [f"def {FN_NAME}({parameter}):", *(f"    {line}" for line in [*body, f"return {final}"])]
        return "\n".join([*lines, f"print({FN_NAME}({read}))"])
    return "\n".join([*helpers, f"{VARIABLES[source_of(pipeline)]} = {read}", *body, f"print({final})"])
