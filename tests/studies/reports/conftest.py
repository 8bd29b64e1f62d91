"""Result files of four named runs with known numbers, the trained ones with two training seeds."""

import random
from pathlib import Path

import pytest
from hacking_files import PROBLEMS, SAMPLES, TURNS, write_cases

from cobalt.records import write_jsonl

SKILL = {
    "base": (0.35, 0.03),
    "Cobalt": (0.5, 0.04),
    "Cobalt + perturbation": (0.48, 0.04),
    "SFT <start> & Cobalt": (0.52, 0.04),
}
HACKING = {"base": 0.1, "Cobalt": 0.3, "Cobalt + perturbation": 0.05, "SFT <start> & Cobalt": 0.2}


@pytest.fixture(scope="session")
def report_files(tmp_path_factory) -> list[str]:
    """Arguments of ``--files``."""
    folder = tmp_path_factory.mktemp("report")
    specs = []
    for name in SKILL:
        for repetition in range(1 if name == "base" else 2):
            generator = random.Random(f"{name}{repetition}")
            stem = f"{folder}/{len(specs)}"
            for kind, loss in (("clean", 0.0), ("perturbed", 0.15)):
                write_jsonl(f"{stem}.{kind}.jsonl", evaluation(generator, *SKILL[name], loss))
                specs.append(f"{name}:{kind}={stem}.{kind}.jsonl")
            specs += write_cases(name, Path(stem), generator, HACKING[name])
            if name != "base":
                Path(f"{stem}.log").write_text(training_log(generator))
                specs.append(f"{name}:log={stem}.log")
    return specs


def evaluation(generator: random.Random, start: float, step: float, loss: float) -> list[dict]:
    def rate(turn: int) -> float | None:
        if generator.random() < 0.01:
            return None
        return 1.0 if generator.random() < start + step * turn - loss else generator.choice([0.0, 0.5])

    return [
        {
            "id": number,
            "conversations": [[]] * SAMPLES,
            "all_pass_rates": [[rate(turn) for turn in range(TURNS)] for _ in range(SAMPLES)],
        }
        for number in range(PROBLEMS)
    ]


def training_log(generator: random.Random, steps: int = 40, seconds: float = 3.2) -> str:
    """As veRL prints it through Ray: the configuration, then one line per step."""
    lines = ["\x1b[36m(TaskRunner pid=77)\x1b[0m {'data': {'max_prompt_length': 1024, 'train_batch_size': 64,"]
    lines += [
        "\x1b[36m(TaskRunner pid=77)\x1b[0m  'trainer': {'n_gpus_per_node': 2,",
        "  'nnodes': 1, 'project_name': 'x'}}",
    ]
    for step in range(1, steps + 1):
        correct = -0.3 + 0.6 * step / steps + generator.gauss(0, 0.03)
        metrics = {
            "actor/pg_loss": "np.float64(0.012)",
            "reward/correct": correct,
            "reward/improve": 0.02 + generator.gauss(0, 0.004),
            "reward/format": -0.2 + 0.15 * step / steps,
            "reward/total": correct - 0.1,
            "reward/pass_rate": 0.3 + 0.3 * step / steps,
            "timing_s/step": seconds,
        }
        fields = " - ".join(f"{name}:{value}" for name, value in metrics.items())
        lines.append(f"\x1b[36m(TaskRunner pid=77)\x1b[0m step:{step} - {fields}")
    return "\n".join(lines) + "\n"
