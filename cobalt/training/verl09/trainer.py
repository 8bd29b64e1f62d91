"""veRL 0.9.1's trainers whose rollouts share the trainer's GPUs, with what training on programs needs.

Added to each step: responses that the infrastructure failed to score teach nothing, rows of a problem stay together,
and the reward's parts, the costs and the engines' mismatch are metrics. Training ends with its budget, or where too
many responses cannot be scored.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerColocateAsync, PPOTrainerSync, register_trainer

from cobalt.errors import CobaltError
from cobalt.records.training_run import append_metrics
from cobalt.training.batch_scores import InfraGuard, fill_with_mean, neutralise_groups, reward_metrics
from cobalt.training.online import OVERLONG, Program, turn_advantages
from cobalt.training.scoring import INFRA, RewardSettings
from cobalt.training.settings import Method
from cobalt.training.shared_prompts import balanced_rows, rows_by_prefix
from cobalt.training.training_log import budget_of
from cobalt.training.verl09.config import MANAGER, TRAINER_PREFIX
from cobalt.training.verl09.manager import PROGRAMS

POLL_S = 0.2
"""Between two looks whether a step's rollouts have ended. veRL waits 2 s, on average 1 s of each step too long."""


class RecordedTracking:
    """veRL's logger, which also appends each call to ``metrics.jsonl``. ``after``: called with each training step."""

    def __init__(self, tracking: Any, folder: str, after: Any):
        self._tracking, self._folder, self._after = tracking, folder, after

    def log(self, data: dict[str, Any], step: int, **kwargs: Any) -> None:
        """Log as veRL does, and append one JSON object."""
        self._tracking.log(data=data, step=step, **kwargs)
        append_metrics(self._folder, step, data)
        if "training/global_step" in data:
            self._after()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracking, name)


