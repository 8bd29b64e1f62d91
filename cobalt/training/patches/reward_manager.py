"""The reward managers' names in veRL's registry."""

from types import ModuleType

from verl.workers.reward_manager import register

from cobalt.training.manager import CobaltRewardManager
from cobalt.training.online.manager import OnlineRewardManager
from cobalt.training.online.settings import MANAGER_NAME as ONLINE_MANAGER_NAME
from cobalt.training.scoring import MANAGER_NAME


def register_manager(_reward: ModuleType) -> None:
    """Before ``load_reward_manager`` of ``verl.trainer.ppo.reward`` looks for ``reward_model.reward_manager``."""
    register(MANAGER_NAME)(CobaltRewardManager)
    register(ONLINE_MANAGER_NAME)(OnlineRewardManager)
