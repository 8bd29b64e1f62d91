"""veRL's trainers whose rollouts share the trainer's GPUs, with what training on programs needs.

Added to each step: responses that the infrastructure lost or failed to score teach nothing, rows of a problem stay
together, and the reward's parts, the costs and the engines' mismatch are metrics. Training ends with its budget, where
too many responses cannot be scored, or by an error in the reward. Online, an optimizer update gets whole trajectories.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerColocateAsync, PPOTrainerSync, register_trainer

from cobalt.errors import CobaltError
from cobalt.records.training_run import append_metrics, saved_steps
from cobalt.training.batch_scores import InfraGuard, judging_metrics, reward_metrics, turn_metrics
from cobalt.training.checkpoints import remove_old_checkpoints, whole_checkpoint
from cobalt.training.config import OWN_OLD, TRAINER_PREFIX, has_own_manager, has_own_old, scores_later
from cobalt.training.early import start_servers
from cobalt.training.manager import ERROR, PROGRAMS
from cobalt.training.online import OVERLONG, Program, turn_advantages
from cobalt.training.resume import CHECKPOINT
from cobalt.training.rollouts import (
    GroupClient,
    neutralised,
    own_buffer,
    place_of,
    refuse_errors,
    trajectories_of,
    with_lost,
)
from cobalt.training.scoring import INFRA, RewardSettings
from cobalt.training.settings import Method, gpus_of
from cobalt.training.training_log import GPUS, budget_of
from cobalt.training.updates import evened, rows_of, shared_out
from cobalt.training.worker import CobaltWorker

MFU = "perf/mfu/actor"
POLL_S = 0.2
"""Between two looks whether a step's rollouts have ended. veRL waits 2 s, on average 1 s of each step too long."""
READ_BY_PASSES = (
    *("prompts", "responses", "input_ids", "position_ids", "loss_mask", "response_mask"),
    *("old_log_probs", "ref_log_prob", "advantages", "rollout_is_weights"),
)
"""Columns of veRL's queue from which log-probabilities and losses are computed."""


