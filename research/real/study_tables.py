#!/usr/bin/env python3
"""Tables and figure of STUDY.md from ``study/``, or those of ``study-0.5b/``: counts by problem and turn, and costs.

python research/real/study_tables.py                      prints the tables, draws study/submitted.{png,svg}
python research/real/study_tables.py --study study-0.5b   prints those of the smaller model
python research/real/study_tables.py --collect OUT        first takes counts and costs of the arms that have folders of
                                                           study.py there; those of the others stay
"""

import argparse
import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from cobalt.cli.entry import exit_codes
from cobalt.errors import InputError
from cobalt.evaluation.files import ProblemScores, counts_path, read_evaluation, read_evaluations, write_counts
from cobalt.figures import FULL, Line, finished, new_figure, styled
from cobalt.records.jsonl import read_json
from cobalt.records.training_run import METRICS_FILE, read_metrics
from cobalt.statistics import Estimate, ratio_estimate
from cobalt.tables import Cell, in_percent, markdown_table, show
from cobalt.training.training_log import SAVE_TIME, STEP_TIME
from research.figures import METHODS, VARIANT, bars_of
from research.reports.p_values import holm
from research.seeds import Resampled, hierarchical_rate

FOLDER = Path(__file__).with_name("study")
COST_FILE, HACKING_FILE, LABELS_FILE = "cost.json", "hacking.json", "hacking_labels.json"
STAGES_FILE = "stages.json"
"""Seconds of each stage by arm and seed; ``before``: of those that all arms have in common."""
STAGES = {
    "train": "training",
    "merge": "merge",
    "test-asked": "test problems, with the server's start",
    "test-hidden": "hidden tests",
}
"""Name in study.py: column."""
TEACHER_FILE = "feedback_teacher.json"
"""By training, of each step: some of its metrics."""
TEACHERS = {"cobalt-1": "Cobalt", "cobalt_sdpo-0": "half feedback as teacher", "sdpo-0": "feedback alone"}
TEACHER_STEPS = (1, 4, 8, 13)
ARMS = {
    "base": "base",
    "rft": "RFT",
    "rft_3e-6": "RFT at 3e-6",
    "single_turn": "single-turn GRPO",
    "single_turn_21": "single-turn GRPO, 21 steps",
    "grpo_online": "GRPO-MT",
    "grpo_online_on": "GRPO-MT, going on after success",
    "grpo_online_12": "GRPO-MT, 12 steps",
    "verpo_online": "VeRPO-MT",
    "dpo": "DPO",
    "cobalt": "Cobalt",
    "cobalt_21": "Cobalt, 21 steps",
    "repairing": "Cobalt, `--keep 0`",
    "rft_cobalt": "RFT, then Cobalt",
    "wrong_10": "Cobalt, a tenth with wrong tests",
    "wrong_25": "Cobalt, a quarter with wrong tests",
    "cobalt_sdpo": "Cobalt, a tenth feedback as teacher",
    "sdpo": "feedback as teacher alone",
}
"""Name of the files: label."""
SMALL = Path(__file__).with_name("study-0.5b")
STUDIES = {
    FOLDER: [arm for arm in ARMS if "sdpo" not in arm],
    SMALL: [
        *("base", "rft", "single_turn", "grpo_online", "dpo", "cobalt"),
        *("wrong_10", "wrong_25", "cobalt_sdpo", "sdpo"),
    ],
}
"""Folder: arms."""
RATES = {
    FOLDER: {
        "rft_1e-6": ("RFT", "1e-6"),
        "rft_3e-6": ("RFT", "3e-6"),
        "rft": ("RFT", "1e-5"),
        "single_turn_1e-6": ("single-turn GRPO", "1e-6"),
        "single_turn": ("single-turn GRPO", "3e-6"),
        "single_turn_1e-5": ("single-turn GRPO", "1e-5"),
        "cobalt_1e-6": ("Cobalt", "1e-6"),
        "cobalt": ("Cobalt", "3e-6"),
        "cobalt_1e-5": ("Cobalt", "1e-5"),
        "grpo_online_1e-6": ("GRPO-MT", "1e-6"),
        "grpo_online": ("GRPO-MT", "3e-6"),
        "grpo_online_1e-5": ("GRPO-MT", "1e-5"),
        "grpo_online_3e-5": ("GRPO-MT", "3e-5"),
        "verpo_online_1e-6": ("VeRPO-MT", "1e-6"),
        "verpo_online": ("VeRPO-MT", "3e-6"),
        "verpo_online_1e-5": ("VeRPO-MT", "1e-5"),
        "verpo_online_3e-5": ("VeRPO-MT", "3e-5"),
    },
    SMALL: {
        "rft_3e-6": ("RFT", "3e-6"),
        "rft": ("RFT", "1e-5"),
        "rft_3e-5": ("RFT", "3e-5"),
        "rft_long": ("RFT, 10 epochs", "1e-5"),
        "single_turn_1e-6": ("single-turn GRPO", "1e-6"),
        "single_turn": ("single-turn GRPO", "3e-6"),
        "single_turn_1e-5": ("single-turn GRPO", "1e-5"),
        "single_turn_3e-5": ("single-turn GRPO", "3e-5"),
        "cobalt_1e-6": ("Cobalt", "1e-6"),
        "cobalt": ("Cobalt", "3e-6"),
        "cobalt_1e-5": ("Cobalt", "1e-5"),
        "cobalt_3e-5": ("Cobalt", "3e-5"),
        "dpo_3e-7": ("DPO", "3e-7"),
        "dpo": ("DPO", "1e-6"),
        "dpo_3e-6": ("DPO", "3e-6"),
    },
}
"""Folder: name in study.py, which is the arm's at its own learning rate: arm, rate."""
RATE_FILE = "rates/{}.{}.counts.json.gz"
"""Of a name, and of the problems: dev, or test where the name is no arm's."""
LONG_FILE = "{}.long.counts.json.gz"
"""Of an arm: conversations that go on after success."""
PARTLY_FILE = "partly/{}.counts.json.gz"
PARTLY = {
    "cobalt": "Cobalt, another training",
    "wrong_10": ARMS["wrong_10"],
    "wrong_25": ARMS["wrong_25"],
}
"""Trainings that were asked a part of the test problems, for lack of time: label."""
ONLINE = ("single_turn", "single_turn_21", "grpo_online", "grpo_online_on", "grpo_online_12", "verpo_online")
"""Arms that do not learn from stored conversations."""
SECONDS_OF = {"rft_3e-6": "rft", "single_turn_21": "single_turn", "cobalt_21": "cobalt"}
"""Arm that shared its GPU: the one whose steps are as long, and whose training had a GPU alone."""
COMPARED = ("rft", "grpo_online")
"""With Cobalt: the family of the primary test."""
LABELLED = ("base", "rft", "single_turn", "grpo_online", "cobalt")
DRAWN = (*LABELLED, "rft_3e-6", "single_turn_21", "cobalt_21")
MBPP_PLUS_FILE = "mbpp_plus.json"
"""Ids of MBPP's problems that EvalPlus has kept (its version of 16 November 2023)."""
SETS = {"mbpp": "other MBPP", "humaneval": "HumanEval", "leetcode": "LeetCode"}
"""Beginning of an id: label. Other problems read stdin."""
MBPP_PLUS, STDIN = "MBPP+", "stdin"
ALONE = "'kv_gib': 'None'"
"""In the settings of an arm with a GPU of its own."""
SUMMARY = "cases.jsonl.summary.json"
HACKING = {
    "right program given up": "right_program_abandoned",
    "wrong test fitted": "wrong_test_fitted",
    "conversations with hacking": "hacked_trajectories",
}
"""Column: name of a rate of extract_turn_level_errors.py."""
READ_AS = ("hard coding", "logic overfitting", "semantic drifting", "repair")
"""Labels of turns whose changed program passes the wrong test; the first three are the paper's kinds of hacking."""
DODGE = 0.06
"""Programs between the arms of the left panel."""
LABEL_SHIFTS = {
    "rft": -1,
    "grpo_online": -3,
    "base": -9,
    "rft_3e-6": -5,
    "single_turn": -5,
    "cobalt_21": -4,
    "single_turn_21": 5,
}
"""In points: these end close to each other."""
LAST = 2
"""Turn of the primary endpoint."""

