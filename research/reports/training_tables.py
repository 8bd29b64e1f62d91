"""Tables of what training cost, what that bought, who shares it, and how the reward moved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from cobalt.records.training_run import EDGE_STEPS, edge_means
from cobalt.tables import PERCENT, Cell
from research.reports.bill import COLLECTION, GPU_S, Bill
from research.reports.learning import REWARD_PARTS, TURN_MEASURES, LearningLog
from research.reports.page import Table, mean, table_of
from research.reports.runs import Material

Curve = Sequence[tuple[float, float]]
"""Validations of one training: GPU-seconds paid before each, and problems solved in per cent."""
LEVEL_STEP = 5
"""Per cent between the levels of the table of what reaching them took."""


def cost_table(material: Material) -> Table:
    """Training cost from logs; empty if bills say it of all of them."""
    all_billed = material.logs.keys() <= material.bills.keys()
    return table_of(
        "cost",
        "Training cost",
        "From the step times of the logs (rollout, reward and update; no start-up, validation or checkpoints). An "
        "example is one prompt with all its samples. Means over repetitions; the last column is their sum. On a CPU "
        "run 'GPUs' counts processes.",
        [
            {
                "run": name,
                "repetitions": len(logs),
                "steps of each": ", ".join(str(log.timed_steps) for log in logs),
                "examples per step": logs[0].batch_size,
                "GPUs": logs[0].gpus,
                "s per step": mean([log.seconds / log.timed_steps for log in logs]),
                "s per example": mean([log.seconds / log.examples for log in logs]),
                "GPU-s per example": mean([log.gpu_seconds / log.examples for log in logs]),
                "GPU-s in all": sum(log.gpu_seconds for log in logs),
            }
            for name, logs in ({} if all_billed else material.logs).items()
        ],
    )


def ends_of(logs: Sequence[LearningLog], metric: str) -> tuple[float, float] | None:
    """Means over the first and the last steps, then over repetitions; None where nothing was logged."""
    series = [[value for _, value in log.series(metric)] for log in logs]
    ends = [edge_means(values) for values in series if values]
    return (mean([start for start, _ in ends]), mean([end for _, end in ends])) if ends else None


EDGES = f"Means over the first and the last {EDGE_STEPS} steps (half of a shorter training), then over repetitions."


def reward_table(material: Material) -> Table:
    """Mean reward parts at the start and at the end of training."""
    rows: list[Mapping[str, Cell]] = []
    for name, logs in material.logs.items():
        for part in REWARD_PARTS:
            if ends := ends_of(logs, part):
                rows.append({"run": name, "part": part.removeprefix("reward/"), "start": ends[0], "end": ends[1]})
    return table_of("rewards", "Reward parts over training", EDGES, rows)


def turns_table(material: Material) -> Table:
    """What responses do after how many programs, at the start and at the end of training."""
    rows: list[Mapping[str, Cell]] = []
    for name, logs in material.logs.items():
        for turn in sorted(set().union(*(log.turns for log in logs))):
            row: dict[str, Cell] = {"run": name, "programs before": turn}
            for measure in TURN_MEASURES:
                ends = ends_of(logs, f"turn_{turn}/{measure}")
                row[measure] = ends and " → ".join(f"{PERCENT * share:.1f}" for share in ends)
            rows.append(row)
    return table_of(
        "learning_by_turn",
        "Learning by turn",
        "Of the responses in training that follow so many programs, in per cent, at the start → at the end. Solved: "
        "all tests pass. Kept and broken: solved or not, of those that follow a solved program. Repaired: solved, of "
        f"the others. Repeated: the last program again. {EDGES}",
        rows,
    )


def reach_table(material: Material) -> Table:
    """GPU-seconds until a share of the validation problems was solved."""
    curves: dict[str, list[Curve]] = {}  # of each repetition of each run that was validated
    for name, logs in material.logs.items():
        bills = material.bills.get(name, [None] * len(logs))
        for log, bill in zip(logs, bills, strict=True):
            paid = bill.gpu_seconds_before if bill is not None else 0.0
            curve = [(paid + spent, PERCENT * share) for spent, share in log.validations()]
            if curve:
                curves.setdefault(name, []).append(curve)
    rows: list[Mapping[str, Cell]] = []
    each = [curve for of_run in curves.values() for curve in of_run]
    if each:  # levels from the one above the lowest start to the highest that any validation reached
        lowest = floor(min(curve[0][1] for curve in each) / LEVEL_STEP + 1) * LEVEL_STEP
        best = max(floor(max(share for curve in each for _, share in curve)), lowest)
        for level in range(lowest, best + 1, LEVEL_STEP):
            row: dict[str, Cell] = {"Pass@1 (%)": level}
            for name, of_run in curves.items():
                paid = [next((seconds for seconds, share in curve if share >= level), None) for curve in of_run]
                known = [seconds for seconds in paid if seconds is not None]
                some = f"reached by {len(known)} of {len(paid)}" if known else "not reached"
                row[name] = mean(known) if len(known) == len(paid) else some
            rows.append(row)
    unknown = [name for name in curves if name not in material.bills]
    missing = f" Training alone is counted for {', '.join(unknown)}: no 'cost' file was given." if unknown else ""
    return table_of(
        "reach",
        "GPU-seconds to reach a Pass@1 on the validation problems",
        "From the learning curves: paid up to the first validation that reaches the level, collection and earlier "
        "training included; mean over repetitions if all of them reach it, else how many do. Nothing is interpolated "
        "or extrapolated. A validation is one sample of each prompt in the validation file of the training: problems, "
        f"or contexts with programs too; only runs with the same file can be compared.{missing}",
        rows,
    )


def reuse_table(material: Material) -> Table:
    """What collecting costs a training that pays for it alone, and one that shares it; empty if none collected."""
    users = Counter(key for of_run in material.bills.values() for bill in of_run for key in bill.collected)

    def shares(bills: Sequence[Bill]) -> float:
        return mean([PERCENT * bill.gpu_seconds[COLLECTION] / bill.all_gpu_seconds for bill in bills])

    rows: list[Mapping[str, Cell]] = []
    for name, of_run in material.bills.items():
        alone = [bill for bill in of_run if bill.collected]
        if not alone:
            continue
        shared = []  # each pays its part of what was collected for several
        for bill in alone:
            part = sum(one[GPU_S] / users[key] for key, one in bill.collected.items())
            shared.append(replace(bill, gpu_seconds={**bill.gpu_seconds, COLLECTION: part}))
        sharing = sorted({users[key] for bill in alone for key in bill.collected})
        rows.append(
            {
                "run": name,
                "trainings": len(alone),
                "trainings that share": ", ".join(map(str, sharing)),
                "collection, GPU-s": mean([bill.gpu_seconds[COLLECTION] for bill in alone]),
                "share of the bill, alone (%)": shares(alone),
                "share of the bill, shared (%)": shares(shared),
                "GPU-s per example, alone": mean([bill.gpu_seconds_per_example for bill in alone]),
                "GPU-s per example, shared": mean([bill.gpu_seconds_per_example for bill in shared]),
            }
        )
    return table_of(
        "reuse",
        "Trajectories collected once, learned from by several trainings",
        "Alone: each training pays for all that was collected for it. Shared: what was collected is paid once and "
        "divided equally among the trainings of this report that learn from it, which are told by the commands' "
        "manifests in the bills. Means over repetitions.",
        rows,
    )
