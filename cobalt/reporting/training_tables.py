"""Tables of what training cost and how its reward moved."""

from cobalt.records.training_run import EDGE_STEPS, edge_means
from cobalt.reporting.material import Material, mean
from cobalt.reporting.training_log import REWARD_PARTS
from cobalt.tables import Cell, Table


def cost_table(material: Material) -> Table | None:
    """Training cost from logs."""
    if not material.logs:
        return None
    rows: list[list[Cell]] = []
    for name, logs in material.logs.items():
        rows.append(
            [
                name,
                len(logs),
                ", ".join(str(log.timed_steps) for log in logs),
                logs[0].batch_size,
                logs[0].gpus,
                mean([log.seconds / log.timed_steps for log in logs]),
                mean([log.seconds_per_example for log in logs]),
                mean([log.gpu_seconds_per_example for log in logs]),
                sum(log.seconds * log.gpus for log in logs),
            ]
        )
    return Table(
        "cost",
        "Training cost",
        "From the step times of the logs (rollout, reward and update; no start-up, validation or checkpoints). An "
        "example is one prompt with all its samples. Means over repetitions; the last column is their sum. On a CPU "
        "run 'GPUs' counts processes.",
        (
            "run",
            "repetitions",
            "steps of each",
            "examples per step",
            "GPUs",
            "s per step",
            "s per example",
            "GPU-s per example",
            "GPU-s in all",
        ),
        rows,
    )


def reward_table(material: Material) -> Table | None:
    """Mean reward parts at the start and at the end of training."""
    rows: list[list[Cell]] = []
    for name, logs in material.logs.items():
        for part in REWARD_PARTS:
            series = [[value for _, value in log.series(part)] for log in logs]
            ends = [edge_means(values) for values in series if values]
            if ends:
                rows.append([name, part.removeprefix("reward/"), *map(mean, zip(*ends, strict=True))])
    if not rows:
        return None
    return Table(
        "rewards",
        "Reward parts over training",
        f"Means over the first and the last {EDGE_STEPS} steps, then over repetitions.",
        ("run", "part", "start", "end"),
        rows,
    )