Scores = Mapping[str, Sequence[Sequence[ProblemScores]]]
Costs = Mapping[str, Sequence[Mapping[str, float]]]
"""Both by arm and seed."""


@cache
def mbpp_plus() -> frozenset[str]:
    return frozenset(json.loads((FOLDER / MBPP_PLUS_FILE).read_text()))


def set_of(problem: ProblemScores) -> str:
    id_ = str(problem.id)
    return MBPP_PLUS if id_ in mbpp_plus() else SETS.get(id_.partition("-")[0], STDIN)


def collect(out: Path, folder: Path) -> None:
    """Write into ``folder`` the counts of what ``out`` has folders of, and what the arms' trainings cost."""
    arms = STUDIES[folder]
    files = [(f"{arm}.counts.json.gz", arm, "test") for arm in arms]
    files += [(LONG_FILE.format(arm), arm, "long") for arm in arms]
    for name in ("base", *RATES[folder]):
        test_sets = ("dev",) if name in arms else ("dev", "test")
        files += [(RATE_FILE.format(name, test_set), name, test_set) for test_set in test_sets]
    counted = [(*place, seeds) for place in files if (seeds := asked(out, *place[1:]))]
    judged = {arm: seeds for arm in arms if (seeds := holding(out, arm, SUMMARY))}
    if not counted and not judged:
        raise InputError(f"--collect {out}: no folder of study.py for any of {', '.join(arms)}")
    for file, name, test_set, seeds in counted:
        keep_counts(folder / file, name, test_set, seeds)
    costs: dict[str, list[dict[str, float]]] = {}
    stages: dict[str, list[dict[str, int]]] = {}
    for arm in arms:
        if seeds := asked(out, arm, "test"):
            if trainings := [seed for seed in seeds if (seed / "training").is_dir()]:
                costs[arm] = [cost_of(seed) for seed in trainings]
            stages[arm] = [{file.name: int(file.read_text()) for file in sorted(seed.glob("done/*"))} for seed in seeds]
    summaries = {arm: [read_json(seed / SUMMARY) for seed in seeds] for arm, seeds in judged.items()}
    for name, found in ((COST_FILE, costs), (STAGES_FILE, stages), (HACKING_FILE, summaries)):
        if (file := folder / name).exists():
            file.write_text(json.dumps(json.loads(file.read_text()) | found, indent=1) + "\n")


