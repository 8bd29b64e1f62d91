"""A training run on veRL 0.5.0: its configuration, its checks, its manifest, and veRL's ``run_ppo``."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from ray.exceptions import RayTaskError
from verl.trainer import main_ppo

from cobalt.errors import CobaltError, InputError
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import file_sha256
from cobalt.records.training_run import START_MODEL, hold_folder, resumed_step
from cobalt.training.hydra_main import composed, refuse_misspelt, refuse_mistyped
from cobalt.training.preflight import DATA_FILES, as_list, refuse_cut_prompts, refuse_unusable
from cobalt.training.resume import OPERATION_SETTINGS, finished_at, manifest_of, refuse_new_optimizer
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import TOKENS, TrainingConfig
from cobalt.training.verl05.manager import MANAGER_NAME  # registers it, also in the process of the task runner

PlainTaskRunner: Any = main_ppo.TaskRunner.__ray_actor_class__
"""The class that veRL has decorated with ``ray.remote``."""
BEFORE = (
    "+reward={custom_reward_function: {path: null, name: compute_score, reward_kwargs: {}}}",
    "cobalt.share_prompts=false",
    "cobalt.keep_checkpoints=null",
)
"""Overrides before the user's: a section that veRL 0.9.1 has, and what veRL 0.5.0 does not do."""
NOT_HERE = (
    *("reward_model", "custom_reward_function", "transfer_queue", "reward.reward_manager", "reward.num_workers"),
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
)
"""Settings that are overwritten or dropped. Those of the reward have the recipes' names."""


def recipe_config(overrides: Sequence[str], config_dir: Path | None) -> Any:
    """The composed configuration, in the recipes' keys. Raises ``InputError`` for what veRL 0.5.0 does not do."""
    if config_dir is None or not config_dir.is_dir():
        raise InputError(f"--config-dir {config_dir or 'is missing'}: give the folder of recipes, verl/config")
    try:
        given = [one.key_or_group for one in OverridesParser.create().parse_overrides(list(overrides))]
        if "recipe" not in given:
            raise InputError("no recipe: give +recipe=multi_turn or +recipe=single_turn")
        for name in given:
            if any(f"{name}.".startswith(f"{refused}.") for refused in NOT_HERE):
                raise InputError(f"{name} cannot be set: see reward.reward_kwargs, reward.custom_reward_function")
        refuse_misspelt([BEFORE[0], *overrides], config_dir)
        config = composed([*BEFORE, *overrides], config_dir)
    except HydraException as error:
        raise InputError(str(error).partition("Config search path:")[0]) from None
    refuse_mistyped(config)
    for name, only in asdict(TrainingConfig()).items():  # its defaults are what veRL does without our other parts
        if config.cobalt.get(name, only) != only:
            raise InputError(f"cobalt.{name}: veRL 0.5.0 needs {json.dumps(only)}; cobalt train has other values")
    if config.reward.custom_reward_function.path is None:
        config.reward.custom_reward_function.path = str(config_dir.absolute().with_name("code_reward_func_think.py"))
    return config


def to_paper_keys(config: Any) -> Any:
    """A resolved copy of a composed configuration in the keys of veRL 0.5.0. It ignores the section ``cobalt``."""
    paper: Any = OmegaConf.to_container(config, resolve=True)
    reward = paper.pop("reward")
    paper["reward_model"] |= {"reward_manager": MANAGER_NAME, "reward_kwargs": reward["reward_kwargs"]}
    paper["reward_model"]["launch_reward_fn_async"] = True  # while log-probabilities are computed
    paper["custom_reward_function"] = reward["custom_reward_function"]
    del paper["transfer_queue"], paper["actor_rollout_ref"]["rollout"]["agent"]["agent_loop_manager_class"]
    return OmegaConf.create(paper, flags={"struct": True})


class TaskRunner(PlainTaskRunner):
    """veRL's. It runs in a process of its own, which builds data, reward managers and trainer."""

    def run(self, config: Any) -> None:
        """Train. Raises ``SetupError`` if programs cannot be run."""
        RewardSettings.read(config.reward_model.reward_kwargs).check()
        super().run(config)


def train(config: Any) -> None:
    """Run veRL's main loop on ``recipe_config``. Raises ``CobaltError`` or Ray's errors."""
    manifest = checked(config)
    with hold_folder(manifest.output):
        if (step := finished_at(config)) is not None:
            print(f"cobalt: finished already: checkpoint {step}", flush=True)
            return
        if resumed_step(config.trainer) and not config.trainer.val_only:
            refuse_new_optimizer(config.actor_rollout_ref.actor.checkpoint, "actor_rollout_ref.actor.checkpoint")
        manifest.start()
        if (steps := config.trainer.total_training_steps) is not None:
            config.trainer.total_epochs = steps  # veRL ends with the epochs, and each has one step or more
        main_ppo.TaskRunner = ray.remote(num_cpus=1)(TaskRunner)  # ``run_ppo`` starts it, and no setting names it
        try:
            main_ppo.run_ppo(to_paper_keys(config))
        except RayTaskError as error:  # raised in another process
            raise error.cause if isinstance(error.cause, CobaltError) else error from None
        finally:
            ray.shutdown()
        manifest.done()


def checked(config: Any) -> Manifest:
    """The run's manifest. Raises ``CobaltError`` for what would fail."""
    RewardSettings.read(config.reward.reward_kwargs)
    refuse_unusable(config, TrainingConfig(loss_weights=TOKENS))  # the release's are veRL 0.5.0's own: always there
    left_out = refuse_cut_prompts(config)
    resolved: Any = OmegaConf.to_container(to_paper_keys(config))
    files = {name: as_list(resolved["data"][name]) for name in DATA_FILES}
    function, scores = resolved["custom_reward_function"], resolved["reward_model"]["reward_kwargs"]
    content = {
        START_MODEL: model_identity(resolved["actor_rollout_ref"]["model"]["path"]),
        **{f"reward_model.reward_kwargs.{k}": v for k, v in scores.items() if k not in OPERATION_SETTINGS},
        "custom_reward_function": {**function, "path": file_sha256(function["path"])},
    }
    counts = {"overlong_prompts_left_out": left_out}
    return manifest_of("python -m cobalt.training.verl05", resolved, content, files, counts)
