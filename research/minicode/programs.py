"""Pipelines as values and as Python programs.

A pipeline is a tuple of steps ``(operation name, constant or None)`` whose last step is final. ``run`` evaluates it
directly, ``write_program`` writes it as one of several programs that differ in structure and agree in behaviour.
"""

import json
import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any

from research.minicode.operations import OPERATIONS, Domain, Kind

FN_NAME = "solve"
"""The function that the wider part's problems ask for."""
Step = tuple[str, int | None]
Pipeline = tuple[Step, ...]


class Variant(StrEnum):
    """Structures that a solution can have."""

    SCRIPT = "script"
    FUNCTION = "function"
    LOOPS = "loops"


VARIABLES = {
    Variant.SCRIPT: {Domain.NUMBERS: "a", Domain.TEXT: "s"},
    Variant.FUNCTION: {Domain.NUMBERS: "nums", Domain.TEXT: "text"},
    Variant.LOOPS: {Domain.NUMBERS: "vals", Domain.TEXT: "line"},
}
"""The variable that the final step prints."""
ITEMS = {Variant.SCRIPT: "x", Variant.FUNCTION: "v", Variant.LOOPS: "t"}
"""The variable of one item."""


def domain_of(pipeline: Pipeline) -> Domain:
    return OPERATIONS[pipeline[-1][0]].domain


def with_constant(text: str, constant: int | None) -> str:
    """Fill a phrase, plan or expression."""
    return text.replace("{c}", str(constant))


def plan_of(step: Step | None) -> str:
    """The short name of a step in a policy's thinking."""
    return "nothing" if step is None else with_constant(OPERATIONS[step[0]].plan, step[1])


def expression_of(step: Step, value: str, item: str) -> str:
    """The step's Python expression over the given variable names."""
    text = with_constant(OPERATIONS[step[0]].expression, step[1])
    return re.sub(r"\bx\b", item, re.sub(r"\bA\b", value, text))


def _comprehension(step: Step, value: str, item: str) -> str:
    """A step as an expression of the whole value."""
    expression = expression_of(step, value, item)
    match OPERATIONS[step[0]].kind:
        case Kind.FILTER:
            return f"[{item} for {item} in {value} if {expression}]"
        case Kind.MAP:
            return f"[{expression} for {item} in {value}]"
        case _:
            return expression


@lru_cache(maxsize=4096)
def step_function(step: Step) -> Callable[[Any], Any]:
    """The step as a function of the whole value (a list of ints, or a text)."""
    return eval(f"lambda A: {_comprehension(step, 'A', 'x')}", {})


def read_input(text: str, domain: Domain) -> Any:
    """What a program makes of its input line."""
    return [int(word) for word in text.split()] if domain is Domain.NUMBERS else text


def value_of(pipeline: Pipeline, text: str) -> Any:
    """What the pipeline makes of an input line."""
    value = read_input(text, domain_of(pipeline))
    for step in pipeline:
        value = step_function(step)(value)
    return value


def run(pipeline: Pipeline, text: str) -> str:
    """The output of the pipeline's program on an input line, without the last newline."""
    return str(value_of(pipeline, text))


def call_of(pipeline: Pipeline, text: str) -> tuple[str, str]:
    """Arguments and value, as JSON, of the call of the pipeline's function that stands for an input line."""
    return json.dumps(read_input(text, domain_of(pipeline))), json.dumps(value_of(pipeline, text))


def write_function(pipeline: Pipeline) -> str:
    """The function ``FN_NAME`` alone."""
    value, item = VARIABLES[Variant.FUNCTION][domain_of(pipeline)], ITEMS[Variant.FUNCTION]
    body = [f"{value} = {_comprehension(step, value, item)}" for step in pipeline[:-1]]
    body.append(f"return {expression_of(pipeline[-1], value, item)}")
    return "\n".join([f"def {FN_NAME}({value}):", *(f"    {line}" for line in body)])


def write_program(pipeline: Pipeline, variant: Variant) -> str:
    """A complete stdin to stdout program."""
    numbers = domain_of(pipeline) is Domain.NUMBERS
    value, item = VARIABLES[variant][domain_of(pipeline)], ITEMS[variant]
    final = expression_of(pipeline[-1], value, item)
    if variant is Variant.SCRIPT:
        lines = [f"{value} = {'list(map(int, input().split()))' if numbers else 'input()'}"]
        lines += [f"{value} = {_comprehension(step, value, item)}" for step in pipeline[:-1]]
        return "\n".join([*lines, f"print({final})"])
    if variant is Variant.FUNCTION:
        read = "[int(w) for w in input().split()]" if numbers else "input()"
        return f"{write_function(pipeline)}\nprint({FN_NAME}({read}))"
    line = "sys.stdin.readline()"
    lines = [
        "import sys",
        f"{value} = " + (f"[int(w) for w in {line}.split()]" if numbers else f"{line}.rstrip('\\n')"),
    ]
    for step in pipeline[:-1]:
        expression = expression_of(step, value, item)
        match OPERATIONS[step[0]].kind:
            case Kind.FILTER:
                body = [f"    if {expression}:", f"        out.append({item})"]
            case Kind.MAP:
                body = [f"    out.append({expression})"]
            case _:
                lines.append(f"{value} = {expression}")
                continue
        lines += ["out = []", f"for {item} in {value}:", *body, f"{value} = out"]
    return "\n".join([*lines, f"answer = {final}", "sys.stdout.write(f'{answer}\\n')"])