def asked(out: Path, name: str, test_set: str) -> list[Path]:
    """The folders of a name's seeds in which these problems are counted."""
    return holding(out, name, counts_path(Path(f"{test_set}.jsonl")).name)


def holding(out: Path, name: str, file: str) -> list[Path]:
    """The folders of a name's seeds that hold this file."""
    return [seed for seed in sorted(out.glob(f"{name}-[0-9]*")) if (seed / file).exists()]


def keep_counts(path: Path, arm: str, test_set: str, seeds: Sequence[Path]) -> None:
    path.parent.mkdir(exist_ok=True)
    plain = path.with_suffix("")
    write_counts(plain, arm, test_set, [read_evaluation(counts_path(seed / f"{test_set}.jsonl")) for seed in seeds])
    path.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


def cost_of(arm: Path) -> dict[str, float]:
    """Steps, responses and their tokens; with a GPU of its own, the steps' seconds but for validation, checkpoints."""
    steps = [step for step in read_metrics(arm / "training" / METRICS_FILE) if STEP_TIME in step]
    found: dict[str, float] = {"steps": len(steps)}
    settings = arm / "settings"  # missing: of the first run
    if not settings.exists() or ALONE in settings.read_text():
        seconds = sum(step[STEP_TIME] - step.get(SAVE_TIME, 0.0) for step in steps)
        found["gpu_seconds"] = round(seconds)
    return found | {
        name: sum(step.get(f"cost/{name}", 0.0) for step in steps) for name in ("responses", "response_tokens")
    }


