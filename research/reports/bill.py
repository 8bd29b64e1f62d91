"""What a training cost, counted in one way for every recipe: ``python -m research report cost``.

From ``metrics.jsonl`` and ``training.manifest.json`` of a training folder, and, where its data were sampled from a
model, the manifests of the commands that sampled and judged them: that part is paid once and belongs to the bill.

GPU-seconds are those in which GPUs are held, busy or not. Start-up, validation and checkpoints are left out.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, Positive
from cobalt.errors import InputError
from cobalt.records.jsonl import write_whole
from cobalt.records.manifest import file_sha256, manifest_path, recorded_run
from cobalt.records.training_run import METRICS_FILE
from cobalt.tables import Cell
from research.reports.learning import read_learning_log
from research.reports.page import Table, mean, table_of

GPU_S = "GPU-s"
COLLECTION, EARLIER = "collection", "earlier training"
"""Phases that are paid before the first step."""
PHASES = {
    "generation": "gen",
    "execution wait": "judging",  # after the passes of a synchronous step, so no part of its "gen"
    "log-probabilities": "old_log_prob",
    "reference": "ref",
    "update": "update_actor",
}
"""Phases that are timed as such (``timing_s/<name>``)."""
COUNTS = {
    "responses": ("cost/responses", "requests"),
    "prompt tokens": ("cost/prompt_tokens", "prompt_tokens"),
    "response tokens": ("cost/response_tokens", "completion_tokens"),
}
"""What else is counted: the metric that it is the sum of, and its name in manifests of commands that collect."""


@dataclass(frozen=True, kw_only=True)
class CostConfig(CommandConfig):
    """Write one record of what a training cost, in all and for each training example."""

    training: Path
    """Output folder of a training recipe."""
    collection: tuple[Path, ...] = ()
    """Outputs of the commands that collected its data (run_single_turn_vllm.py, run_multi_turn_vllm.py,
    eval_multi_turn.py); their manifests are read."""
    collection_gpus: Positive = 1
    """GPUs that each of these commands held."""
    earlier: Path | None = None
    """The record of the training that made the policy which this one starts from, if its cost belongs to the bill."""
    output: Path
    """The record (JSON)."""


@dataclasses.dataclass(frozen=True)
class Bill:
    """Costs of a training. ``examples``: prompts, each with all of its samples, over all steps."""

    examples: int
    gpu_seconds: Mapping[str, float]
    """By phase."""
    counts: Mapping[str, float]
    """By name, collection included."""
    collected: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    """GPU-seconds and counts of each command that collected; the name tells whether two bills hold the same one."""

    @property
    def all_gpu_seconds(self) -> float:
        return sum(self.gpu_seconds.values())

    @property
    def gpu_seconds_before(self) -> float:
        """Paid before the first step."""
        return sum(self.gpu_seconds.get(phase, 0.0) for phase in (COLLECTION, EARLIER))

    @property
    def gpu_seconds_per_example(self) -> float:
        return self.all_gpu_seconds / self.examples

    def after(self, earlier: "Bill") -> "Bill":
        """This training's bill with that of the one whose policy it starts from. What both collected is paid once."""
        both = [self.collected[name] for name in self.collected.keys() & earlier.collected.keys()]
        gpu_seconds = {**self.gpu_seconds, EARLIER: earlier.all_gpu_seconds - sum(one[GPU_S] for one in both)}
        counts = {
            name: value + earlier.counts[name] - sum(one[name] for one in both) for name, value in self.counts.items()
        }
        return Bill(self.examples + earlier.examples, gpu_seconds, counts, self.collected)


