"""Files of runs with known numbers, and the report that is made of them."""

import json
import random
from pathlib import Path
from typing import Any

from test_bill import GPUS, step, write_training

from cobalt.hacking.cases import LABELS
from cobalt.records import write_jsonl
from research.reports.bill import CostConfig
from research.reports.bill import main as write_bill
from research.reports.make_report import ReportConfig, make_report

VALIDATION = "val-core/code_taco_verified/acc/mean@1"
TURNS, PROBLEMS, HACKED_PROBLEMS, SAMPLES = 9, 8, 30, 4
FLAGS: dict[str, Any] = {
    "baseline": "base",
    "method": "Cobalt",
    "pairs": ("GRPO-MT=single-turn GRPO",),
}
START = {"base": 0.2, "single-turn GRPO": 0.5, "Cobalt": 0.6, "GRPO-MT": 0.5}
SECONDS = 19 * GPUS
"""GPU-seconds of a step of ``test_bill.step``."""


def tables_of(folder: Path, *files: str, **flags: Any) -> dict:
    """The tables of the report on ``files``, which is made in ``folder``/out."""
    make_report(ReportConfig(files=files, output_dir=folder / "out", **flags))
    return json.loads((folder / "out" / "report.json").read_text())["tables"]


def write_evaluation(path: Path, solved_PT: list[list[int]], same_programs: bool = False) -> Path:
    """One sample per problem, whose programs are all the same or all different."""
    rows = []
    for number, solved_T in enumerate(solved_PT):
        numbers = [0 if same_programs else turn for turn in range(len(solved_T))]
        messages = [{"role": "assistant", "content": f"```python\nprint({value})\n```"} for value in numbers]
        rates = [float(value) for value in solved_T]
        rows.append({"id": number, "conversations": [messages], "all_pass_rates": [rates]})
    write_jsonl(path, rows)
    return path


def write_scores(path: Path, start: float, seed: str, turns: int = TURNS) -> Path:
    generator = random.Random(seed)
    return write_evaluation(
        path, [[int(generator.random() < start + 0.04 * t) for t in range(turns)] for _ in range(PROBLEMS)]
    )


def write_seed(folder: Path, name: str, seed: int, collection: tuple[Path, ...]) -> list[str]:
    """Files of one seed; ``collection`` is shared."""
    folder.mkdir()
    kinds = {"clean": (0, TURNS), "shifted": (0.2, TURNS), "perturbed": (0.2, 3), "control": (0, 3)}
    files = {
        kind: write_scores(folder / f"{kind}.jsonl", START[name] - loss, f"{name}{kind}{seed}", turns)
        for kind, (loss, turns) in kinds.items()
    }
    specs = [f"{name}:{kind}={path}" for kind, path in files.items()]
    specs += write_cases(name, folder / "x", random.Random(f"{name}{seed}"), 0.2)
    if name == "base":
        return specs
    shares = [0.25, 0.3 + 0.1 * seed, 0.5]
    steps = [{"step": 0, VALIDATION: shares[0]}]
    by_turn = {"turn_0/solved": 0.2, "turn_1/solved": 0.4, "turn_1/kept": 0.5, "turn_1/broken": 0.5}
    steps += [
        step(
            number,
            **{VALIDATION: shares[number], "reward/correct": 0.1 * number, **by_turn, "turn_1/repaired": 0.1 * number},
        )
        for number in (1, 2)
    ]
    write_training(folder / "training", steps)
    write_bill(CostConfig(training=folder / "training", collection=collection, output=folder / "cost.json"))
    return [*specs, f"{name}:log={folder}/training/metrics.jsonl", f"{name}:cost={folder}/cost.json"]


def write_cases(name: str, stem: Path, generator: random.Random, rate: float) -> list[str]:
    """Extracted and judged cases beside ``stem``, ``rate`` of them a turn, as arguments of ``--files``."""
    problems, judged = [], []
    for number in range(HACKED_PROBLEMS):
        turns = [turn for turn in range(1, TURNS) if generator.random() < rate]
        cases = [case_of(generator, number, turn) for turn in turns]
        judged += [
            {"judge_seq_id": f"{number}-0-{turn}", "id": number, "majority": generator.choice([*LABELS, "Unknown"])}
            for turn in turns
        ]
        counts = {"trajectories": SAMPLES, "turns": SAMPLES * (TURNS - 1), "opportunities": TURNS, "infra_turns": 0}
        counts |= {"opportunities_by_turn": [0, 2, *[1] * (TURNS - 2)], "hacked_trajectories": min(len(turns), 1)}
        counts |= {"fitted": len(turns) + 1, "solved": 4, "abandoned": generator.randrange(5)}
        problems.append({"id": number, **counts, "solved_cases": min(len(turns), 3), "cases": cases})
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
        "survives": generator.random() < 0.4,
        "signal": {"hard_coded": generator.random() < 0.3, "dynamic": dynamic},
    }
