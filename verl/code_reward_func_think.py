"""The reward function for veRL's ``reward.custom_reward_function.path``; the code is in ``cobalt.training.scoring``."""

from cobalt.training.scoring import compute_score

__all__ = ["compute_score"]