def main(config: CostConfig) -> None:
    metrics = config.training / METRICS_FILE
    manifests = [manifest_path(path) for path in config.collection]
    earlier = [] if config.earlier is None else [config.earlier]
    with recorded_run(
        "python -m research report cost", vars(config), [metrics, *manifests, *earlier], {config.output: {}}
    ):
        # the steps
        log = read_learning_log(metrics)
        counts = {name: log.total(metric) for name, (metric, _) in COUNTS.items()}
        gpu_seconds = {phase: log.gpu_seconds_of(f"timing_s/{name}") for phase, name in PHASES.items()}
        gpu_seconds["other"] = log.gpu_seconds - sum(gpu_seconds.values())

        # what came before them
        collected = {}
        for path in manifests:
            manifest = json.loads(path.read_text())
            if manifest["status"] != "done":
                raise InputError.at(path, None, "this command did not end")
            collected[f"{path.name}@{file_sha256(path)[:12]}"] = {
                GPU_S: manifest["wall_time_s"] * config.collection_gpus,
                **{name: manifest["counts"].get(counted, 0) for name, (_, counted) in COUNTS.items()},
            }
        for name in COUNTS:
            counts[name] += sum(one[name] for one in collected.values())
        if collected:
            gpu_seconds[COLLECTION] = sum(one[GPU_S] for one in collected.values())
        bill = Bill(log.examples, gpu_seconds, counts, collected)
        for path in earlier:
            bill = bill.after(read_bill(path))

        in_all = {GPU_S: bill.all_gpu_seconds, **bill.counts}
        record = {
            "examples": bill.examples,
            "gpu_seconds": bill.gpu_seconds,
            "in_all": in_all,
            "per_example": {name: value / bill.examples for name, value in in_all.items()},
            "collected": bill.collected,
        }
        write_whole(config.output, json.dumps(record, indent=2) + "\n")
    print(bill_table({config.training.name: [bill]}).to_markdown_section())


def read_bill(path: Path) -> Bill:
    """A record that ``main`` wrote. Raises ``InputError``."""
    try:
        record = json.loads(path.read_text())
        counts = {name: value for name, value in record["in_all"].items() if name != GPU_S}
        collected = {name: dict(one) for name, one in record["collected"].items()}  # numbers: of an earlier version
        return Bill(record["examples"], record["gpu_seconds"], counts, collected)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"no record of this version's python -m research report cost ({type(error).__name__})"
        raise InputError.at(path, None, told) from error


def bill_table(bills: Mapping[str, Sequence[Bill]], method: str | None = None) -> Table:
    """Bills of runs side by side, each the mean over its repetitions; of ``method`` also the ratio to the others."""
    phases = dict.fromkeys(phase for of_run in bills.values() for bill in of_run for phase in bill.gpu_seconds)
    shown: dict[str, Callable[[Bill], float]] = {
        "training examples": lambda bill: bill.examples,
        **{f"GPU-s: {phase}": lambda bill, phase=phase: bill.gpu_seconds.get(phase, 0.0) for phase in phases},
        "GPU-s in all": lambda bill: bill.all_gpu_seconds,
        "GPU-s per example": lambda bill: bill.gpu_seconds_per_example,
        # the paper's "training time", in GPU-seconds
        "GPU-s per example, without collection": lambda bill: (
            (bill.all_gpu_seconds - bill.gpu_seconds.get(COLLECTION, 0.0)) / bill.examples
        ),
    }
    for name in COUNTS:
        shown[name] = lambda bill, name=name: bill.counts[name]
        shown[f"{name}, per example"] = lambda bill, name=name: bill.counts[name] / bill.examples
    rows: list[Mapping[str, Cell]] = []
    for label, of_bill in shown.items() if bills else ():
        means = {name: mean([of_bill(bill) for bill in of_run]) for name, of_run in bills.items()}
        rows.append({"": label, **means})
        if label.startswith("GPU-s per example") and method in bills:
            ratios = {name: means[str(method)] / value for name, value in means.items()}
            rows.append({"": f"{label}: {method} / this run", **ratios})
    return table_of(
        "bill",
        "What training cost",
        "Means over repetitions. GPU-seconds in which GPUs were held, without start-up, validation and checkpoints; "
        "'collection' is what it took to sample and judge the data once, 'earlier training' all that was paid for the "
        "policy that training started from. An example is a prompt with all its samples.",
        rows,
    )
