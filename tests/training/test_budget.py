"""A training that may cost so much: its last step is the one that ends closest to the limit."""

import json
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from cobalt.errors import InputError
from cobalt.records import write_jsonl
from cobalt.training.budget import budget_of
from cobalt.training.patches.trainer import end_at_budget


def config_for(folder, budget):
    return OmegaConf.create({"cobalt": {"budget": budget}, "trainer": {"default_local_dir": str(folder)}})


def write_steps(folder, costs):
    config = {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    (folder / "training.manifest.json").write_text(json.dumps({"config": config}))
    rows = [{"step": step, "timing_s/step": cost / 2, "cost/responses": cost} for step, cost in enumerate(costs, 1)]
    write_jsonl(folder / "metrics.jsonl", rows)


class Trainer:
    """veRL's loop over steps, each of which costs 10 responses."""

    def __init__(self, folder, budget):
        self.config = config_for(folder, budget)
        self.total_training_steps, self.global_steps = 1000, 1
        self.train_dataset, self.folder, self.seen = SimpleNamespace(), folder, []

    def fit(self):
        while True:
            is_last_step = self.global_steps >= self.total_training_steps
            write_steps(self.folder, [10] * self.global_steps)
            self.global_steps += 1
            if is_last_step:
                return
            self.train_dataset.on_batch_end(batch=None)


@pytest.mark.parametrize(("limit", "steps"), [(26, 3), (30, 3), (34, 3), (36, 4)])
@pytest.mark.parametrize("unit", ["responses", "gpu_seconds"])
def test_training_ends_closest_to_the_limit(tmp_path, unit, limit, steps):
    ray_trainer = SimpleNamespace(RayPPOTrainer=type("Patched", (Trainer,), {}))
    end_at_budget(ray_trainer)
    trainer = ray_trainer.RayPPOTrainer(tmp_path, {unit: limit})
    trainer.train_dataset.on_batch_end = trainer.seen.append
    trainer.fit()
    assert trainer.global_steps - 1 == steps
    assert len(trainer.seen) == steps - 1  # the guard that was there is still asked


def test_a_budget_is_spent_when_one_more_step_would_lead_away(tmp_path):
    budget = budget_of(config_for(tmp_path, {"responses": 30}))
    assert not budget.is_spent
    for steps, is_spent in ((2, False), (3, True), (4, True)):
        write_steps(tmp_path, [10] * steps)
        assert budget.is_spent == is_spent


@pytest.mark.parametrize(
    "section", [{"steps": 3}, {"responses": 0}, {"responses": "x"}, {"responses": 1, "gpu_seconds": 1}, {}, 9]
)
def test_other_budgets_are_refused_and_without_one_there_is_none(tmp_path, section):
    assert budget_of(config_for(tmp_path, None)) is None
    with pytest.raises(InputError, match=r"cobalt\.budget"):
        budget_of(config_for(tmp_path, section))
