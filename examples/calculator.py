"""Another domain in one file: word problems, answered by a calculation. README.md has the commands.

The sandbox is the calculator. The output that a test expects is a statement about the result: hints are public, and
shown as feedback; the result itself is hidden. This file brings problems and prompts (``python examples/calculator.py
FOLDER``), a student, the check of a statement (``--checker``) and a reward. The check runs in the sandbox, where there
is nothing but Python: whatever else is needed is imported inside the functions.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cobalt.completion import Completion, Message, Sampling
    from cobalt.training.scoring import Batch, Score

STORIES = {
    "apples": ("A shop has {a} bags of {b} apples and {c} single ones. How many apples are there?", "{a} * {b} + {c}"),
    "pens": ("There are {a} boxes with {b} pens each, and {c} pens are lost. How many are left?", "{a} * {b} - {c}"),
    "bus": ("A bus with {a} people takes on {b} more at each of {c} stops. How many are in it?", "{a} + {b} * {c}"),
}
PROMPTS = {
    "system": "You solve word problems with a calculator.",
    "instruction": "Answer with one line `print(CALCULATION)` in a ```python block.\n{question}",
    "feedback": "Correct the calculation.\nHere is the execution feedback:\n{feedback}",
    "all_passed": "The code has passed all public test cases: what is known of the result holds.",
    "no_program": "There is no ```python block with a calculation.",
}


def problems(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Problems with three hints and the result."""
    from cobalt.prompts import PromptSet, problem_instruction
    from cobalt.sandbox import TestCases

    rng, rows = random.Random(seed), []
    for place in range(number):
        story, calculation = list(STORIES.values())[place % len(STORIES)]
        values = {name: rng.randint(3, 9) for name in "abc"}
        question, result = story.format(**values), eval(calculation.format(**values))
        hints = [f"odd {result % 2}", f"digits {len(str(result))}", f"below {10 * (result // 10 + 1)}"]
        tests = TestCases(("", "", "", ""), (*hints, f"is {result}"))
        parts = {"test_cases": tests, "public_test_cases": tests.select([0, 1, 2])}
        parts["hidden_test_cases"] = tests.select([3])
        row = {"id": place, "difficulty": "EASY", "question": question}
        row["instruction"] = problem_instruction(question, prompts=PromptSet(**PROMPTS))
        rows.append({**row, **{name: part.to_json() for name, part in parts.items()}})
    return rows


def number(output: str) -> float:
    """The calculator's answer; infinite for what is none, as no result of a calculation is."""
    try:
        answer = float(output)
    except ValueError:
        return math.inf
    return math.inf if math.isnan(answer) else answer


def holds(output: str, expected: str) -> bool:
    """Whether the calculator's answer is as a test's statement says."""
    kind, _, value = expected.partition(" ")
    answer = number(output)
    if math.isinf(answer):
        return False
    known = {"odd": answer % 2, "digits": len(str(int(abs(answer)))), "is": answer}
    return answer < float(value) if kind == "below" else known[kind] == float(value)


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, batch: Batch | None = None
) -> Score:
    """1 for the result; otherwise a part of 0.5, the larger the nearer the calculator's answer comes to it."""
    from cobalt.extraction import extract_code
    from cobalt.sandbox import TestCases

    assert batch is not None, "our reward manager gives it"
    code, tests, near, rate = extract_code(solution_str), TestCases.parse(ground_truth), 0.0, 0.0
    if code is not None:
        result = await batch.execute(code, tests)
        rate, wanted = result.pass_rate or 0.0, float(tests.outputs_K[-1].removeprefix("is "))
        near = 1 / (1 + abs(number(result.outputs[-1]) - wanted) / max(wanted, 1))
    right = float(rate == 1)
    reward = right if right or batch.validate else 0.5 * near
    return {"score": reward, "acc": right, "pass_rate": rate, "reward_near": near}


class Student:
    """Stands for a model: mixes up the numbers or the operations, less often after feedback."""

    model_id, max_in_flight = "student", 8

    def __init__(self, model: str | None):
        """It needs no ``--model``."""

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        from cobalt.completion import FINISH_STOP, Completion

        rng, turns = random.Random(seed), len(messages) // 2
        question = messages[1]["content"]
        a, b, c = (int(word) for word in question.split() if word.isdigit())
        right = next(calculation for word, (_, calculation) in STORIES.items() if word in question)
        wrong = rng.choice(["{a} + {b} + {c}", "{a} * ({b} + {c})", "({a} + {b}) * {c}"])
        form = right if rng.random() < turns / 4 else wrong
        text = f"```python\nprint({form.format(a=a, b=b, c=c)})\n```"
        return Completion(text, 0, len(text.split()), FINISH_STOP)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/calculator.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompts.json").write_text(json.dumps(PROMPTS))
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems(12)))
