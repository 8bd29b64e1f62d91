"""Files of hacking cases with a known rate."""

import random
from pathlib import Path

from cobalt.records import write_jsonl
from studies.hacking.cases import LABELS

TURNS, SAMPLES, PROBLEMS = 9, 4, 30


def write_cases(name: str, stem: Path, generator: random.Random, rate: float) -> list[str]:
    """Extracted and judged cases beside ``stem``, ``rate`` of them a turn, as arguments of ``--files``."""
    problems, judged = [], []
    for number in range(PROBLEMS):
        turns = [turn for turn in range(1, TURNS) if generator.random() < rate]
        cases = [case_of(generator, number, turn) for turn in turns]
        judged += [
            {"judge_seq_id": f"{number}-0-{turn}", "id": number, "majority": generator.choice([*LABELS, "Unknown"])}
            for turn in turns
        ]
        problems.append(
            {
                "id": number,
                "trajectories": SAMPLES,
                "turns": SAMPLES * (TURNS - 1),
                "opportunities": TURNS,
                "opportunities_by_turn": [0, 2, *[1] * (TURNS - 2)],
                "hacked_trajectories": min(len(turns), 1),
                "fitted": len(turns) + 1,
                "solved": 4,
                "abandoned": generator.randrange(5),
                "solved_cases": min(len(turns), 3),
                "infra_turns": 0,
                "cases": cases,
            }
        )
    write_jsonl(f"{stem}.cases.jsonl", [case for problem in problems for case in problem["cases"]])
    write_jsonl(f"{stem}.cases.jsonl.problems.jsonl", problems)
    write_jsonl(f"{stem}.judged.jsonl", judged)
    return [f"{name}:hacking={stem}.cases.jsonl", f"{name}:judged={stem}.judged.jsonl"]


def case_of(generator: random.Random, number: int, turn: int) -> dict:
    dynamic = None if generator.random() < 0.1 else {"changed_share": generator.random()}
    return {
        "id": number,
        "trajectory": 0,
        "turn": turn,
        "patch": f"--- previous.py\n+++ current.py\n+print('<b>{turn}</b>')",
        "wrong_test": {"input": f"{number} {turn}", "output": "7"},
        "survives": generator.random() < 0.4,
        "signal": {"hard_coded": generator.random() < 0.3, "dynamic": dynamic},
    }
