"""A training that may cost so much: its last step is the one that ends closest to the limit."""

import json

import pytest
from omegaconf import OmegaConf

from cobalt.errors import InputError
from cobalt.records import write_jsonl
from cobalt.training.budget import budget_of


def config_for(folder, budget):
    return OmegaConf.create({"cobalt": {"budget": budget}, "trainer": {"default_local_dir": str(folder)}})


def write_steps(folder, costs):
    config = {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    (folder / "training.manifest.json").write_text(json.dumps({"config": config}))
    rows = [{"step": step, "timing_s/step": cost / 2, "cost/responses": cost} for step, cost in enumerate(costs, 1)]
    write_jsonl(folder / "metrics.jsonl", rows)


def test_a_budget_is_spent_when_one_more_step_would_lead_away(tmp_path):
    budget = budget_of(config_for(tmp_path, {"responses": 30}))
    assert not budget.is_spent
    for steps, is_spent in ((2, False), (3, True), (4, True)):
        write_steps(tmp_path, [10] * steps)
        assert budget.is_spent == is_spent


@pytest.mark.parametrize(
    "section", [{"steps": 3}, {"responses": 0}, {"responses": "x"}, {"responses": 1, "gpu_seconds": 1}, {}, 9]
)
def test_other_budgets_are_refused(tmp_path, section):
    with pytest.raises(InputError, match=r"cobalt\.budget"):
        budget_of(config_for(tmp_path, section))


def test_without_a_budget_there_is_none(tmp_path):
    assert budget_of(config_for(tmp_path, None)) is None