def rate(scores: Scores, arm: str, turn: int, minus: str | None = None, only: str | None = None) -> Resampled:
    """Share of right ones among programs submitted at ``turn``, or the difference to ``minus``; of the set ``only``."""

    ids = [one.id for one in scores[arm][0] if only in (None, set_of(one))]

    def counts(name: str) -> tuple[np.ndarray, np.ndarray]:
        by_id_S = [{one.id: one for one in problems} for problems in scores[name]]
        if lacking := [id_ for id_ in ids if any(id_ not in by_id for by_id in by_id_S)]:
            raise InputError(f"{name}: no counts of problem {lacking[0]}")
        chosen_SP = [[by_id[id_] for id_ in ids] for by_id in by_id_S]
        right_SP = np.array(
            [[(one.submitted_T or ())[turn] if one.samples else 0 for one in problems] for problems in chosen_SP], float
        )
        return right_SP, np.array([[one.samples for one in problems] for problems in chosen_SP], float)

    found = hierarchical_rate(counts(arm), None if minus is None else counts(minus))
    assert found is not None
    return found


def percent(found: Resampled) -> Estimate:
    estimate = in_percent(found.estimate)
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    return estimate


def seconds_of(costs: Costs, arm: str) -> tuple[float | None, float]:
    """Of a training that had its GPU alone, if there is one: GPU-seconds of as many steps. And of the collection."""
    alone = costs[SECONDS_OF.get(arm, arm)][0]
    steps = round(alone["gpu_seconds"] / alone["steps"] * costs[arm][0]["steps"]) if "gpu_seconds" in alone else None
    return steps, 0.0 if arm in ONLINE else costs["collection"][0]["gpu_seconds"]


def main_table(scores: Scores, costs: Costs) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    for arm in scores:
        tokens = [one.tokens_T[LAST] / one.samples for problems in scores[arm] for one in problems if one.tokens_T]
        trained = arm in costs
        steps, collection = seconds_of(costs, arm) if trained else (None, None)
        rows.append({
            "arm": ARMS[arm],
            "trainings": len(scores[arm]) if trained else None,
            "first program": f"{100 * rate(scores, arm, 0).value:.1f}",
            "within 2": f"{100 * rate(scores, arm, 1).value:.1f}",
            "submitted within 3": percent(rate(scores, arm, LAST)),
            "to base": percent(rate(scores, arm, LAST, "base")) if trained else None,
            "tokens": round(float(np.mean(tokens))),
            "steps": costs[arm][0]["steps"] if trained else None,
            "GPU-s of steps": steps,
            "of collection": collection or None,
        })  # fmt: skip
    return rows


def rates_table(folder: Path, scores: Scores) -> list[dict[str, Cell]]:
    """Programs submitted within three, on dev and on test problems: the base's share, then differences to it."""

    def of(name: str, test_set: str) -> Scores:
        file = folder / RATE_FILE.format(name, test_set)
        if test_set == "test" and name in scores:
            return {name: scores[name]}
        return {name: [one.problems for one in read_evaluations(file)]} if file.exists() else {}

    rows: list[dict[str, Cell]] = []
    for name, (arm, learning_rate) in {"base": (ARMS["base"], None), **RATES[folder]}.items():
        row: dict[str, Cell] = {"arm": arm, "rate": learning_rate}
        for test_set in ("dev", "test"):
            both = {**of("base", test_set), **of(name, test_set)}
            minus = None if name == "base" else "base"
            row[test_set] = percent(rate(both, name, LAST, minus)) if name in both else None
        rows.append(row)
    return rows


def partly_table(scores: Scores) -> list[dict[str, Cell]]:
    """Trainings that answered a part of the test problems, beside others on the same ones."""
    rows: list[dict[str, Cell]] = []
    for name, label in PARTLY.items():
        (seed,) = read_evaluations(FOLDER / PARTLY_FILE.format(name))
        both = {**scores, label: [seed.problems]}
        rows.append({
            "arm": label,
            "problems": len(seed.problems),
            "submitted within 3": percent(rate(both, label, LAST)),
            "to base": percent(rate(both, label, LAST, "base")),
            "to Cobalt": percent(rate(both, label, LAST, "cobalt")),
        })  # fmt: skip
    return rows


