"""Pipelines as values and as Python programs.

A pipeline is a tuple of steps ``(operation name, constant or None)`` whose last step is final. ``run`` evaluates it
directly, ``write_program`` writes it as one of several programs that differ in structure and agree in behaviour.
"""

import json
import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any

from studies.minicode.operation import Domain, Kind, Operation
from studies.minicode.operations import OPERATIONS

FN_NAME = "solve"
"""The function that the wider part's problems ask for."""
Step = tuple[str, int | None]
Pipeline = tuple[Step, ...]


class Variant(str, Enum):
    """Structures that a solution can have."""

    SCRIPT = "script"
    FUNCTION = "function"
    LOOPS = "loops"


def domain_of(pipeline: Pipeline) -> Domain:
    """The domain that a pipeline works on."""
    return OPERATIONS[pipeline[-1][0]].domain


def with_constant(text: str, constant: int | None) -> str:
    """Fill a phrase, plan or expression."""
    return text.replace("{c}", str(constant))


def plan_of(step: Step) -> str:
    """The short name of a step in a policy's thinking."""
    return with_constant(OPERATIONS[step[0]].plan, step[1])


def expression_of(step: Step, value: str = "A", item: str = "x") -> str:
    """The step's Python expression over the given variable names."""
    text = with_constant(OPERATIONS[step[0]].expression, step[1])
    return re.sub(r"\bx\b", item, re.sub(r"\bA\b", value, text))


@lru_cache(maxsize=4096)
def step_function(step: Step) -> Callable[[Any], Any]:
    """The step as a function of the whole value (a list of ints, or a text)."""
    expression = expression_of(step)
    kind = OPERATIONS[step[0]].kind
    if kind is Kind.FILTER:
        expression = f"[x for x in A if {expression}]"
    elif kind is Kind.MAP:
        expression = f"[{expression} for x in A]"
    return eval(f"lambda A: {expression}", {})


def read_input(text: str, domain: Domain) -> Any:
    """What a program makes of its input line."""
    return [int(word) for word in text.split()] if domain is Domain.NUMBERS else text


def run(pipeline: Pipeline, text: str) -> str:
    """The output of the pipeline's program on an input line, without the last newline."""
    return str(_value_of(pipeline, read_input(text, domain_of(pipeline))))


def call_of(pipeline: Pipeline, text: str) -> tuple[str, str]:
    """Arguments and value, as JSON, of the call of the pipeline's function that stands for an input line."""
    argument = read_input(text, domain_of(pipeline))
    return json.dumps(argument), json.dumps(_value_of(pipeline, argument))


def _value_of(pipeline: Pipeline, value: Any) -> Any:
    for step in pipeline:
        value = step_function(step)(value)
    return value


def write_function(pipeline: Pipeline) -> str:
    """The function ``FN_NAME`` alone."""
    return "\n".join(_function(pipeline)[:-1])


def write_program(pipeline: Pipeline, variant: Variant) -> str:
    """A complete stdin to stdout program."""
    writer = {Variant.SCRIPT: _script, Variant.FUNCTION: _function, Variant.LOOPS: _loops}[variant]
    return "\n".join(writer(pipeline))


def _comprehensions(pipeline: Pipeline, value: str, item: str) -> list[str]:
    lines = []
    for step in pipeline[:-1]:
        kind, expression = _kind(step), expression_of(step, value, item)
        if kind is Kind.FILTER:
            expression = f"[{item} for {item} in {value} if {expression}]"
        elif kind is Kind.MAP:
            expression = f"[{expression} for {item} in {value}]"
        lines.append(f"{value} = {expression}")
    return lines


def _kind(step: Step) -> Kind:
    operation: Operation = OPERATIONS[step[0]]
    return operation.kind


def _script(pipeline: Pipeline) -> list[str]:
    numbers = domain_of(pipeline) is Domain.NUMBERS
    value = "a" if numbers else "s"
    read = "list(map(int, input().split()))" if numbers else "input()"
    return [f"{value} = {read}", *_comprehensions(pipeline, value, "x"), f"print({expression_of(pipeline[-1], value)})"]


def _function(pipeline: Pipeline) -> list[str]:
    numbers = domain_of(pipeline) is Domain.NUMBERS
    value = "nums" if numbers else "text"
    read = "[int(w) for w in input().split()]" if numbers else "input()"
    body = [*_comprehensions(pipeline, value, "v"), f"return {expression_of(pipeline[-1], value, 'v')}"]
    return [f"def {FN_NAME}({value}):", *(f"    {line}" for line in body), f"print({FN_NAME}({read}))"]


def _loops(pipeline: Pipeline) -> list[str]:
    numbers = domain_of(pipeline) is Domain.NUMBERS
    value = "vals" if numbers else "line"
    line = "sys.stdin.readline()"
    read = f"[int(w) for w in {line}.split()]" if numbers else f"{line}.rstrip('\\n')"
    lines = ["import sys", f"{value} = {read}"]
    for step in pipeline[:-1]:
        kind, expression = _kind(step), expression_of(step, value, "t")
        if kind is Kind.FILTER:
            loop = [f"    if {expression}:", "        out.append(t)"]
        elif kind is Kind.MAP:
            loop = [f"    out.append({expression})"]
        else:
            lines.append(f"{value} = {expression}")
            continue
        lines += ["out = []", f"for t in {value}:", *loop, f"{value} = out"]
    return [*lines, f"answer = {expression_of(pipeline[-1], value, 't')}", "sys.stdout.write(f'{answer}\\n')"]
