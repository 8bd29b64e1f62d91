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


@pytest.mark.parametrize(("limit", "last"), [(26, 3), (30, 3), (34, 3), (36, 4)])
@pytest.mark.parametrize("unit", ["responses", "gpu_seconds"])
def test_the_last_step_ends_closest_to_the_limit(tmp_path, unit, limit, last):
    """A step costs 10."""
    budget, told = budget_of(config_for(tmp_path, {unit: limit})), []
    for steps in range(last + 2):
        if steps:
            write_steps(tmp_path, [10] * steps)
        told.append((budget.allows_one, budget.is_spent))
    assert told == [(False, False)] * (last - 1) + [(True, False)] + [(True, True)] * 2


@pytest.mark.parametrize(
    "section", [{"steps": 3}, {"responses": 0}, {"responses": "x"}, {"responses": 1, "gpu_seconds": 1}, {}, 9]
)
def test_other_budgets_are_refused_and_without_one_there_is_none(tmp_path, section):
    assert budget_of(config_for(tmp_path, None)) is None
    with pytest.raises(InputError, match=r"cobalt\.budget"):
        budget_of(config_for(tmp_path, section))
