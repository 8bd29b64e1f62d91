"""veRL 0.9.1's synchronous trainer, with what training on programs needs.

Added to each step: responses that the infrastructure failed to score teach nothing, groups stay together on a rank,
and the reward's parts, the costs and the engines' mismatch are metrics. Training ends with its budget, or where too
many responses cannot be scored.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from cobalt.records.training_run import append_metrics
from cobalt.training.batch_scores import InfraGuard, neutralise_groups, reward_metrics
from cobalt.training.online import Program, group_advantages
from cobalt.training.scoring import INFRA, RewardSettings
from cobalt.training.settings import Method
from cobalt.training.shared_prompts import Group, balanced_rows
from cobalt.training.training_log import budget_of
from cobalt.training.verl09.config import TRAINER_MODE
from cobalt.training.verl09.manager import PROGRAMS


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


def programs_of(keys: Sequence[str], infos: Mapping[int, Mapping[str, Any]]) -> dict[int, Program | None]:
    """The judged program of each row. ``keys``: ``PROBLEM_TRAJECTORY_TURN`` of rows. None: it was not judged."""
    turns = {row: int(keys[row].rsplit("_", 1)[1]) for row in infos}
    return {row: None if info[INFRA] else Program(**info[PROGRAMS][turns[row]]) for row, info in infos.items()}


def turn_advantages(keys: Sequence[str], programs: Mapping[int, Program | None], method: Method) -> dict[int, float]:
    """The advantage of each row, computed as on veRL 0.5.0."""
    groups: dict[str, dict[str, list[int]]] = {}  # rows by problem and trajectory, in the order of turns
    for row in sorted(programs, key=lambda row: int(keys[row].rsplit("_", 1)[1])):
        problem, trajectory, _ = keys[row].rsplit("_", 2)
        groups.setdefault(problem, {}).setdefault(trajectory, []).append(row)
    advantages: dict[int, float] = {}
    for rows_NT in (list(group.values()) for group in groups.values()):
        programs_NT: list[Any] = [[programs[row] for row in rows_T] for rows_T in rows_NT]
        values_NT = group_advantages([None if None in programs_T else programs_T for programs_T in programs_NT], method)
        for rows_T, values_T in zip(rows_NT, values_NT, strict=True):
            advantages |= {row: float(value) for row, value in zip(rows_T, values_T, strict=False)}
    return advantages


@register_trainer(TRAINER_MODE)
class CobaltTrainer(PPOTrainerSync):
    """See the module."""

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = "sync"  # veRL chooses its buffer by this name
        self._budget = budget_of(self.config)
        settings = RewardSettings.read(self.config.reward.get("reward_kwargs") or {})
        self._guard = InfraGuard(settings.max_infra_rate)
        online = self.config.cobalt.get("online")
        self._method = Method(**online) if online else None
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
            for row, total in zip(rows, neutralise_groups(totals, [data["uid"][row] for row in rows]), strict=True):
                scores_B[row][-1] = total
        else:
            programs = programs_of(batch.keys, infos)
            advantages = turn_advantages(batch.keys, programs, self._method)
            for row, program in programs.items():
                infos[row] = {INFRA: 1.0} if program is None else {**program.score, INFRA: 0.0}
                scores_B[row][-1] = 0.0 if program is None else program.score["score"]
        names = dict.fromkeys(name for info in infos.values() for name in info)
        metrics.update(reward_metrics({name: [info.get(name, 0.0) for info in infos.values()] for name in names}))
        if f"reward/{INFRA}" in metrics:  # else another reward manager's
            self._guard.note(metrics[f"reward/{INFRA}"])
        self._put(where, rm_scores=scores_B)
        batch = super()._compute_advantage(batch, metrics)
        if self._method is not None:
            given = [torch.full_like(scores, advantages.get(row, 0.0)) for row, scores in enumerate(scores_B)]
            self._put(where, advantages=given, returns=given)
        return batch

    @staticmethod
    def _put(where: dict[str, Any], **columns: list[Any]) -> None:
        """Write rows of different lengths into the queue."""
        nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
        tq.kv_batch_put(**where, fields=TensorDict(nested, batch_size=len(where["keys"])))

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """veRL's, and what the step cost."""
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        tags = [tag for tag in batch.tags if not tag.get("is_padding", False)]
        metrics["cost/responses"] = len(tags)
        metrics["cost/prompt_tokens"] = sum(tag["prompt_len"] for tag in tags)
        metrics["cost/response_tokens"] = sum(tag["response_len"] for tag in tags)
