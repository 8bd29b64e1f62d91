"""Rows of every kind of file that the viewer reads, some with texts that try to get out of the page."""

import json
import random
from typing import Any

Row = dict[str, Any]
ATTACK = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
WORDS = ("sum", "of", "the", "values", "each", "line", "count", "prefix", "window", "because", "then", "check", "zero")
SYSTEM = {"role": "system", "content": "Solve it."}


def text_of(generator: random.Random, words: int) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(words))


def response_of(generator: random.Random, turn: int, words: int = 40) -> str:
    lines = [f"value_{number} = {generator.randrange(9)}" for number in range(12)]
    lines[turn] = f"print({generator.randrange(99)})  # {ATTACK if generator.random() < 0.1 else turn}"
    program = "\n".join(["import sys", *lines, "print(sys.stdin.read())"])
    return f"<think>\n{text_of(generator, words)}\n</think>\nThe program:\n```python\n{program}\n```\nThat is it."


def tests_of(pairs: list[tuple[str, str]]) -> str:
    return json.dumps({"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]})


def result_of(passing: list[bool]) -> Row:
    feedback = [
        f"Input:\n{k}\nProgram's Output:\n{k if ok else ATTACK}\nExpected Output:\n{k}" for k, ok in enumerate(passing)
    ]
    verdicts = ["passed" if ok else "wrong_answer" for ok in passing]
    return {"passing": passing, "feedback": feedback, "verdicts": verdicts, "infra_error": None}


def evaluated(
    number: int, samples: int, turns: int, generator: random.Random, gain: float = 0.25, words: int = 40
) -> Row:
    """A row of ``eval_multi_turn.py``; more programs are right from turn to turn."""
    pairs = [(str(k), str(k)) for k in range(3)]
    hardness = generator.random()
    passing_TN = [
        [[generator.random() < 1.1 - hardness + gain * turn for _ in range(3)] for _ in range(samples)]
        for turn in range(turns)
    ]
    raw_TN = [[response_of(generator, turn, words) for _ in range(samples)] for turn in range(turns)]
    first = [SYSTEM, {"role": "user", "content": f"Problem {number}"}]
    answer = "Fix it.\nHere is the execution feedback:\nInput:\n0\nProgram's Output:\n1\nExpected Output:\n0"
    conversations = [
        first
        + [
            message
            for turn in range(turns)
            for message in (
                {"role": "assistant", "content": raw_TN[turn][sample].partition("</think>")[2]},
                {"role": "user", "content": answer},
            )
        ]
        for sample in range(samples)
    ]
    public_TN = [[sum(passing) / 3 for passing in passing_N] for passing_N in passing_TN]
    usage = {"prompt_tokens": 300, "completion_tokens": 120, "finish_reason": "stop", "cost": None}
    return {
        "id": f"p{number}",
        "difficulty": ("EASY", "MEDIUM", "HARD")[int(2.99 * hardness)],
        "question": f"Task {number}: {text_of(generator, 30)} {ATTACK}",
        "public_test_cases": tests_of(pairs),
        "hidden_test_cases": tests_of([("7", "7")]),
        "conversations": conversations,
        "raw_responses": raw_TN,
        "public_pass_rates": public_TN,
        "public_exec_results": [[result_of(passing) for passing in passing_N] for passing_N in passing_TN],
        "usage": [[usage] * samples] * turns,
        "feedback_tests": "public",
        "input_hash": "0" * 16,
        "all_pass_rates": [
            [float(all(passing_TN[turn][sample])) * generator.choice((1, 1, 1, 0.5)) for turn in range(turns)]
            for sample in range(samples)
        ],
    }


def stopped(turns: int) -> Row:
    """A problem whose one conversation ``--stop_at_success`` ended after turn 1, of ``turns``."""
    row = evaluated(0, 1, turns, random.Random(0))
    passing_T = [turn > 0 for turn in range(turns)]
    row["raw_responses"][2:] = [[""]] * (turns - 2)
    row["public_pass_rates"] = [[float(passing)] for passing in passing_T]
    row["public_exec_results"] = [[result_of([passing] * 3)] for passing in passing_T]
    return {**row, "all_pass_rates": [[float(passing) for passing in passing_T]], "stop_at_success": True}


def evaluated_file(problems: int, samples: int = 4, turns: int = 4, seed: int = 0, **options: Any) -> list[Row]:
    generator = random.Random(seed)
    return [evaluated(number, samples, turns, generator, **options) for number in range(problems)]


def single_turn(number: int) -> Row:
    """A row of ``run_single_turn_*.py``: the second sample met an infrastructure failure."""
    failed = {"passing": [False], "feedback": [""], "verdicts": ["infra_error"], "infra_error": "no answer"}
    tests = tests_of([("1", "1")])
    responses, results = [response_of(random.Random(number), 0), ""], [result_of([True]), failed]
    return {"id": number, "question": "q", "test_cases": tests, "responses": responses, "exec_results": results}


def hacking_case(number: int, hard_coded: bool) -> Row:
    """A row of ``extract_turn_level_errors.py``."""
    return {
        "id": number,
        "question": f"Task {number}",
        "trajectory": 0,
        "turn": 2,
        "previous_code": "print(input())",
        "current_code": "x = input()\nprint('8' if x == '7' else x)",
        "patch": "",
        "feedback": "Input:\n7\nProgram's Output:\n7\nExpected Output:\n8",
        "all_acc": 0.5,
        "public_all_acc": 1.0,
        "survives": True,
        "wrong_test": {"input": "7", "output": "8"},
        "signal": {"static": {}, "dynamic": {"changed_share": 0.25}, "hard_coded": hard_coded},
    }


def dumped(turn: int, score: float, infra: float = 0.0) -> Row:
    """A line of veRL's ``{step}.jsonl`` with our reward parts: a response after ``turn`` feedbacks."""
    context = "system\nSolve it.\nuser\nHere is the problem you need to solve. Remember, your program should read from "
    context += "stdin and write to stdout:\nPrint the number.\nassistant\n"
    for number in range(turn):
        context += f"Hm.\n```python\nprint({number})\n```\nuser\nFix it.\nHere is the execution feedback:\nInput:\n5"
        context += f"\nProgram's Output:\n{number}\nExpected Output:\n5\nassistant\n"
    output = "<think>\nx\n</think>\n```python\nprint(input())\n```"
    parts = {"reward_correct": score, "reward_improve": 0.0, "reward_format": 0.0}
    scores = {
        "score": score,
        "step": 1,
        "acc": float(score == 1),
        "pass_rate": max(score, 0.0),
        **parts,
        "infra": infra,
    }
    return {"input": context, "output": output, **scores, "cost_reward_runs": 0.25}
