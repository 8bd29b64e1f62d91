"""Which result files a report takes as what."""

from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.evaluation.counts import read_evaluations
from cobalt.records import write_jsonl
from studies.reports.runs import run_scores


@pytest.mark.parametrize(
    ("label", "condition"), [("perturbed", "clean"), ("perturbed", "shifted"), ("public", "perturbed")]
)
def test_a_run_under_the_other_feedback_is_refused(tmp_path: Path, label: str, condition: str) -> None:
    path = tmp_path / "run.jsonl"
    evaluated = {"id": 0, "conversations": [[]], "all_pass_rates": [[1.0]]}
    write_jsonl(path, [evaluated])
    assert run_scores(read_evaluations(path), condition).turns == 1, "released files carry no label"
    write_jsonl(path, [{**evaluated, "feedback_tests": label}])
    with pytest.raises(
        InputError, match=f"run.jsonl: its feedback came from the {label} tests: not a '{condition}' file"
    ):
        run_scores(read_evaluations(path), condition)