class CobaltTrainer(PPOTrainer):
    """What we add to veRL's trainer. The subclasses below say when rollouts and updates run."""

    def _build_replay_buffer(self) -> Any:
        self.trainer_mode = self.trainer_mode.removeprefix(TRAINER_PREFIX)  # veRL asks for its own name
        self._budget = budget_of(self.config)
        is_own = has_own_manager(self.config)
        settings = RewardSettings.read((self.config.reward.reward_kwargs or {}) if is_own else {})
        self._guard = InfraGuard(settings.max_infra_rate)
        online = self.config.cobalt.get("online")
        self._method = Method(**online) if online else None
        buffer = own_buffer(super()._build_replay_buffer())
        buffer.poll_interval = POLL_S
        self._thrown_away: list[dict[str, Any]] = []
        buffer._clear_groups = partial(self._note_thrown_away, buffer, buffer._clear_groups)
        return buffer

    def _note_thrown_away(self, buffer: Any, clear: Callable[..., None], partition_id: str, uids: set[str]) -> None:
        """Keep what responses cost that no step trains on, as those of the filter's groups; then clear them."""
        rows = buffer.partitions[partition_id].items()
        self._thrown_away += [tag for key, tag in rows if place_of(key)[0] in uids]
        clear(partition_id, uids)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self._method is not None:
            self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(CobaltWorker))

    @property
    def actor_rollout_wg(self) -> Any:
        """veRL sets it when the processes of the models start, and waits for them then."""
        return self._actor_rollout_wg

    @actor_rollout_wg.setter
    def actor_rollout_wg(self, group: Any) -> None:
        start_servers(self.config)
        self._actor_rollout_wg = group

    @property
    def _problems(self) -> int:
        """Of a batch."""
        return self.config.data.train_batch_size // self.parameter_sync_step

    @property
    def logger(self) -> Any:
        """veRL sets it when training begins."""
        return self._logger

    @logger.setter
    def logger(self, tracking: Any) -> None:
        log, folder = tracking.log, self.config.trainer.default_local_dir

        def record(data: dict[str, Any], step: int, **kwargs: Any) -> None:
            append_metrics(folder, step, data)
            log(data=data, step=step, **kwargs)
            if "training/global_step" in data:
                self._after_step()

        tracking.log = record
        self._logger = tracking

    def _save_checkpoint(self) -> None:
        callback, self.checkpoint_callback = self.checkpoint_callback, CheckpointCallback()
        with whole_checkpoint(self.config.trainer, CHECKPOINT.format(self.global_steps)) as folder:
            super()._save_checkpoint()
        self.checkpoint_callback = callback
        callback.on_save(trainer=self, global_step=self.global_steps, checkpoint_dir=str(folder), async_save=False)

    def _after_step(self) -> None:
        """Its checkpoint is complete, and its validation is recorded."""
        folder, keep = self.config.trainer.default_local_dir, self.config.cobalt.get("keep_checkpoints")
        if self.global_steps in saved_steps(folder):  # in other steps nothing is new, and all metrics would be read
            remove_old_checkpoints(folder, keep, self.global_steps)
        self._look_at_budget()

    def _look_at_budget(self) -> None:
        if self._budget is not None and self._budget.steps_left() < 1.5:
            # one more step ends closest to the limit; asked after the last step, too, which stays the last
            self.total_training_steps = min(self.total_training_steps, self.global_steps + 1)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train, unless the checkpoint is that of the last step or the budget is spent.

        Raises ``CobaltError`` if steps are missing at the end.
        """
        spent = self.global_steps > 0 and self._budget is not None and self._budget.steps_left() < 0.5
        if (self.global_steps >= self.total_training_steps or spent) and not self.config.trainer.val_only:
            print(f"cobalt: finished already: checkpoint {self.global_steps} of {self.total_training_steps} steps")
            return
        if self.global_steps > 0:
            self._look_at_budget()
        gc.freeze()  # a search of all that was imported, for garbage, would take 0.4 s of each step
        super().fit(agent_loop_manager)
        if self.global_steps <= self.total_training_steps and not self.config.trainer.val_only:
            raise CobaltError(f"training ended after step {self.global_steps - 1} of {self.total_training_steps}")

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """In each update ranks get about equally many tokens, shared ones counted once, and rows that begin alike."""
        cobalt, group, actor = self.config.cobalt, self.actor_rollout_wg, self.config.actor_rollout_ref.actor
        if self._method is None and not cobalt.share_prompts:
            return super()._balance_batch(batch, metrics, *args, **kwargs)
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        ranks = max(group._dispatch_info["actor"]) + 1
        if self._method is None:
            multiple = self._get_required_batch_multiple(ranks)
            batch = upsample_batch_to_divisible_size(batch, multiple, self.tokenizer.eos_token_id)
            of_update = actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
            updates, rest = divmod(len(batch.tags), of_update)
            rows = rows_of(batch, range(len(batch.tags)), True)
            order, unbalance = evened(rows, ranks, 1 if rest else updates)
            batch.reorder(order)
        else:
            updates = self._problems // actor.ppo_mini_batch_size
            settings = updates, ranks, cobalt.share_prompts, self.tokenizer.eos_token_id
            batch, self._updates, unbalance = shared_out(batch, *settings)
        metrics.update(unbalance)
        self._computed_tokens = unbalance["global_seqlen/mean"] * ranks
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if has_own_old(self.config):
            return batch
        return super()._compute_old_log_prob(self._as_read(batch), metrics)

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._compute_ref_log_prob(self._as_read(batch), metrics)

    def _as_read(self, batch: Any) -> Any:
        """The batch with the columns that the next pass reads. veRL sends it all: messages, tests and scores, too."""
        if self.config.cobalt.share_prompts:  # other engines may read more
            batch.fields = [*READ_BY_PASSES]
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self._method is not None:
            batch.extra_info["num_mini_batch"] = self._updates  # see ``worker``
        own_old = has_own_old(self.config)
        batch.extra_info[OWN_OLD] = own_old
        batch = super()._update_actor(self._as_read(batch), metrics)
        if own_old:
            metrics["actor/entropy"] = metrics.pop("actor/entropy_loss")  # veRL's name for it in an update
        if self.config.cobalt.share_prompts:  # veRL counts what rows share with each of them
            rows = (tag for tag in batch.tags if not tag.get("is_padding", False))
            metrics[MFU] *= self._computed_tokens / sum(tag["prompt_len"] + tag["response_len"] for tag in rows)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Neutralise what could not be scored, then do as veRL does. Online, turns get advantages of their own.

        A response that is missing from its group was lost in the rollout: an infrastructure failure as well.
        """
        passes_end = None
        if scores_later(self.config):
            passes_end, manager = time.time(), cast(Any, self.agent_loop_manager)
            manager.wait_for_scores()
        where = {"keys": batch.keys, "partition_id": batch.partition_id}
        data: Any = tq.kv_batch_get(**where, select_fields=["rm_scores", "extra_fields"])
        trajectories, fields_B = trajectories_of(batch), list(data["extra_fields"])
        problems = {row: problem for (problem, _), rows_T in trajectories.items() for row in rows_T}
        infos: dict[int, dict[str, Any]] = {row: fields_B[row].get("reward_extra_info", {}) for row in sorted(problems)}
        refuse_errors(info.get(ERROR) for info in infos.values())
        metrics.update(judging_metrics(infos.values(), passes_end))
        scores_B = [scores.clone() for scores in data["rm_scores"].unbind()]
        samples = self.config.actor_rollout_ref.rollout.n
        samples_of = Counter(problem for problem, _ in trajectories)
        lost = [problem for problem, count in samples_of.items() for _ in range(samples - count)]
        advantages: dict[int, float] = {}
        silent: set[int] = set()
        if self._method is None:
            totals = {row: None if infos[row].get(INFRA) else float(scores_B[row].sum()) for row in infos}
            rewards, silent = neutralised(totals, problems, lost)
            for row, total in rewards.items():
                scores_B[row] = torch.zeros_like(scores_B[row])
                scores_B[row][-1] = total
            if rewards:
                self._put(where, rm_scores=scores_B)
        else:
            programs_N = []
            for rows_T in trajectories.values():
                info = infos[rows_T[0]]  # the same in all rows of a trajectory
                programs_N.append(None if info[INFRA] else [Program(**program) for program in info[PROGRAMS]])
                for row, program in zip(rows_T, programs_N[-1] or [None] * len(rows_T), strict=True):
                    infos[row] = {INFRA: 1.0} if program is None else {**program.score, INFRA: 0.0}
                    scores_B[row][-1] = 0.0 if program is None else program.score["score"]
            metrics[f"cost/{OVERLONG}"] = sum(bool(fields_B[row].get(OVERLONG)) for row in infos)
            rows_N = [*trajectories.values(), *[()] * len(lost)]
            problems_N = [*(problem for problem, _ in trajectories), *lost]
            advantages = turn_advantages(rows_N, problems_N, [*programs_N, *[None] * len(lost)], self._method)
            self._put(where, rm_scores=scores_B)
        missing = max(0, self._problems * samples - len(trajectories))
        names = dict.fromkeys([name for info in infos.values() for name in info] + [INFRA] * (missing > 0))
        columns = {name: [info.get(name, 0.0) for info in infos.values()] for name in names}
        index_of = {row: index for index, row in enumerate(infos)}
        played = [[index_of[row] for row in rows_T] for rows_T in trajectories.values()] if self._method else []
        metrics.update(reward_metrics(columns, played, missing))
        metrics.update(turn_metrics(columns))
        if f"reward/{INFRA}" in metrics:  # else another reward manager's
            self._guard.note(metrics[f"reward/{INFRA}"])
        batch = super()._compute_advantage(batch, metrics)
        if self._method is not None:
            given = [torch.full_like(scores, advantages.get(row, 0.0)) for row, scores in enumerate(scores_B)]
            self._put(where, advantages=given, returns=given)
        elif silent:
            found: Any = tq.kv_batch_get(**where, select_fields=["advantages"])
            given = [
                torch.zeros_like(own) if row in silent else own for row, own in enumerate(found["advantages"].unbind())
            ]
            self._put(where, advantages=given, returns=given)
        return batch

    def _val_metrics_update(
        self,
        data_sources: Any,
        sample_uids: Any,
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: Any,
        expected_acc_counts: Any = None,
    ) -> Any:
        """veRL's metrics of validation. What was lost or could not be scored counts as the mean of the others."""
        infos = reward_extra_infos_dict
        refuse_errors(infos.get(ERROR, ()))
        sources, uids = with_lost(data_sources, sample_uids, infos, expected_acc_counts or {})
        return super()._val_metrics_update(sources, uids, infos, sample_turns, expected_acc_counts)

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
        metrics[GPUS] = gpus_of(self.config.trainer)
        metrics["cost/responses"] = len(tags)
        metrics["cost/prompt_tokens"] = sum(tag["prompt_len"] for tag in tags)
        metrics["cost/response_tokens"] = sum(tag["response_len"] for tag in tags)


@register_trainer(f"{TRAINER_PREFIX}sync")
class CobaltTrainerSync(CobaltTrainer, PPOTrainerSync):
    """Rollouts of a step, then its update."""

    def get_llm_client(self) -> Any:
        """veRL's where its routing is asked for, or whole problems would not be equally many for each server."""
        manager, rollout = self.llm_server_manager, self.config.actor_rollout_ref.rollout
        servers = dict(zip(manager.server_addresses, manager.server_handles, strict=True))
        if rollout.router_config_path or rollout.full_determinism or self._problems % len(servers):
            return super().get_llm_client()
        return manager.get_client(GroupClient, servers=servers)


@register_trainer(f"{TRAINER_PREFIX}colocate_async")
class CobaltTrainerColocateAsync(CobaltTrainer, PPOTrainerColocateAsync):
    """Updates begin when enough groups are finished. Unfinished responses go on after them, by the newer policy."""