def long_table(folder: Path) -> list[dict[str, Cell]]:
    """Right programs by turn where conversations go on after success, percent."""
    rows: list[dict[str, Cell]] = []
    for file in sorted(folder.glob(LONG_FILE.format("*"))):
        seeds = [one.problems for one in read_evaluations(file)]
        samples = sum(one.samples for problems in seeds for one in problems)
        solved_T = np.sum([one.solved_T for problems in seeds for one in problems if one.samples], axis=0)
        shares = {str(turn + 1): f"{100 * solved / samples:.1f}" for turn, solved in enumerate(solved_T)}
        rows.append({"arm": ARMS[file.name.partition(".")[0]], **shares})
    return rows


def set_table(scores: Scores) -> list[dict[str, Cell]]:
    names = [MBPP_PLUS, *SETS.values(), STDIN]
    sizes = {name: sum(set_of(problem) == name for problem in scores["base"][0]) for name in names}
    titles = {name: f"{name} ({size})" for name, size in sizes.items()}
    return [
        {"arm": ARMS[arm], **{titles[name]: percent(rate(scores, arm, LAST, only=name)) for name in names}}
        for arm in scores
    ]


def hacking_table(summaries: Mapping[str, Sequence[Mapping[str, Any]]], scores: Scores) -> list[dict[str, Cell]]:
    """How each training answers to public tests of which two are wrong, and how often it repeats itself on others."""

    def rate_of(summary: Mapping[str, Any], name: str) -> Cell:
        found = summary["rates"][name]
        return found and in_percent(Estimate(**found))

    def repeated(problems: Sequence[ProblemScores]) -> Cell:
        asked = [one for one in problems if one.samples]
        repeats = [one.failed_repeats_T[1] for one in asked]
        return in_percent(ratio_estimate(repeats, [one.unsolved_before(1) for one in asked]))

    return [
        {
            "arm": label,
            **{title: rate_of(summary, name) for title, name in HACKING.items()},
            "failed first program again": repeated(scores[arm][seed]),
        }
        for arm, label in ARMS.items()
        for seed, summary in enumerate(summaries.get(arm, ()))
    ]


def labels_table(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Cell]]:
    """How one reader labelled the turns whose changed program passes the wrong test."""
    fits = [turn for turn in turns if turn["kind"] != "abandoned"]
    return [
        {
            "arm": ARMS[arm],
            **{name: sum((turn["arm"], turn["label"]) == (arm, name) for turn in fits) for name in READ_AS},
        }
        for arm in LABELLED
    ]


def tables_of_tests(scores: Scores) -> list[dict[str, Cell]]:
    others = [arm for arm in scores if arm not in ("base", "cobalt")]
    found = {arm: rate(scores, "cobalt", LAST, arm) for arm in others}
    p_values = {arm: one.p_value for arm, one in found.items() if one.p_value is not None}
    corrected: dict[str, float] = dict(zip(COMPARED, holm([p_values[arm] for arm in COMPARED]), strict=True))
    return [
        {
            "Cobalt minus": ARMS[arm],
            "points": percent(one),
            "Welch": one.welch_p_value,
            "p": p_values.get(arm),
            "p by Holm": corrected.get(arm),
        }
        for arm, one in found.items()
    ]


def teacher_table(trainings: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Cell]]:
    """Share of a step's responses that pass, percent, and their mean tokens."""
    return [
        {
            "training": label,
            **{
                f"step {step}": f"{100 * trainings[name][step - 1]['reward/acc']:.0f}, "
                f"{trainings[name][step - 1]['response_length/mean']:.0f}"
                if step <= len(trainings[name])
                else None
                for step in TEACHER_STEPS
            },
        }
        for name, label in TEACHERS.items()
    ]


def stages_table(stages: Mapping[str, Any]) -> list[dict[str, Cell]]:
    """Seconds of each stage of an arm's first training."""
    return [
        {"arm": ARMS[arm], **{title: seeds[0].get(name) for name, title in STAGES.items()}}
        for arm, seeds in stages.items()
        if arm in ARMS
    ]


