"""veRL 0.9.1's trainers whose rollouts share the trainer's GPUs, with what training on programs needs.

Added to each step: responses that the infrastructure lost or failed to score teach nothing, rows of a problem stay
together, and the reward's parts, the costs and the engines' mismatch are metrics. Training ends with its budget, where
too many responses cannot be scored, or by an error in the reward. Online, an optimizer update gets whole trajectories.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import (
    AgentLoopManagerTQ,
    PPOTrainer,
    PPOTrainerColocateAsync,
    PPOTrainerSync,
    register_trainer,
)
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils as tu

from cobalt.errors import CobaltError, InputError, SetupError
from cobalt.records.training_run import append_metrics
from cobalt.training.batch_scores import InfraGuard, fill_with_mean, neutralise_groups, reward_metrics
from cobalt.training.online import OVERLONG, Program, shares_of_updates, turn_advantages
from cobalt.training.scoring import INFRA, RewardSettings
from cobalt.training.settings import TOKENS, Method
from cobalt.training.shared_prompts import Rows, balanced_rows, rows_by_prefix
from cobalt.training.training_log import budget_of
from cobalt.training.verl09.config import MANAGER, TRAINER_PREFIX
from cobalt.training.verl09.manager import ERROR, PROGRAMS, VALIDATES
from cobalt.training.verl09.worker import CobaltWorker

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


class CobaltAgentLoopManager(AgentLoopManagerTQ):
    """veRL's. It also tells agent loops and the reward manager whether a row is for validation."""

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Begin the rollouts of ``prompts``."""
        tu.assign_non_tensor_data(prompts, VALIDATES, "validate" in prompts and prompts["validate"])
        super().generate_sequences(prompts)


class CobaltReplayBuffer(ReplayBuffer):
    """veRL's. Raises ``SetupError`` where not a single response of a batch came back."""

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        uids, rows, steps = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        if not {key.split("_")[0] for key in rows} & set(uids):
            raise SetupError(
                f"stopped: all responses to {len(uids)} prompts were lost in the rollout; its log above has the errors"
            )
        return uids, rows, steps


class CobaltReplayBufferAsync(CobaltReplayBuffer, ReplayBufferAsync):
    """It also hands over groups with lost responses, as veRL's synchronous one does.

    veRL would generate others in their place, without end where all fail. The trainer counts what is lost.
    """

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        stale, filtered, failed, counts = super()._terminal_eviction_reasons(global_steps, partition_id)
        if self.max_off_policy_threshold is not None and self.max_off_policy_strategy == "drop":
            oldest = global_steps + 1 - self.max_off_policy_threshold
            stale = stale | {uid for uid in failed if self.prompt_global_steps[partition_id][uid] < oldest}
        return stale, filtered, set(), counts


def refuse_errors(errors: Iterable[str | None]) -> None:
    """Raise ``InputError`` for the first of the reward manager's ``errors`` (``manager.unscored``)."""
    if (error := next(filter(None, errors), None)) is not None:
        raise InputError(error)


