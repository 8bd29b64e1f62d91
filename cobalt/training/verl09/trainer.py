"""veRL 0.9.1's synchronous trainer, with what training on programs needs.

Added to each step: responses that the infrastructure failed to score teach nothing, groups stay together on a rank,
and the reward's parts, the costs and the engines' mismatch are metrics. Training ends with its budget, or where too
many responses cannot be scored.
"""

from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from cobalt.records.training_run import append_metrics
from cobalt.training.batch_scores import InfraGuard, neutralise_groups, reward_metrics
from cobalt.training.scoring import INFRA, RewardSettings
from cobalt.training.shared_prompts import Group, balanced_rows
from cobalt.training.training_log import budget_of
from cobalt.training.verl09.config import TRAINER_MODE


class RecordedTracking:
    """veRL's logger, which also appends each call to ``metrics.jsonl``. ``after``: called with each training step."""

    def __init__(self, tracking: Any, folder: str, after: Any):
        self._tracking, self._folder, self._after = tracking, folder, after

    def log(self, data: dict[str, Any], step: int, **kwargs: Any) -> None:
        """As veRL's. One JSON object for each call."""
        self._tracking.log(data=data, step=step, **kwargs)
        append_metrics(self._folder, step, data)
        if "training/global_step" in data:
            self._after()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracking, name)


@register_trainer(TRAINER_MODE)
class CobaltTrainer(PPOTrainerSync):
    """See the module."""

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = "sync"  # veRL chooses its buffer by this name
        self._budget = budget_of(self.config)
        settings = RewardSettings.read(self.config.reward.get("reward_kwargs") or {})
        self._guard = InfraGuard(settings.max_infra_rate)
        return super()._build_replay_buffer()

    @property
    def logger(self) -> Any:
        """veRL sets it when training begins."""
        return self._logger

    @logger.setter
    def logger(self, tracking: Any) -> None:
        self._logger = RecordedTracking(tracking, self.config.trainer.default_local_dir, self._look_at_budget)

    def _look_at_budget(self) -> None:
        if self._budget is not None and self._budget.allows_one:
            self.total_training_steps = self.global_steps + 1

    def fit(self, agent_loop_manager: Any) -> None:
        """Train, unless the checkpoint is that of the last step or the budget is spent."""
        spent = self.global_steps > 0 and self._budget is not None and self._budget.is_spent
        if (self.global_steps >= self.total_training_steps or spent) and not self.config.trainer.val_only:
            print(f"cobalt: finished already: checkpoint {self.global_steps} of {self.total_training_steps} steps")
            return
        super().fit(agent_loop_manager)

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Ranks get whole groups of about equally many tokens, a prompt counted once; rows of a group are adjacent."""
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        if not self.config.cobalt.share_prompts:
            return batch
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        rows_of: dict[str, list[int]] = {}
        for row, key in enumerate(batch.keys):
            rows_of.setdefault(key.rsplit("_", 2)[0], []).append(row)
        groups = []
        for rows in rows_of.values():
            prompt = batch.tags[rows[0]]["prompt_len"]
            groups.append(Group(tuple(rows), prompt, tuple(batch.tags[row]["response_len"] for row in rows)))
        rows, unbalance = balanced_rows(groups, ranks)
        batch.reorder(rows)
        metrics.update(unbalance)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """First make the rewards of responses that could not be scored neutral; then as veRL."""
        where = {"keys": batch.keys, "partition_id": batch.partition_id}
        data = tq.kv_batch_get(**where, select_fields=["uid", "rm_scores", "extra_fields"])
        infos_B = [fields["reward_extra_info"] for fields in list(data["extra_fields"])]
        real_B = [not tag.get("is_padding", False) for tag in batch.tags]
        named = {
            name: [info[name] for info, real in zip(infos_B, real_B, strict=True) if real]
            for name in (infos_B[0] if infos_B else ())
        }
        metrics.update(reward_metrics(named))
        self._guard.note(sum(named.get(INFRA, [1.0])) / max(1, len(named.get(INFRA, [1.0]))))
        failed_B = [real and bool(info.get(INFRA)) for info, real in zip(infos_B, real_B, strict=True)]
        if any(failed_B):
            scores = [row.clone() for row in data["rm_scores"].unbind()]
            totals_B = [None if failed else float(row.sum()) for row, failed in zip(scores, failed_B, strict=True)]
            for row, total in zip(scores, neutralise_groups(totals_B, list(data["uid"])), strict=True):
                row[-1] = total
            nested = torch.nested.as_nested_tensor(scores, layout=torch.jagged)
            tq.kv_batch_put(**where, fields=TensorDict({"rm_scores": nested}, batch_size=len(batch)))
        return super()._compute_advantage(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """veRL's, and what the step cost."""
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        tags = [tag for tag in batch.tags if not tag.get("is_padding", False)]
        metrics["cost/responses"] = len(tags)
        metrics["cost/prompt_tokens"] = sum(tag["prompt_len"] for tag in tags)
        metrics["cost/response_tokens"] = sum(tag["response_len"] for tag in tags)