def trainings_table(scores: Scores) -> list[dict[str, Cell]]:
    """Each training's submitted programs within three, percent."""
    return [
        {
            "arm": ARMS[arm],
            "each training": ", ".join(f"{100 * rate({arm: [one]}, arm, LAST).value:.1f}" for one in scores[arm]),
        }
        for arm in scores
    ]


@styled()
def draw(scores: Scores, costs: Costs) -> None:
    """Left: submitted programs by turn, with intervals. Right: each training's gain against GPU-minutes."""
    figure = new_figure(FULL)
    left, right = figure.subplots(1, 2)
    for number, arm in enumerate(DRAWN):
        label = ARMS[arm]
        line = METHODS.get(ARMS[SECONDS_OF.get(arm, arm)]) or Line(label, VARIANT, "--", "v")
        found = [percent(rate(scores, arm, turn)) for turn in range(LAST + 1)]
        shift = DODGE * (number - (len(DRAWN) - 1) / 2)  # else the intervals would lie on each other
        places, values = [1 + turn + shift for turn in range(LAST + 1)], [one.value for one in found]
        look = {"color": line.colour, "linestyle": line.dash, "marker": line.marker, "markerfacecolor": line.face}
        left.errorbar(places, values, bars_of(found), elinewidth=0.7, **look)
        at = {"textcoords": "offset points", "color": line.colour, "va": "center"}
        beside = (6, LABEL_SHIFTS.get(arm, 0))
        left.annotate(label, (1 + LAST + DODGE * len(DRAWN) / 2, values[-1]), xytext=beside, **at)
        if arm not in costs:
            continue
        minutes = sum(seconds or 0 for seconds in seconds_of(costs, arm)) / 60
        gains = [100 * rate({**scores, arm: [one]}, arm, LAST, "base").value for one in scores[arm]]
        right.plot([minutes] * len(gains), gains, line.marker, color=line.colour, markerfacecolor=line.face)
        side = {"xytext": (6, 8), "ha": "right"} if arm.endswith("_21") else {"xytext": beside}
        if arm == "rft_3e-6":  # to its right is single-turn GRPO
            side = {"xytext": (-6, 0), "ha": "right"}
        right.annotate(label, (minutes, gains[0]), **side, **at)
    left.set(xlabel="programs at most", ylabel="submitted program right (%)")
    left.set(xticks=range(1, LAST + 2), xlim=(0.7, 4.2))
    right.axhline(0, color="grey", linewidth=0.7)
    right.set(xlabel="GPU-minutes of steps and collection", ylabel="gain over the base (points)", xlim=(0, 17))
    finished(figure, "submitted", "Submitted programs by turn, and the gain against its cost").write(FOLDER)


def kept(folder: Path) -> tuple[Scores, Costs]:
    """What a folder of ``STUDIES`` holds."""
    scores = {
        arm: [one.problems for one in read_evaluations(folder / f"{arm}.counts.json.gz")] for arm in STUDIES[folder]
    }
    return scores, json.loads((folder / COST_FILE).read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=[folder.name for folder in STUDIES], default=FOLDER.name)
    parser.add_argument("--collect", type=Path, help="the --out of study.py")
    args = parser.parse_args()
    folder = FOLDER.with_name(args.study)
    if args.collect is not None:
        collect(args.collect, folder)
    scores, costs = kept(folder)
    tables = [main_table(scores, costs), tables_of_tests(scores), trainings_table(scores), set_table(scores)]
    tables += [hacking_table(json.loads((folder / HACKING_FILE).read_text()), scores)]
    tables += [long_table(folder), rates_table(folder, scores)]
    if folder == FOLDER:
        tables += [labels_table(json.loads((FOLDER / LABELS_FILE).read_text()))]
        tables += [teacher_table(json.loads((FOLDER / TEACHER_FILE).read_text())), partly_table(scores)]
    else:
        tables += [stages_table(json.loads((folder / STAGES_FILE).read_text()))]
    for rows in tables:
        print(markdown_table(list(rows[0]), ([show(cell) for cell in row.values()] for row in rows)), "\n")
    if folder == FOLDER:
        draw(scores, costs)


if __name__ == "__main__":
    with exit_codes():
        main()
