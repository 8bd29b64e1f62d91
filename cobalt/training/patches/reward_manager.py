"""The reward manager's name in veRL's registry."""

from types import ModuleType

from verl.workers.reward_manager import register

from cobalt.training.manager import MANAGER_NAME, CobaltRewardManager


def register_manager(_reward: ModuleType) -> None:
    """Before ``load_reward_manager`` of ``verl.trainer.ppo.reward`` looks for ``reward_model.reward_manager``."""
    register(MANAGER_NAME)(CobaltRewardManager)
