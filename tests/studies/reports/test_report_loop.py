"""The loop's report: numbers of hand-made evaluated files, and three files written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.evaluation.files import counts_path, read_evaluation, write_counts
from cobalt.records import write_jsonl
from studies.reports.loop import LoopConfig, main


def _evaluated(path: Path, rates_PNT: list[list[list[float | None]]]) -> Path:
    message = {"role": "assistant", "content": "```python\nprint(1)\n```"}
    rows = [
        {"id": index, "conversations": [[message] * len(rates_T) for rates_T in rates_NT], "all_pass_rates": rates_NT}
        for index, rates_NT in enumerate(rates_PNT)
    ]
    write_jsonl(path, rows)
    return path


def _flags(tmp_path: Path, base: list[list[list[float | None]]], trained: list[list[list[float | None]]]) -> LoopConfig:
    flat: list[list[list[float | None]]] = [[[0.5] * 4], [[0.5] * 4]]
    first = [{"id": index, "exec_results": [{"passing": [True]}, {"passing": [index == 0]}]} for index in range(2)]
    write_jsonl(tmp_path / "first.jsonl", first)
    return LoopConfig(
        base=_evaluated(tmp_path / "base.jsonl", base),
        trained=_evaluated(tmp_path / "trained.jsonl", trained),
        base_first_turn=tmp_path / "first.jsonl",
        base_control=_evaluated(tmp_path / "base_control.jsonl", flat),
        trained_control=_evaluated(tmp_path / "trained_control.jsonl", flat),
        output=tmp_path / "result",
    )


def test_numbers_of_hand_made_files(tmp_path: Path) -> None:
    base: list[list[list[float | None]]] = [[[0, 0, 0, 1]], [[0, 0, 0, 0]]]
    trained: list[list[list[float | None]]] = [[[1, 1, 1, 1]], [[0, 0, 1, 1]]]
    main(_flags(tmp_path, base, trained))
    pass1, skill = json.loads((tmp_path / "result.json").read_text())
    assert [row["trained - base"]["value"] for row in pass1["rows"]] == [50, 50, 100, 50]
    values = {row[""]: (row["base"], row["trained"]) for row in skill["rows"]}
    assert values["gain, turn 0 to 3"][0]["value"] == 50
    assert values["gain, turn 0 to 3, another problem's feedback"][1]["value"] == 0
    assert values["solved at turn 2, if unsolved at 1"][1]["value"] == 100
    assert values["solved at turn 1, if unsolved at 0"][0]["value"] == 0
    assert values["Pass@2 at turn 0"][0]["value"] == 100
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert b"trained by Cobalt" in (tmp_path / "result.svg").read_bytes()
    assert "| 2 |" in (tmp_path / "result.md").read_text()


@pytest.mark.parametrize(
    ("base", "complaint"),
    [([[[None] * 4], [[None] * 4]], "holds no evaluated sample"), ([[[0.0]], [[1.0]]], "holds a single turn")],
)
def test_files_that_show_no_repair_are_refused(tmp_path: Path, base, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"base\.jsonl: {complaint}"):
        main(_flags(tmp_path, base, [[[1] * 4], [[1] * 4]]))
    assert not list(tmp_path.glob("result*"))


def test_the_manifest_lies_beside_the_table(tmp_path: Path) -> None:
    flags = _flags(tmp_path, [[[0] * 4], [[1] * 4]], [[[1] * 4], [[1] * 4]])
    main(flags)
    manifest = json.loads((tmp_path / "result.md.manifest.json").read_text())
    assert manifest["status"] == "done"
    assert set(manifest["inputs"]) == {str(path) for path in (flags.base, flags.trained, flags.base_first_turn)} | {
        str(path) for path in (flags.base_control, flags.trained_control)
    }


def test_counts_stand_for_evaluated_files(tmp_path: Path) -> None:
    base: list[list[list[float | None]]] = [[[0, 0, 0, 1], [0, 1, 1, 1]], [[0, 0, 0, 0], [None] * 4]]
    flags = _flags(tmp_path, base, [[[1, 1, 1, 1]], [[0, 0, 1, 1]]])
    main(flags)
    counts = {}
    for name in ("base", "trained", "base_control", "trained_control"):
        counts[name] = counts_path(getattr(flags, name))
        write_counts(counts[name], name, None, [read_evaluation(getattr(flags, name))])
    main(replace(flags, output=tmp_path / "again", **counts))
    assert (tmp_path / "again.json").read_text() == (tmp_path / "result.json").read_text()
