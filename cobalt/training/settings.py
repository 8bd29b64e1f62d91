"""The ``cobalt`` section of a training configuration, and what online training needs of the other sections."""

import os
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from cobalt.errors import InputError, SetupError
from cobalt.rewards.online import GAMMA, OUTCOME_WEIGHT, SMOOTHING
from cobalt.training.scoring import RewardSettings

CPU_BACKEND = "cpu"
BACKENDS = ("verl", CPU_BACKEND)
RELEASE, TOKENS = "release", "tokens"
"""What a token may count for in the loss (``cobalt.training.workers``)."""
ONLINE_MANAGER_NAME = "cobalt_online"
ONLINE_VARIABLE = "COBALT_ONLINE"
"""Environment variable of a training job: ``OnlineSettings`` as JSON, or empty. veRL hands its workers parts of the
configuration only."""
ONLINE_NEEDS = {
    "algorithm.adv_estimator": ["grpo"],
    "algorithm.norm_adv_by_std_in_grpo": [True],
    "algorithm.use_kl_in_reward": [False],
    "data.return_raw_chat": [True],
    "reward_model.reward_manager": [ONLINE_MANAGER_NAME],
    "actor_rollout_ref.model.lora_rank": [0],
    "actor_rollout_ref.rollout.mode": ["sync"],
    "actor_rollout_ref.rollout.tensor_model_parallel_size": [1],
    "actor_rollout_ref.rollout.name": ["hf", "vllm"],
}
"""What online training relies on; the recipes set it."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingConfig:
    """The ``cobalt`` section of the configuration."""

    backend: str = "verl"
    """``verl``: vLLM rollouts on GPUs. ``cpu``: Hugging Face rollouts on a CPU."""
    seed: int = 0
    """Seed of Hugging Face rollouts."""
    budget: Any = None
    """What training may cost (``cobalt.training.training_log.Budget``). None: no limit."""
    online: Any = None
    """Multi-turn training on the policy's own trajectories (``Method``). None: off."""
    share_prompts: bool = False
    """Compute each prompt once, not once for each of its responses (``cobalt.training.shared_prompts``)."""
    loss_weights: Literal["release", "tokens"] = RELEASE
    """What a response token counts for in the loss (``cobalt.training.workers``)."""

    @classmethod
    def of(cls, config: Any) -> "TrainingConfig":
        """The section of a composed configuration. Raises ``CobaltError`` for what cannot be read or run."""
        try:
            settings = cls(**config.get("cobalt", {}))
        except ValidationError as error:
            raise InputError.of_setting(error, "cobalt.", (field.name for field in fields(cls))) from None
        if settings.backend == "hf":
            raise InputError("cobalt.backend=hf was removed: use verl (vLLM rollouts on GPUs), or cpu for small models")
        if settings.backend not in BACKENDS:
            raise SetupError(f"cobalt.backend={settings.backend}: choose one of {', '.join(BACKENDS)}")
        return settings


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

    @classmethod
    def of(cls, config: Any) -> "OnlineSettings | None":
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
        for name, allowed in ONLINE_NEEDS.items():
            if (found := OmegaConf.select(config, name)) not in allowed:
                raise InputError(f"cobalt.online needs {name}={' or '.join(map(str, allowed))}, not {found}")
        reward = RewardSettings.read(config.reward_model.reward_kwargs)
        return cls(method=method, reward=reward, model=config.actor_rollout_ref.model.path)
