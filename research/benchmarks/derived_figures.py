"""Figures that pages derive from several reports: the price of an example, and Cobalt over all trainings of a setting.

python -m research.benchmarks.derived_figures    writes them into the folders of their pages, and prints them
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from cobalt.records.jsonl import read_json
from cobalt.seeds import over_trainings
from cobalt.statistics import Estimate
from cobalt.tables import Cell
from research.reports.page import Table

RESULTS = ROOT / "research/results"
STUDY, QUESTIONS = RESULTS / "paper-in-miniature", RESULTS / "open-questions-h200"
TURNS = [f"turn {turn}" for turn in range(9)]
SEEDS = "last turn of each repetition"

CONTEXTS, EPOCHS = 5828, 2
"""Prompts cut from the study's trajectories (infrastructure.md trains on them), and the paper's epochs."""
COLLECTED_ON_A_GPU = "single-turn GRPO + Cobalt"
"""The arm that collected as many trajectories as Cobalt learns from, but on the GPU host."""
ONLINE = ("GRPO-MT", "VeRPO-MT")
PAPER = {"Cobalt": 4 * 16.9, "VeRPO-MT": 8 * 26.7}
"""GPU-seconds of training per example: GPUs times seconds."""
AGAIN = {
    **dict.fromkeys(("Cobalt", "m 4 (Cobalt again)", "KL 1e-3 (Cobalt again)"), "Cobalt"),
    "other reference": "Cobalt, other reference",
}
"""Runs of the open questions, and the run of the paper in miniature that has their setting; all trained apart."""


def tables_of(folder: Path) -> dict[str, Any]:
    """The tables of a report."""
    return read_json(folder / "report.json.gz")["tables"]


def price_table() -> Table:
    """What an example of Cobalt costs beside the online arms', by what is counted of its collection."""
    bill = {row.pop(""): row for row in tables_of(STUDY)["bill"]["rows"]}
    trained = bill["training examples"]["Cobalt"]
    training = bill["GPU-s per example, without collection"]["Cobalt"]
    online = [bill["GPU-s per example"][name] for name in ONLINE]
    on_gpu, on_cpu = (bill["GPU-s: collection"][name] for name in (COLLECTED_ON_A_GPU, "Cobalt"))

    def row(label: str, collection: float, examples: float) -> list[Cell]:
        in_all = training * examples + collection
        price = in_all / examples
        return [label, collection, examples, in_all, price, *(price / each for each in online)]

    rows = [
        row("training alone", 0.0, trained),
        row("with collection on a GPU", on_gpu, trained),
        row("with collection on two CPU cores", on_cpu, trained),
        row("with collection on a GPU, over the recipe's two epochs", on_gpu, float(EPOCHS * CONTEXTS)),
        ["the paper, training alone", None, None, None, PAPER["Cobalt"], None, PAPER["Cobalt"] / PAPER["VeRPO-MT"]],
    ]
    of_each = [f"{name}: {each:.3g} GPU-s" for name, each in zip(ONLINE, online, strict=True)]
    note = (
        f"Examples of the online arms, which collect nothing: {', '.join(of_each)}. Two epochs are {EPOCHS} times "
        f"{CONTEXTS:,} prompts, at the price of training alone that {trained:,.0f} examples had. The paper: seconds "
        "times GPUs."
    )
    of_online = (f"of {name}'s" for name in ONLINE)
    columns = ("counted", "collection, GPU-s", "examples", "in all, GPU-s", "GPU-s per example", *of_online)
    return Table("price", "Price of an example of Cobalt", note, columns, rows)


def sampled_table() -> Table:
    """Responses and tokens that Cobalt and the online arms had sampled at equal GPU-seconds."""
    bill = {row.pop(""): row for row in tables_of(STUDY)["bill"]["rows"]}
    rows: list[list[Cell]] = []
    for counted in ("responses", "response tokens", "prompt tokens", "GPU-s in all"):
        ours, *online = (bill[counted][name] for name in ("Cobalt", *ONLINE))
        rows.append([counted, ours, *online, *(ours / each for each in online)])
    columns = ("counted", "Cobalt", *ONLINE, *(f"Cobalt / {name}" for name in ONLINE))
    title = "Sampled at equal GPU-seconds, collection included"
    return Table("sampled", title, "Means over trainings.", columns, rows)