class CobaltTrainer(PPOTrainer):
    """See the module. The subclasses below add when rollouts and updates run."""

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = self.trainer_mode.removeprefix(TRAINER_PREFIX)  # veRL asks for its own name
        self._budget = budget_of(self.config)
        reward = self.config.reward
        settings = RewardSettings.read((reward.reward_kwargs or {}) if reward.reward_manager.name == MANAGER else {})
        self._guard = InfraGuard(settings.max_infra_rate)
        online = self.config.cobalt.get("online")
        self._method = Method(**online) if online else None
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = POLL_S
        self._thrown_away: list[dict[str, Any]] = []
        buffer._clear_groups = partial(self._note_thrown_away, buffer, buffer._clear_groups)
        return buffer

    def _note_thrown_away(self, buffer: Any, clear: Callable[..., None], partition_id: str, uids: set[str]) -> None:
        """Keep what responses cost that no step trains on, as those of the filter's groups; then clear them."""
        rows = buffer.partitions[partition_id].items()
        self._thrown_away += [tag for key, tag in rows if key.split("_")[0] in uids]
        clear(partition_id, uids)

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
        """Train, unless the checkpoint is that of the last step or the budget is spent.

        Raises ``CobaltError`` if steps are missing at the end.
        """
        spent = self.global_steps > 0 and self._budget is not None and self._budget.is_spent
        if (self.global_steps >= self.total_training_steps or spent) and not self.config.trainer.val_only:
            print(f"cobalt: finished already: checkpoint {self.global_steps} of {self.total_training_steps} steps")
            return
        if self.global_steps > 0:
            self._look_at_budget()
        super().fit(agent_loop_manager)
        if self.global_steps <= self.total_training_steps and not self.config.trainer.val_only:
            raise CobaltError(f"training ended after step {self.global_steps - 1} of {self.total_training_steps}")

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Ranks get whole trees of rows that begin alike, and about equally many tokens, shared ones counted once."""
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        if not self.config.cobalt.share_prompts:
            return batch
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["prompts"])
        responses = [tag["response_len"] for tag in batch.tags]
        rows, unbalance = balanced_rows(rows_by_prefix(list(data["prompts"].unbind()), responses), ranks)
        batch.reorder(rows)
        metrics.update(unbalance)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """First make neutral what could not be scored; then as veRL. Online, turns get advantages of their own."""
        where = {"keys": batch.keys, "partition_id": batch.partition_id}
        data = tq.kv_batch_get(**where, select_fields=["uid", "rm_scores", "extra_fields"])
        rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        fields_B = list(data["extra_fields"])
        infos: dict[int, dict[str, Any]] = {row: fields_B[row].get("reward_extra_info", {}) for row in rows}
        scores_B = [scores.clone() for scores in data["rm_scores"].unbind()]
        advantages: dict[int, float] = {}
        if self._method is None:
            totals = [None if infos[row].get(INFRA) else float(scores_B[row].sum()) for row in rows]
            if None in totals:
                neutral = neutralise_groups(totals, [data["uid"][row] for row in rows])
                for row, total in zip(rows, neutral, strict=True):
                    scores_B[row][-1] = total
                self._put(where, rm_scores=scores_B)
        else:
            played: dict[tuple[str, str], list[int]] = {}  # rows by problem and trajectory, in the order of turns
            places = {row: batch.keys[row].rsplit("_", 2) for row in rows}
            for row in sorted(rows, key=lambda row: int(places[row][2])):
                played.setdefault((places[row][0], places[row][1]), []).append(row)
            rows_N, programs_N = list(played.values()), []
            for rows_T in rows_N:
                info = infos[rows_T[0]]  # the same in all rows of a trajectory
                programs_N.append(None if info[INFRA] else [Program(**program) for program in info[PROGRAMS]])
                for row, program in zip(rows_T, programs_N[-1] or [None] * len(rows_T), strict=True):
                    infos[row] = {INFRA: 1.0} if program is None else {**program.score, INFRA: 0.0}
                    scores_B[row][-1] = 0.0 if program is None else program.score["score"]
            metrics[f"cost/{OVERLONG}"] = sum(bool(fields_B[row].get(OVERLONG)) for row in rows)
            advantages = turn_advantages(rows_N, [problem for problem, _ in played], programs_N, self._method)
            self._put(where, rm_scores=scores_B)
        names = dict.fromkeys(name for info in infos.values() for name in info)
        metrics.update(reward_metrics({name: [info.get(name, 0.0) for info in infos.values()] for name in names}))
        if f"reward/{INFRA}" in metrics:  # else another reward manager's
            self._guard.note(metrics[f"reward/{INFRA}"])
        batch = super()._compute_advantage(batch, metrics)
        if self._method is not None:
            given = [torch.full_like(scores, advantages.get(row, 0.0)) for row, scores in enumerate(scores_B)]
            self._put(where, advantages=given, returns=given)
        return batch

    def _val_metrics_update(
        self, sources: Any, uids: Any, infos: dict[str, list[Any]], *args: Any, **kwargs: Any
    ) -> Any:
        """veRL's metrics of validation. Responses that could not be scored count as the mean of the others."""
        failed_B = infos.get(INFRA, [])
        if any(failed_B):
            for name in infos.keys() - {INFRA}:
                pairs = zip(infos[name], failed_B, strict=True)
                infos[name] = fill_with_mean([None if failed else value for value, failed in pairs])
        return super()._val_metrics_update(sources, uids, infos, *args, **kwargs)

    @staticmethod
    def _put(where: dict[str, Any], **columns: list[Any]) -> None:
        """Write rows of different lengths into the queue."""
        nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
        tq.kv_batch_put(**where, fields=TensorDict(nested, batch_size=len(where["keys"])))

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """veRL's, and what the step cost."""
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        tags = [*self._thrown_away, *(tag for tag in batch.tags if not tag.get("is_padding", False))]
        self._thrown_away = []
        metrics["cost/responses"] = len(tags)
        metrics["cost/prompt_tokens"] = sum(tag["prompt_len"] for tag in tags)
        metrics["cost/response_tokens"] = sum(tag["response_len"] for tag in tags)


@register_trainer(f"{TRAINER_PREFIX}sync")
class CobaltTrainerSync(CobaltTrainer, PPOTrainerSync):
    """Rollouts of a step, then its update."""


@register_trainer(f"{TRAINER_PREFIX}colocate_async")
class CobaltTrainerColocateAsync(CobaltTrainer, PPOTrainerColocateAsync):
    """Updates begin when enough groups are finished. Unfinished responses go on after them, by the newer policy."""
