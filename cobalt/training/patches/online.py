"""Online multi-turn training (``cobalt.online``) in veRL's trainer and actor: rows of trajectories, some of them empty.

What is done is in ``cobalt.training.online``; here is where veRL calls it.
"""

from functools import wraps
from typing import Any

from cobalt.training.online.rows import MINI_BATCHES, drop_rows_after_end, with_given_advantages
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.patches.table import TOKENS


def patch_trainer(ray_trainer: Any) -> None:
    """In place of balancing rows, drop those after an end; advantages are the manager's."""
    settings = OnlineSettings.from_environment()

    def drop_instead_of_balancing(self: Any, batch: Any, metrics: dict[str, Any], logging_prefix: str = "") -> None:
        data, actor = self.config.data, self.config.actor_rollout_ref.actor
        any_number = actor.use_dynamic_bsz and self.config.cobalt.loss_weights == TOKENS
        micro_batch = 1 if any_number else actor.ppo_micro_batch_size_per_gpu
        mini_batches = data.train_batch_size // actor.ppo_mini_batch_size
        rows_of_problem = self.config.actor_rollout_ref.rollout.n
        unit = self.actor_rollout_wg.world_size * micro_batch
        drop_rows_after_end(batch, settings.method.turns, rows_of_problem, mini_batches, unit)

    def given_advantage(data: Any, *_: Any, **__: Any) -> Any:
        return with_given_advantages(data)

    ray_trainer.RayPPOTrainer._balance_batch = drop_instead_of_balancing
    ray_trainer.compute_advantage = given_advantage


def patch_actor(dp_actor: Any) -> None:
    """Mini-batches of equal size, as many as without dropped rows."""
    actor = dp_actor.DataParallelPPOActor
    update_policy = actor.update_policy

    @wraps(update_policy)
    def update_in_equal_steps(self: Any, data: Any) -> Any:
        configured = self.config.ppo_mini_batch_size
        self.config.ppo_mini_batch_size = len(data) // data.meta_info[MINI_BATCHES]
        try:
            return update_policy(self, data)
        finally:
            self.config.ppo_mini_batch_size = configured

    actor.update_policy = update_in_equal_steps
