"""Settings of online training: ``cobalt.online`` and what else of the configuration every process of a job needs.

They travel in an environment variable of the job, as the backend does: veRL hands its workers parts of the
configuration only.
"""

import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cobalt.errors import InputError
from cobalt.rewards.online import GAMMA, OUTCOME_WEIGHT, SMOOTHING
from cobalt.training.scoring import RewardSettings

ROLLOUTS = ("hf", "vllm")
MANAGER_NAME = "cobalt_online"
ONLINE_VARIABLE = "COBALT_ONLINE"
"""Environment variable of a training job: ``OnlineSettings`` as JSON, or empty."""
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


class Method(BaseModel):
    """The ``cobalt.online`` section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["grpo", "verpo"]
    turns: int = Field(ge=1)
    """Most programs of a trajectory."""
    trajectory_score: Literal["final", "sum"] = "final"
    """GRPO: ``final``, the reward of the last program; ``sum``, the discounted sum of all programs' rewards."""
    gamma: float = Field(GAMMA, ge=0, le=1)
    """Discount per turn: of VeRPO, and of GRPO's ``sum``."""
    smoothing: float = SMOOTHING
    """VeRPO: see ``cobalt.rewards.online``."""
    outcome_weight: float = OUTCOME_WEIGHT
    """VeRPO: see ``cobalt.rewards.online``."""


class OnlineSettings(BaseModel):
    """The method, and how responses are read and programs run."""

    model_config = ConfigDict(frozen=True)

    method: Method
    reward: RewardSettings
    model: str
    """Where the tokenizer is."""

    @classmethod
    def from_environment(cls) -> "OnlineSettings":
        """Of the job that this process belongs to."""
        return cls.model_validate_json(os.environ[ONLINE_VARIABLE])

    def to_json(self) -> str:
        """For the environment variable."""
        return self.model_dump_json()


def online_settings(config: Any) -> OnlineSettings | None:
    """The settings in a training configuration; None without ``cobalt.online``.

    Raises ``InputError`` for values out of range and for settings elsewhere that contradict them.
    """
    from omegaconf import OmegaConf

    section = config.get("cobalt", {}).get("online")
    if section is None:
        return None
    try:
        method = Method.model_validate(dict(section))
    except ValidationError as error:
        raise InputError.of_setting(error, "cobalt.online.", Method.model_fields) from None
    for name, needed in NEEDED.items():
        if (found := OmegaConf.select(config, name)) != needed:
            raise InputError(f"cobalt.online needs {name}={needed}, not {found}")
    if (rollout := config.actor_rollout_ref.rollout.name) not in ROLLOUTS:
        raise InputError(f"cobalt.online needs actor_rollout_ref.rollout.name in {', '.join(ROLLOUTS)}, not {rollout}")
    reward = RewardSettings.read(config.reward_model.reward_kwargs)
    return OnlineSettings(method=method, reward=reward, model=config.actor_rollout_ref.model.path)


def prepare(config: Any, settings: OnlineSettings) -> None:
    """Have veRL ask rollouts for a row of every turn, and call the step in which empty rows are dropped."""
    config.actor_rollout_ref.rollout.n *= settings.method.turns
    config.trainer.balance_batch = True