def trajectories_of(batch: Any) -> dict[tuple[str, str], list[int]]:
    """The rows of each (problem, session), turn by turn, without veRL's padding. Those of a problem are neighbours."""
    places = [key.rsplit("_", 2) for key in batch.keys]
    numbers = {problem: number for number, problem in enumerate(dict.fromkeys(problem for problem, *_ in places))}
    found: dict[tuple[str, str], list[int]] = {}
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    for row in sorted(rows, key=lambda row: (numbers[places[row][0]], *map(int, places[row][1:]))):
        found.setdefault((places[row][0], places[row][1]), []).append(row)
    return found


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
        # veRL names the classes of its buffers; one of the user's own is kept
        kinds = {ReplayBuffer: CobaltReplayBuffer, ReplayBufferAsync: CobaltReplayBufferAsync}
        if (kind := kinds.get(type(buffer))) is not None:
            names = [*inspect.signature(ReplayBuffer.__init__).parameters][1:]
            buffer = kind(**{name: getattr(buffer, name) for name in names})
        buffer.poll_interval = POLL_S
        self._thrown_away: list[dict[str, Any]] = []
        buffer._clear_groups = partial(self._note_thrown_away, buffer, buffer._clear_groups)
        return buffer

    def _note_thrown_away(self, buffer: Any, clear: Callable[..., None], partition_id: str, uids: set[str]) -> None:
        """Keep what responses cost that no step trains on, as those of the filter's groups; then clear them."""
        rows = buffer.partitions[partition_id].items()
        self._thrown_away += [tag for key, tag in rows if key.split("_")[0] in uids]
        clear(partition_id, uids)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self._method is not None:
            self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(CobaltWorker))

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
        if self._method is not None:
            return self._share_out(batch, metrics)
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        if not self.config.cobalt.share_prompts:
            return batch
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        rows, unbalance = balanced_rows(self._rows_of(batch, range(len(batch.tags))), ranks)
        batch.reorder(rows)
        metrics.update(unbalance)
        return batch

    def _share_out(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Online: whole trajectories to updates, and the rows of each update to the ranks.

        veRL's mini-batches have a fixed number of rows, and a trajectory up to as many rows as turns. Padding fills up
        the updates, evenly over ranks.
        """
        ours, actor, group = self.config.cobalt, self.config.actor_rollout_ref.actor, self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        ranks, count = max(group._dispatch_info["actor"]) + 1, len(batch)
        wanted = self._problems // actor.ppo_mini_batch_size
        shares = shares_of_updates([*trajectories_of(batch).values()], wanted)
        self._updates = len(shares)
        # of each rank: the release's weights count rows by so many
        unit = ranks * (1 if ours.loss_weights == TOKENS else actor.ppo_micro_batch_size_per_gpu)
        size = math.ceil(max(map(len, shares)) / unit) * unit
        batch = upsample_batch_to_divisible_size(batch, size * len(shares), self.tokenizer.eos_token_id)
        padding, found = iter(range(count, len(batch))), Counter[str]()
        rows_of_ranks: list[list[int]] = [[] for _ in range(ranks)]
        for share in shares:
            fillers = [(size - len(share) + rank) // ranks for rank in range(ranks)]
            order, unbalance = balanced_rows(self._rows_of(batch, share), ranks, fillers)
            found.update(unbalance)  # ranks wait for each other at each update
            rows = iter(order)
            for of_rank, more in zip(rows_of_ranks, fillers, strict=True):
                of_rank += [share[row] for row in islice(rows, size // ranks - more)]
                of_rank += islice(padding, more)
        batch.reorder([row for of_rank in rows_of_ranks for row in of_rank])
        metrics.update(found)
        return batch

    def _rows_of(self, batch: Any, rows: Iterable[int]) -> Rows:
        """What these rows share; nothing if each prompt is computed for itself."""
        tags = [batch.tags[row] for row in rows]
        responses = tuple(tag["response_len"] for tag in tags)
        if not self.config.cobalt.share_prompts:
            return Rows(tuple(range(len(tags))), tuple(tag["prompt_len"] for tag in tags), responses, (0,) * len(tags))
        keys = [batch.keys[row] for row in rows]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["prompts"])
        return rows_by_prefix(list(data["prompts"].unbind()), responses)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self._method is not None:
            batch.extra_info["num_mini_batch"] = self._updates  # see ``worker``
        return super()._update_actor(batch, metrics)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """First make neutral what could not be scored; then as veRL. Online, turns get advantages of their own.

        A response that is missing from its group was lost in the rollout: an infrastructure failure as well.
        """
        where = {"keys": batch.keys, "partition_id": batch.partition_id}
        data = tq.kv_batch_get(**where, select_fields=["rm_scores", "extra_fields"])
        trajectories, fields_B = trajectories_of(batch), list(data["extra_fields"])
        problems = {row: problem for (problem, _), rows_T in trajectories.items() for row in rows_T}
        infos: dict[int, dict[str, Any]] = {row: fields_B[row].get("reward_extra_info", {}) for row in sorted(problems)}
        refuse_errors(info.get(ERROR) for info in infos.values())
        scores_B = [scores.clone() for scores in data["rm_scores"].unbind()]
        samples = self.config.actor_rollout_ref.rollout.n
        found = Counter(problem for problem, _ in trajectories)
        lost = [problem for problem, count in found.items() for _ in range(samples - count)]
        advantages: dict[int, float] = {}
        if self._method is None:
            totals = {row: None if infos[row].get(INFRA) else float(scores_B[row].sum()) for row in infos}
            if lost or None in totals.values():
                # GRPO gives the only response of a group its raw reward
                alone = {problem for problem in lost if found[problem] == 1}
                neutral = neutralise_groups(
                    [*totals.values(), *[None] * len(lost)], [*(problems[row] for row in totals), *lost]
                )
                for row, total in zip(totals, neutral, strict=False):
                    total = 0.0 if problems[row] in alone else total
                    if total != totals[row]:
                        scores_B[row] = torch.zeros_like(scores_B[row])
                        scores_B[row][-1] = total
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
        places = {row: place for place, row in enumerate(infos)}
        played = [[places[row] for row in rows_T] for rows_T in trajectories.values()] if self._method else []
        metrics.update(reward_metrics(columns, played, missing))
        if f"reward/{INFRA}" in metrics:  # else another reward manager's
            self._guard.note(metrics[f"reward/{INFRA}"])
        batch = super()._compute_advantage(batch, metrics)
        if self._method is not None:
            given = [torch.full_like(scores, advantages.get(row, 0.0)) for row, scores in enumerate(scores_B)]
            self._put(where, advantages=given, returns=given)
        return batch

    def _val_metrics_update(
        self,
        sources: list[str],
        uids: list[str],
        infos: dict[str, list[Any]],
        *args: Any,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> Any:
        """veRL's metrics of validation. What was lost or could not be scored counts as the mean of the others."""
        refuse_errors(infos.get(ERROR, ()))
        expected, found = expected_acc_counts or {}, Counter(zip(sources, uids, strict=True))
        if lost := [group for group, count in expected.items() for _ in range(count - found[group])]:
            infos.setdefault(INFRA, [0.0] * len(uids))
            for name, values in infos.items():
                values += [1.0 if name == INFRA else None] * len(lost)
            sources, uids = (
                [*known, *more] for known, more in zip((sources, uids), zip(*lost, strict=True), strict=True)
            )
        failed_B = infos.get(INFRA, [])
        if any(failed_B):
            for name in infos.keys() - {INFRA}:
                if any(isinstance(value, str) for value in infos[name]):
                    continue  # of another reward manager: veRL takes no mean of texts
                pairs = zip(infos[name], failed_B, strict=True)
                infos[name] = fill_with_mean([None if failed else value for value, failed in pairs])
        return super()._val_metrics_update(sources, uids, infos, *args, expected_acc_counts=expected_acc_counts)

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