def last_turns(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Pass@1 at the last turn of each training in these rows of a report."""
    return [float(value) for row in rows for value in row[SEEDS].split(", ")]


def turn_means(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Pass@1 at each turn, the mean over the trainings in these rows of reports."""
    trainings = [len(last_turns([row])) for row in rows]
    return [statistics.fmean((row[turn]["value"] for row in rows), trainings) for turn in TURNS]


def welch(ours: Sequence[float], theirs: Sequence[float]) -> Estimate | None:
    """The difference of two means over trainings with Welch's 95 % interval; None for a single training."""
    if min(len(ours), len(theirs)) < 2:
        return None
    return over_trainings(ours, theirs)


def few_trainings(test_set: str) -> Table:
    """How far Cobalt's trainings of the study are ahead of each run's at the last turn."""
    runs = {row["run"]: last_turns([row]) for row in tables_of(STUDY)[f"pass1_{test_set}"]["rows"]}
    ours = runs.pop("Cobalt")
    return Table(
        f"few_{test_set}",
        f"Cobalt's trainings of the study beside each run's, {test_set} (points)",
        "Turn 8, over trainings alone: Welch's 95 % interval, Student's over the base, which is not trained.",
        ("over", "trainings", "turn 8"),
        [[name, len(theirs), over_trainings(ours, theirs)] for name, theirs in runs.items()],
    )


def all_trainings(test_set: str) -> Table:
    """Cobalt's Pass@1, the mean over all trainings with its setting, and how far that is ahead of the study's runs."""
    study, questions = (tables_of(folder)[f"pass1_{test_set}"]["rows"] for folder in (STUDY, QUESTIONS))
    runs = {row["run"]: [row] for row in sorted(study, key=lambda row: row["run"] != "Cobalt")}
    for row in questions:
        if AGAIN.get(row["run"]) in runs:
            runs[AGAIN[row["run"]]].append(row)
    last = {name: last_turns(of_run) for name, of_run in runs.items()}
    means = {name: turn_means(of_run) for name, of_run in runs.items()}

    ours, shown = last.pop("Cobalt"), ", ".join(map(str, last_turns(runs["Cobalt"])))
    rows: list[list[Cell]] = [["Cobalt", len(ours), *means["Cobalt"], None, shown, statistics.stdev(ours)]]
    for name, theirs in last.items():
        ahead = [mean - of_other for mean, of_other in zip(means["Cobalt"], means[name], strict=True)]
        rows.append([f"Cobalt - {name}", len(theirs), *ahead, welch(ours, theirs), None, None])
    return Table(
        f"all_{test_set}",
        f"Cobalt over all trainings of its setting, {test_set} (Pass@1 in %, differences in points)",
        "Trainings: those of this report, of the paper in miniature, and of the open questions' "
        f"{', '.join(map(repr, AGAIN))}. Welch's 95 % interval is over trainings alone, not over problems.",
        ("run", "trainings", *TURNS, "turn 8, Welch", "turn 8 of each", "standard deviation of turn 8"),
        rows,
    )


def files() -> dict[Path, list[Table]]:
    """The derived tables by the file that holds them."""
    return {
        STUDY / "price.json": [price_table(), sampled_table()],
        STUDY / "all-trainings.json": [
            *(all_trainings(test_set) for test_set in ("clean", "shifted")),
            *(few_trainings(test_set) for test_set in ("clean", "shifted")),
        ],
    }


if __name__ == "__main__":
    for path, tables in files().items():
        path.write_text(json.dumps({table.key: table.to_json() for table in tables}, indent=2) + "\n")
        print("\n\n".join(table.to_markdown_section() for table in tables), end="\n\n")
