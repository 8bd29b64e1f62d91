"""The figure of one question: numbers of hand-made files, and what is refused."""

import json
from pathlib import Path

from report_files import write_evaluation

from research.reports.sweep import SweepConfig, main


def sweep(tmp_path: Path, **flags) -> list[dict]:
    one = write_evaluation(tmp_path / "one.jsonl", [[0, 1, 1], [0, 0, 1]])
    two = [write_evaluation(tmp_path / f"two-{seed}.jsonl", [[seed, 1, 1], [0, 0, seed]]) for seed in (0, 1)]
    points = (f"1e-4={one}", *(f"none={path}" for path in two))
    main(SweepConfig(**{"points": points, "setting": "KL", "turns": (0, 2), "output_dir": tmp_path / "out", **flags}))
    return json.loads((tmp_path / "out" / "sweep.json").read_text())["rows"]


def test_a_row_for_each_value_over_its_repetitions(tmp_path: Path) -> None:
    first, second = sweep(tmp_path)
    assert [(row["KL"], row["seeds"], row["problems"]) for row in (first, second)] == [("1e-4", 1, 2), ("none", 2, 2)]
    assert (first["turn 0"]["value"], first["turn 2"]["value"]) == (0, 100)
    assert (second["turn 0"]["value"], second["turn 2"]["value"]) == (25, 75)
    assert "turn 1" not in first and first["kl_loss"] is None
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert b"Pass@1, clean feedback (%)" in (tmp_path / "out" / "sweep.svg").read_bytes()
    assert "| 1e-4 | 1 | 2 |" in (tmp_path / "out" / "sweep.md").read_text()


def test_a_second_setting_makes_lines_at_the_last_turn(tmp_path: Path) -> None:
    points = tuple(
        f"{kind}:{share}={write_evaluation(tmp_path / f'{kind}-{share}.jsonl', [[0, 0, share], [0, 1, 1]])}"
        for kind, shares in (("swapped", (0, 1)), ("truncated", (1,)))
        for share in shares
    )
    rows = sweep(tmp_path, points=points, turns=(), setting="share")
    assert [(row["line"], row["share"], row["turn 2"]["value"]) for row in rows] == [
        ("swapped", "0", 50),
        ("swapped", "1", 100),
        ("truncated", "1", 100),
    ]
    assert "turn 0" not in rows[0]
