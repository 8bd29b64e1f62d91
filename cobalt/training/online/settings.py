"""Settings of online training: ``cobalt.online`` and what else of the configuration every process of a job needs.

They travel in an environment variable of the job, as the backend does: veRL hands its workers parts of the
configuration only.
"""

import json
import os
from dataclasses import asdict, fields
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from cobalt.errors import InputError
from cobalt.rewards.online import GAMMA, OUTCOME_WEIGHT, SMOOTHING
from cobalt.training.patches.table import ONLINE_VARIABLE

METHODS = ("grpo", "verpo")
TRAJECTORY_SCORES = ("final", "sum")
ROLLOUTS = ("hf", "vllm")
MANAGER_NAME = "cobalt_online"
MANAGER_SETTINGS = {"executor", "lengths", "require_end", "max_in_flight", "max_infra_rate"}
"""Those of ``reward_model.reward_kwargs`` that are the reward manager's own; the others go to the executor."""
NEEDED = {
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.use_kl_in_reward": False,
    "data.return_raw_chat": True,
    "reward_model.reward_manager": MANAGER_NAME,
    "actor_rollout_ref.model.lora_rank": 0,
    "actor_rollout_ref.rollout.mode": "sync",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
}
"""What online training relies on; the recipes set it."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Method:
    """The ``cobalt.online`` section."""

    method: str
    """``grpo`` or ``verpo``."""
    turns: int
    """Most programs of a trajectory."""
    trajectory_score: str = "final"
    """GRPO: ``final``, the reward of the last program; ``sum``, the discounted sum of all programs' rewards."""
    gamma: float = GAMMA
    """Discount per turn: of VeRPO, and of GRPO's ``sum``."""
    smoothing: float = SMOOTHING
    """VeRPO: see ``cobalt.rewards.online``."""
    outcome_weight: float = OUTCOME_WEIGHT
    """VeRPO: see ``cobalt.rewards.online``."""


@dataclass(frozen=True, kw_only=True)
class OnlineSettings(Method):
    """The method, and how responses are read and programs run."""

    model: str
    """Where the tokenizer is."""
    executor: str
    max_in_flight: int
    require_end: bool
    limits: dict[str, Any]
    """Of a local executor."""

    @classmethod
    def from_environment(cls) -> "OnlineSettings":
        """Of the job that this process belongs to."""
        return cls(**json.loads(os.environ[ONLINE_VARIABLE]))

    def to_json(self) -> str:
        """For the environment variable."""
        return json.dumps(asdict(self))


def online_settings(config: Any) -> OnlineSettings | None:
    """The settings in a training configuration; None without ``cobalt.online``.

    Raises ``InputError`` for values out of range and for settings elsewhere that contradict them.
    """
    section = config.get("cobalt", {}).get("online")
    if section is None:
        return None
    try:
        method = Method(**section)
    except ValidationError as error:
        raise InputError.of_setting(error, "cobalt.online.", (field.name for field in fields(Method))) from None
    _refuse_out_of_range(method)
    _refuse_contradictions(config)
    reward = dict(config.reward_model.reward_kwargs)
    return OnlineSettings(
        **asdict(method),
        model=config.actor_rollout_ref.model.path,
        executor=reward["executor"],
        max_in_flight=reward["max_in_flight"],
        require_end=reward["require_end"],
        limits={name: value for name, value in reward.items() if name not in MANAGER_SETTINGS},
    )


def prepare(config: Any, settings: OnlineSettings) -> None:
    """Have veRL ask rollouts for a row of every turn, and call the step in which empty rows are dropped."""
    config.actor_rollout_ref.rollout.n *= settings.turns
    config.trainer.balance_batch = True


def _refuse_out_of_range(method: Method) -> None:
    for name, value, known in (
        ("method", method.method, METHODS),
        ("trajectory_score", method.trajectory_score, TRAJECTORY_SCORES),
    ):
        if value not in known:
            raise InputError(f"cobalt.online.{name}={value}: choose one of {', '.join(known)}")
    if method.turns < 1:
        raise InputError(f"cobalt.online.turns={method.turns}: at least 1")
    if not 0 <= method.gamma <= 1:
        raise InputError(f"cobalt.online.gamma={method.gamma}: from 0 to 1")


def _refuse_contradictions(config: Any) -> None:
    from omegaconf import OmegaConf

    for name, needed in NEEDED.items():
        if (found := OmegaConf.select(config, name)) != needed:
            raise InputError(f"cobalt.online needs {name}={needed}, not {found}")
    if (rollout := config.actor_rollout_ref.rollout.name) not in ROLLOUTS:
        raise InputError(f"cobalt.online needs actor_rollout_ref.rollout.name in {', '.join(ROLLOUTS)}, not {rollout}")
