"""What a training folder holds, read back."""

import json

import pytest

from cobalt.errors import InputError
from cobalt.records.training_run import EDGE_STEPS, edge_means, edge_steps, read_metrics, training_manifest


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_step_that_was_repeated_after_a_resume_has_its_later_values(tmp_path):
    path = write_lines(
        tmp_path / "metrics.jsonl", {"step": 2, "a": 2, "b": 0.5}, {"step": 1, "a": 1}, {"step": 2, "a": 3}
    )
    assert read_metrics(path) == [{"step": 1, "a": 1}, {"step": 2, "a": 3, "b": 0.5}]


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    assert read_metrics(write_lines(tmp_path / "metrics.jsonl", {"step": 1, "a": "x", "b": None})) == [{"step": 1}]


def test_a_line_that_is_no_record_is_named(tmp_path):
    path = write_lines(tmp_path / "metrics.jsonl", {"step": 1}, {"a": 1})
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2: missing field 'step'"):
        read_metrics(path)


def test_edges_are_the_first_and_the_last_steps():
    assert edge_means([0.0] * EDGE_STEPS + [9.0] + [1.0] * EDGE_STEPS) == (0, 1)


@pytest.mark.parametrize(
    ("values", "edges"), [([4.0], (4, 4)), ([1.0, 3.0], (1, 3)), ([0.0, 2.0, 9.0, 4.0, 6.0], (1, 5))]
)
def test_edges_of_a_short_run_are_its_halves_and_share_no_step(values, edges):
    assert edge_means(values) == edges


def test_edges_grow_up_to_their_limit():
    assert [edge_steps(steps) for steps in (1, 2, 3, 19, 20, 21, 500)] == [1, 1, 1, 9, 10, 10, EDGE_STEPS]


def test_the_manifest_lies_in_the_folder(tmp_path):
    assert training_manifest(tmp_path) == tmp_path / "training.manifest.json"
