"""What the release's training scripts resolve to, and where our recipes differ."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from online_parts import compose_recipe

ROOT = Path(__file__).parents[2]
POLICY = "actor_rollout_ref"
NOT_METHOD = (
    "custom_reward_function.", "data.train_files", "data.val_files", "critic.", "reward_model.model.",
    "reward_model.reward_manager", "reward_model.use_dynamic_bsz", "trainer.default_local_dir",
    "trainer.experiment_name", "trainer.log_val_generations", "trainer.logger", "trainer.n_gpus_per_node",
    "trainer.project_name", f"{POLICY}.model.path", f"{POLICY}.rollout.load_format",
)  # fmt: skip
"""Beginnings of names that say whose files, model, machine and names are used, or belong to models that GRPO lacks.

``load_format`` has another name in the release's veRL for the same: ``dummy``, which is ``dummy_dtensor`` in PyPI's.
"""


@cache
def release_values(recipe: str) -> dict[str, Any]:
    """What the release's ``train_grpo_{recipe}.sh`` resolves to, by full name."""
    folder = ROOT / "tests/data/release"
    multi_turn, own = (json.loads((folder / f"{name}.json").read_text())["values"] for name in ("multi_turn", recipe))
    values = multi_turn | own  # the single-turn script's are stored where they differ
    config = OmegaConf.create()
    for name, value in values.items():
        OmegaConf.update(config, name, value, force_add=True)
    return {name: OmegaConf.select(config, name) for name in values}


def differences(recipe: str, preset: str) -> dict[str, tuple[Any, Any]]:
    """Settings of the method in which the recipe is not the release: the release's value, and ours."""
    config, found = compose_recipe(recipe, preset), {}
    for name, value in release_values(recipe).items():
        ours = OmegaConf.select(config, name, default=value)  # of what this veRL does not know, nothing
        if ours != value and not isinstance(ours, DictConfig) and not name.startswith(NOT_METHOD):
            found[name] = (value, ours)
    return found
