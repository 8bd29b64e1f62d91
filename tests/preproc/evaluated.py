"""Makes evaluated multi-turn problems for tests."""

import json
from collections.abc import Sequence
from typing import Any

from cobalt.prompts import ALL_PASSED, feedback_message, first_messages

NUM_PUBLIC = 4
NUM_HIDDEN = 4


def json_tests(num_tests: int, first: int = 0) -> str:
    """``num_tests`` tests with different inputs and outputs."""
    numbers = range(first, first + num_tests)
    return json.dumps({"inputs": [f"{i}\n" for i in numbers], "outputs": [f"{i + 1}\n" for i in numbers]})


def conversation(problem: Any, trajectory: int, public_T: Sequence[float | None]) -> list[dict[str, str]]:
    """System, user, then (program, feedback) per turn; feedback says passed where the public rate is 1."""
    messages = first_messages(f"Problem {problem}: print the number after the given one.")
    for turn, public in enumerate(public_T):
        messages.append({"role": "assistant", "content": f"```python\nprint({trajectory}, {turn})\n```"})
        messages.append(
            feedback_message(ALL_PASSED if public == 1 else f"Input:\n{turn}\nExpected Output:\n{turn + 1}")
        )
    return messages


def evaluated(
    problem: Any,
    hidden_NT: Sequence[Sequence[float | None]],
    public_NT: Sequence[Sequence[float | None]] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """One evaluated problem; public rates default to the hidden ones."""
    public_NT = hidden_NT if public_NT is None else public_NT
    row = {
        "id": problem,
        "difficulty": "EASY",
        "question": "Print the number after the given one.",
        "instruction": f"Problem {problem}",
        "test_cases": json_tests(NUM_PUBLIC + NUM_HIDDEN),
        "public_test_cases": json_tests(NUM_PUBLIC),
        "hidden_test_cases": json_tests(NUM_HIDDEN, first=NUM_PUBLIC),
        "conversations": [conversation(problem, i, public_T) for i, public_T in enumerate(public_NT)],
        "public_pass_rates": [list(rates) for rates in zip(*public_NT, strict=True)],
        "all_pass_rates": [list(rates) for rates in hidden_NT],
    }
    return {**row, **fields}
