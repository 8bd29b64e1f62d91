"""The ``cobalt`` section of a training configuration, and what online training needs of the other sections."""

import os
from dataclasses import fields
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import Positive, Share
from cobalt.errors import InputError
from cobalt.rewards.online import GAMMA, OUTCOME_WEIGHT, SMOOTHING

VERL, PAPER = "0.9.1", "0.5.0"
"""Versions of veRL: the one that this is for, and the paper's (``cobalt.training.verl05``)."""
CPU_BACKEND = "cpu"
SHARED_PROMPT_MODELS = ("llama", "qwen2", "qwen3")
"""Model types known to hand ``shared_prompts`` to every layer and to score with a plain output layer."""
RELEASE, TOKENS = "release", "tokens"
"""How tokens may be weighed in the loss (``cobalt.training.engine``)."""
MANAGER = "StreamingRewardManager"
"""Value of ``reward.reward_manager.name`` that stands for our reward manager."""
KEEP = "give cobalt.keep_checkpoints=N, which keeps the last N and the best by validation; null: all"
ONLINE_LOOP, SEEDED_LOOP = "cobalt_online", "cobalt_seeded"
"""Names in ``agent_loops.yaml``."""
ONLINE_NEEDS = {
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.use_kl_in_reward": False,
    "reward.reward_manager.name": MANAGER,
    # an update gets whole trajectories, which are up to so many rows
    "actor_rollout_ref.actor.use_dynamic_bsz": True,
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": True,
    "actor_rollout_ref.actor.shuffle": False,
}
"""Settings that online training relies on. The recipes set them."""


def make_absolute(section: Any, *names: str) -> None:
    """Paths of a configuration's section whole, where there is such a file or folder; others are names on the hub."""
    for name in names:
        if section[name] and os.path.exists(section[name]):
            section[name] = os.path.abspath(section[name])


def gpus_of(trainer: Any) -> int:
    """Of all nodes; on CPU cores, processes. ``trainer``: that section of the configuration of a training."""
    return trainer["n_gpus_per_node"] * trainer["nnodes"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Method:
    """The ``cobalt.online`` section."""

    method: Literal["grpo", "verpo"]
    turns: Positive
    """Most programs of a trajectory."""
    stop_at_success: bool = True
    """Whether a program that passes all public tests ends its trajectory. If not, the policy learns to keep it, too."""
    trajectory_score: Literal["final", "sum"] = "final"
    """GRPO: ``final``, the reward of the last program; ``sum``, the discounted sum of all programs' rewards."""
    gamma: Share = GAMMA
    """Discount per turn: of VeRPO, and of GRPO's ``sum``."""
    smoothing: float = SMOOTHING
    """VeRPO, of ``failures``: see ``cobalt.rewards.online``."""
    outcome_weight: float = OUTCOME_WEIGHT
    """VeRPO: see ``cobalt.rewards.online``."""
    test_weights: Literal["failures", "density"] = "failures"
    """VeRPO: ``density``, those of the paper's third version (``cobalt.rewards.online``)."""
    outcome_decay: Share = 1.0
    """VeRPO: what a trajectory's outcome is multiplied by for each of its turns."""
    turn_baseline: Literal["normalised", "others", "all_turns"] = "normalised"
    """VeRPO: ``others``, what the other trajectories got, undivided, which is unbiased (``cobalt.rewards.online``).
    ``all_turns``: the mean over all turns of the group, and over all outcomes, undivided."""

    def refuse_unread(self) -> None:
        """Raise ``InputError`` for a setting that the others leave without effect."""
        unread: dict[str, str] = {}
        if self.method == "grpo":
            others = ("smoothing", "outcome_weight", "test_weights", "outcome_decay", "turn_baseline")
            unread = dict.fromkeys(others, "method=verpo")
            if self.trajectory_score == "final":
                unread["gamma"] = "trajectory_score=sum"
        else:
            unread["trajectory_score"] = "method=grpo"
            if self.test_weights == "density":
                unread["smoothing"] = "test_weights=failures"
        for field in fields(self):
            if field.name in unread and (value := getattr(self, field.name)) != field.default:
                raise InputError(f"cobalt.online.{field.name}={value} is of cobalt.online.{unread[field.name]}")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingConfig:
    """The ``cobalt`` section of the configuration."""

    backend: Literal["verl", "cpu"] = "verl"
    """``verl``: rollouts of vLLM or SGLang on GPUs. ``cpu``: Hugging Face rollouts on a CPU."""
    seed: int = 0
    """Seed of Hugging Face rollouts."""
    budget: Any = None
    """A limit on the cost of training (``cobalt.training.training_log.Budget``). None: no limit."""
    online: Method | None = None
    """Multi-turn training on the policy's own trajectories. None: off."""
    share_prompts: bool = False
    """Compute once what several rows begin with: a prompt, or a part of it (``cobalt.training.shared_prompts``)."""
    loss_weights: Literal["release", "tokens"] = RELEASE
    """How response tokens are weighed in the loss (``cobalt.training.engine``)."""
    keep_checkpoints: Positive | None = None
    """How many of the last checkpoints stay, beside the best by validation. None: all (``training.checkpoints``)."""

    @classmethod
    def of(cls, config: Any) -> "TrainingConfig":
        """The section of a composed configuration.

        Raises ``CobaltError`` for what cannot be read or run, and for settings elsewhere that contradict ``online``.
        """
        from omegaconf import OmegaConf

        section: Any = OmegaConf.to_container(config.cobalt, resolve=True) if "cobalt" in config else {}
        try:
            settings = cls(**section)
        except ValidationError as error:
            *above, _ = error.errors()[0]["loc"]
            names = fields(Method if above else cls)
            raise InputError.of_setting(error, "cobalt.", (field.name for field in names)) from None
        if settings.online is None:
            return settings
        settings.online.refuse_unread()
        for name, needed in ONLINE_NEEDS.items():
            if (found := OmegaConf.select(config, name)) != needed:
                raise InputError(f"cobalt.online needs {name}={needed}, not {found}")
        return settings
