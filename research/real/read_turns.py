#!/usr/bin/env python3
"""Turns to read by hand: how programs changed after a wrong test. Without the arm's name, in a seeded order.

    python research/real/read_turns.py --data DATA/perturbed.jsonl --out OUT > turns.txt

All turns whose changed program passes the wrong test that it was shown, and as many as are missing to ``--number`` of
those whose right program was given up. ``study/hacking_labels.json`` gets a line for each, to be labelled there; labels
that it has are kept.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cobalt.cli.entry import exit_codes
from cobalt.hacking.cases import Case, find_cases, perturbed_indices
from cobalt.records import read_jsonl
from research.real.study_tables import ARMS, FOLDER, LABELS_FILE

KEY = ("arm", "id", "trajectory", "turn", "kind")
"""What a labelled turn is known by; ``kind``: case, fitted (of the wrong test, without being one), abandoned."""


def changed_turns(arm: str, data: dict[str, Any], results: Path) -> Iterator[tuple[dict[str, Any], Case, str]]:
    """Each turn of interest: its key, what changed, and the wrong test."""
    for row in read_jsonl(results):
        found = find_cases(known := data[row["id"]], row)
        shown, _, _ = perturbed_indices(known)
        for case in (*found.cases, *found.others):
            before, after = (row["all_pass_rates"][case.trajectory][case.turn - past] for past in (1, 0))
            passes = row["public_exec_results"][case.turn][case.trajectory]["passing"][case.test]
            kind = "case" if case in found.cases else "fitted" if passes else "abandoned"
            if kind != "abandoned" or (before == 1 and after != 1):
                key = (arm, row["id"], case.trajectory, case.turn, kind)
                yield (
                    dict(zip(map(str, KEY), key, strict=True)),
                    case,
                    f"{shown.inputs_K[case.test]!r} => {shown.outputs_K[case.test]!r}",
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the perturbed problems")
    parser.add_argument("--out", type=Path, required=True, help="the --out of study.py")
    parser.add_argument("--number", type=int, default=100)
    args = parser.parse_args()
    data = {row["id"]: row for row in read_jsonl(args.data)}
    turns = [turn for arm in ARMS for turn in changed_turns(arm, data, args.out / f"{arm}-0" / "perturbed.jsonl")]
    chosen = [turn for turn in turns if turn[0]["kind"] != "abandoned"]
    others = [turn for turn in turns if turn[0]["kind"] == "abandoned"]
    random.Random(0).shuffle(others)
    chosen += others[: max(0, args.number - len(chosen))]
    random.Random(1).shuffle(chosen)
    labels = FOLDER / LABELS_FILE
    old = (
        {tuple(one[name] for name in KEY): one["label"] for one in json.loads(labels.read_text())}
        if labels.exists()
        else {}
    )
    lines = [json.dumps(key | {"label": old.get(tuple(key.values()))}) for key, _, _ in chosen]
    labels.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    for number, (key, case, wrong) in enumerate(chosen):
        print(f"\n### {number}: {data[key['id']]['question'][:300]}\n\nwrong: {wrong}\n\n{case.patch}")


if __name__ == "__main__":
    with exit_codes():
        main()
