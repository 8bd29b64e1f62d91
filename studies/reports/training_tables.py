"""Tables of what training cost, what that bought, who shares it, and how the reward moved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from cobalt.records.training_run import EDGE_STEPS, edge_means
from cobalt.tables import PERCENT, Cell, Table
from cobalt.training.training_log import REWARD_PARTS
from studies.reports.bill import COLLECTION, Bill
from studies.reports.material import Material, mean

Curve = Sequence[tuple[float, float]]
"""Validations of one training: GPU-seconds paid before each, and problems solved in per cent."""
LEVEL_STEP = 5
"""Per cent between the levels of the table of what reaching them took."""


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
        f"Means over the first and the last {EDGE_STEPS} steps (half of a shorter training), then over repetitions.",
        ("run", "part", "start", "end"),
        rows,
    )


def learning_curves(material: Material) -> dict[str, list[Curve]]:
    """Of each repetition of each run that was validated. They begin at what its bill says was paid before training."""
    curves: dict[str, list[Curve]] = {}
    for name, logs in material.logs.items():
        bills = material.bills.get(name, [None] * len(logs))
        for log, bill in zip(logs, bills, strict=True):
            paid = bill.gpu_seconds_before if bill is not None else 0.0
            curve = [(paid + seconds * log.gpus, PERCENT * share) for seconds, share in log.validations()]
            if curve:
                curves.setdefault(name, []).append(curve)
    return curves


def reach_table(material: Material) -> Table | None:
    """GPU-seconds until a share of the validation problems was solved."""
    curves = learning_curves(material)
    if not curves:
        return None
    unknown = [name for name in curves if name not in material.bills]
    missing = f" No bill says what came before the training of: {', '.join(unknown)}." if unknown else ""
    return Table(
        "reach",
        "GPU-seconds to reach a Pass@1 on the validation problems",
        "From the learning curves: paid up to the first validation that reaches the level, collection and earlier "
        "training included; mean over repetitions if all of them reach it, else how many do. Nothing is interpolated "
        "or extrapolated. A validation is one sample of each prompt in the validation file of the training: problems, "
        f"or contexts with programs too; only runs with the same file can be compared.{missing}",
        ("Pass@1 (%)", *curves),
        [[level, *(_reached(of_run, level) for of_run in curves.values())] for level in _levels(curves)],
    )


def _levels(curves: Mapping[str, Sequence[Curve]]) -> range:
    """From the one above the lowest start to the highest that any validation reached."""
    each = [curve for of_run in curves.values() for curve in of_run]
    lowest = floor(min(curve[0][1] for curve in each) / LEVEL_STEP + 1) * LEVEL_STEP
    best = max(share for curve in each for _, share in curve)
    return range(lowest, max(floor(best), lowest) + 1, LEVEL_STEP)


def _reached(of_run: Sequence[Curve], level: float) -> Cell:
    paid = [next((seconds for seconds, share in curve if share >= level), None) for curve in of_run]
    known = [seconds for seconds in paid if seconds is not None]
    if not known:
        return "not reached"
    return mean(known) if len(known) == len(paid) else f"reached by {len(known)} of {len(paid)}"


def reuse_table(material: Material) -> Table | None:
    """What collecting costs a training that pays for it alone, and one that shares it; None where none collected."""
    users = Counter(key for of_run in material.bills.values() for bill in of_run for key in bill.collected)
    rows: list[list[Cell]] = []
    for name, of_run in material.bills.items():
        alone = [bill for bill in of_run if bill.collected]
        if not alone:
            continue
        shared = [_shared(bill, users) for bill in alone]
        sharing = sorted({users[key] for bill in alone for key in bill.collected})
        rows.append(
            [
                name,
                len(alone),
                ", ".join(map(str, sharing)),
                mean([bill.gpu_seconds[COLLECTION] for bill in alone]),
                *(mean([_collection_percent(bill) for bill in bills]) for bills in (alone, shared)),
                *(mean([bill.gpu_seconds_per_example for bill in bills]) for bills in (alone, shared)),
            ]
        )
    if not rows:
        return None
    return Table(
        "reuse",
        "Trajectories collected once, learned from by several trainings",
        "Alone: each training pays for all that was collected for it. Shared: what was collected is paid once and "
        "divided equally among the trainings of this report that learn from it, which are told by the commands' "
        "manifests in the bills. Means over repetitions.",
        (
            "run",
            "trainings",
            "trainings that share",
            "collection, GPU-s",
            "share of the bill, alone (%)",
            "share of the bill, shared (%)",
            "GPU-s per example, alone",
            "GPU-s per example, shared",
        ),
        rows,
    )


def _shared(bill: Bill, users: Mapping[str, int]) -> Bill:
    """The bill of a training that pays its part of what was collected for ``users`` trainings."""
    collection = sum(seconds / users[key] for key, seconds in bill.collected.items())
    return replace(bill, gpu_seconds={**bill.gpu_seconds, COLLECTION: collection})


def _collection_percent(bill: Bill) -> float:
    return PERCENT * bill.gpu_seconds[COLLECTION] / bill.all_gpu_seconds
