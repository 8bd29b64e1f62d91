"""A training run: its manifest, Ray with the job's runtime environment, and veRL's main loop in this process."""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.errors import SetupError
from cobalt.prompts import described
from cobalt.records import Manifest
from cobalt.records.identity import model_identity
from cobalt.records.manifest import tell_other_origin
from cobalt.records.training_run import (
    METRICS_FILE,
    START_MODEL,
    hold_folder,
    read_metrics,
    resumed_step,
    set_lost_steps_aside,
)
from cobalt.sandbox.checkers import checker_identity
from cobalt.training.cluster import process_variables, run_and_watch
from cobalt.training.config import completed, has_own_manager
from cobalt.training.preflight import DATA_FILES, as_list, refuse_cut_prompts, refuse_unusable
from cobalt.training.resume import OPERATION_SETTINGS, fingerprint, finished_at, manifest_of, refuse_new_optimizer
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import PAPER, VERL, TrainingConfig
from cobalt.training.training_log import budget_of


def train(
    config: Any,
    given: Collection[str] = (),
    start_services: Callable[[Mapping[str, Any]], None] | None = None,
    console: AbstractContextManager[None] | None = None,
) -> None:
    """Run veRL's main loop on a composed hydra configuration. Raises ``CobaltError`` or Ray's errors.

    ``given``: as in ``completed``; ``start_services``: called once all is checked, with the limits that the evaluator
    app must have, gives ``RAY_ADDRESS`` its value; ``console``: around all that veRL prints.
    """
    config, manifest = checked(config, given)
    with hold_folder(manifest.output):
        if (step := finished_at(config)) is not None:
            print(f"cobalt: finished already: checkpoint {step}", flush=True)
            return
        os.environ |= (variables := process_variables(config))
        if start_services is not None:
            start_services(RewardSettings.read(config.reward.reward_kwargs).of_app if has_own_manager(config) else {})
        with console or nullcontext():
            _train(config, manifest, variables)


def _train(config: Any, manifest: Manifest, variables: Mapping[str, str]) -> None:
    import ray

    from cobalt.training.runner import connect_and_prepare

    is_beside = config.trainer.val_only and manifest.path.exists()  # a training keeps its manifest and metrics
    if not is_beside:
        set_lost_steps_aside(manifest.output, resumed_step(config.trainer))
        manifest.start()
    if (steps := config.trainer.total_training_steps) is not None:
        config.trainer.total_epochs = steps  # veRL ends with the epochs, and each has one step or more
    if len(counts := manifest.counts["overlong_prompts_left_out"]) == len(DATA_FILES) and not any(counts.values()):
        config.data.filter_overlong_prompts = False  # veRL would tokenize all prompts once more
    print(f"cobalt: BACKEND '{config.cobalt.backend}' IS ACTIVE", flush=True)
    training = connect_and_prepare(config, variables)
    try:
        run_and_watch(training)
    finally:
        ray.shutdown()
    if not is_beside:
        metrics = manifest.output / METRICS_FILE
        manifest.counts["steps"] = int(read_metrics(metrics)[-1]["step"]) if metrics.exists() else 0
        manifest.done()


def refuse_other_verl() -> None:
    """Raise ``SetupError`` where another version of veRL is installed."""
    if (installed := version("verl")) != VERL:
        more = ": python -m cobalt.training.verl05 --help" if installed == PAPER else ""
        raise SetupError(f"veRL {installed} is installed, and cobalt train is for veRL {VERL}{more}")


def checked(config: Any, given: Collection[str] = ()) -> tuple[Any, Manifest]:
    """``completed`` and the run's manifest. Raises ``CobaltError`` for what would fail."""
    from omegaconf import OmegaConf, open_dict

    ready, settings = completed(config, given), TrainingConfig.of(config)
    budget_of(config)
    rewards = RewardSettings.read(config.reward.reward_kwargs) if has_own_manager(config) else None
    refuse_unusable(config, settings)
    left_out = refuse_cut_prompts(config)
    if settings.online:
        train_files = [Path(path) for path in as_list(config.data.train_files) if "://" not in path]
        with open_dict(ready):
            ready.cobalt.prompts = described(PromptsConfig().prompt_set(train_files))

    resolved: Any = OmegaConf.to_container(config, resolve=True)
    reward = resolved["reward"]
    function = reward["custom_reward_function"]
    scores = {k: v for k, v in (reward.get("reward_kwargs") or {}).items() if k not in OPERATION_SETTINGS}
    data = {name: as_list(resolved["data"][name]) for name in DATA_FILES}
    content = {
        START_MODEL: model_identity(resolved["actor_rollout_ref"]["model"]["path"]),
        "reward.reward_manager": reward["reward_manager"]["name"],
        **{f"reward.reward_kwargs.{name}": value for name, value in scores.items()},
        "reward.custom_reward_function": {**function, "path": function["path"] and fingerprint(function["path"])},
        **({"cobalt.online": online} if (online := resolved["cobalt"].get("online")) else {}),
    }
    checker = None  # of an app that is not asked here
    if rewards is not None and rewards.executor == "local":
        checker = checker_identity(rewards.limits.get("checker", "exact"))
    for path in data["train_files"]:
        tell_other_origin(path, model_id=content[START_MODEL], checker=checker)
    resolved["seed"] = settings.seed
    counts = {"overlong_prompts_left_out": left_out}
    manifest = manifest_of("cobalt train", resolved, content, data, counts, reshards=True)
    if resumed_step(ready.trainer) and not ready.trainer.val_only and finished_at(ready) is None:
        refuse_new_optimizer(resolved["actor_rollout_ref"]["actor"]["checkpoint"], "actor_rollout_ref.actor.checkpoint")
    return ready, manifest
