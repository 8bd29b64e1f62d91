"""What comes back from veRL's rollouts, and what was lost on the way."""

import asyncio
import gc
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import ray
import transfer_queue as tq
from cachetools import LRUCache
from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.llm_server import LLMServerClient

from cobalt.errors import InfraError, InputError, SetupError, first_line
from cobalt.training.batch_scores import fill_with_mean, neutralise_groups
from cobalt.training.cluster import as_written
from cobalt.training.config import scores_later
from cobalt.training.early import light_actor
from cobalt.training.manager import VALIDATES, unscored
from cobalt.training.scoring import INFRA

SCORE_COLUMNS = "rm_scores", "extra_fields"
"""Of veRL's queue."""
INFO = "reward_extra_info"
"""Key of ``extra_fields``."""
REMEMBERED = 10_000
"""Prompts, and trajectories, of which a process knows the server."""

Server = tuple[str, Any]
"""Of the engine: address and handle."""


class GroupClient(LLMServerClient):
    """Sends a problem's requests to one server, which reads their prompt once, and problems to the servers in turn.

    Each process does so for its own requests. veRL's asks one process about each request, 2,048 one after the other in
    a step on four GPUs, and gets the server with the fewest, so that all servers read all prompts.
    """

    def __init__(self, config: Any, servers: Mapping[str, Any], **of_verl: Any) -> None:
        """``servers``: handles by address."""
        super().__init__(config, **of_verl)
        self._servers = list(servers.items())
        self._start(0)

    def _start(self, number: int) -> None:
        self._next = number
        # server and requests of a group that still run, by its prompt's hash and by each trajectory
        self._groups: LRUCache[int, tuple[Server, set[str | None]]] = LRUCache(REMEMBERED)
        self._group_of: LRUCache[str | None, tuple[Server, set[str | None]]] = LRUCache(REMEMBERED)

    def of_process(self, number: int) -> Self:
        """For the ``number``-th process: else the first problems of all would go to the first server."""
        other = copy(self)
        other._start(number)
        return other

    async def _acquire_server(self, request_id: str, *, prompt_ids: Sequence[int], **_: Any) -> Server:
        if request_id not in self._group_of:
            prompt = hash(tuple(prompt_ids))
            server, requests = self._groups.get(prompt, (None, None))
            if not requests:  # in a later step the turn may be another server's
                server, requests = self._servers[self._next % len(self._servers)], set()
                self._next += 1
                self._groups[prompt] = server, requests
            requests.add(request_id)
            self._group_of[request_id] = self._groups[prompt]
        return self._group_of[request_id][0]

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        if request_id in self._group_of:
            self._group_of[request_id][1].discard(request_id)


class CobaltAgentLoopWorker(as_written(AgentLoopWorkerTQ)):
    """veRL's. A response of training is handed over when it is there, and its score when ``scored`` is asked for.

    So the log-probabilities of a step are computed while its last programs run.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._judged: list[asyncio.Task[dict[str, Any]]] = []
        gc.freeze()  # a search of all that was imported, for garbage, would hold up the responses of a step for 0.3 s

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        if kwargs[VALIDATES] or not scores_later(self.config) or self.reward_loop_worker_handles is None:
            return await super()._compute_score(outputs, kwargs)
        copies = [output.model_copy(update={"extra_fields": {**output.extra_fields}}) for output in outputs]
        self._judged.append(asyncio.create_task(self._score(copies, kwargs)))
        for output in outputs:  # the columns must be there
            output.reward_score = math.nan
            output.extra_fields[INFO] = {}

    async def _score(self, outputs: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The columns that a score changes, of each row of a trajectory, by its key."""
        last = outputs[-1]
        try:
            await super()._compute_score(outputs, kwargs)
            score, info = last.reward_score, last.extra_fields[INFO]
        except Exception as error:
            lost = unscored(InfraError(f"{type(error).__name__}: {first_line(error)}"))
            score, info = lost["reward_score"], lost[INFO]
        rows = {}
        for turn, output in enumerate(outputs):
            output.reward_score, output.extra_fields[INFO] = score, info
            columns = output.as_dict()
            rows[f"{kwargs['uid']}_{kwargs['session_id']}_{turn}"] = {name: columns[name] for name in SCORE_COLUMNS}
        return rows

    async def scored(self) -> None:
        """Hand over the scores of all responses that were handed over, when they are there."""
        judged, self._judged = self._judged, []
        rows = {key: row for rows in await asyncio.gather(*judged) for key, row in rows.items()}
        if rows:
            columns = tu.list_of_dict_to_tensordict([*rows.values()])
            await tq.async_kv_batch_put(keys=[*rows], partition_id="train", fields=columns)


class CobaltAgentLoopManager(AgentLoopManagerTQ):
    """veRL's. It also tells agent loops and the reward manager whether a row is for validation.

    Its workers' processes import what they need while model and engine start, and not when the first step waits.
    """

    _started: ClassVar[list[Any]] = []

    @classmethod
    async def start_workers(cls, config: Any) -> None:
        """Start the processes of the workers, which ``create`` then connects. ``config``: of the training."""
        early = cls(config, llm_client=None)
        early.agent_loop_workers_class = light_actor(CobaltAgentLoopWorker)
        await AgentLoopManagerTQ._init_agent_loop_workers(early)
        cls._started = early.agent_loop_workers

    async def _init_agent_loop_workers(self) -> None:
        self.agent_loop_workers = self._started
        client, rest = self.llm_client, (self.teacher_client, self.reward_loop_worker_handles)
        clients = [
            client.of_process(number) if isinstance(client, GroupClient) else client
            for number in range(len(self.agent_loop_workers))
        ]
        connecting = zip(self.agent_loop_workers, clients, strict=True)
        await asyncio.gather(*[worker.connect.remote(self.config, own, *rest) for worker, own in connecting])

    def wait_for_scores(self) -> None:
        """Until all responses of training that were handed over have their scores."""
        ray.get([worker.scored.remote() for worker in self.agent_loop_workers])

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Begin the rollouts of ``prompts``."""
        tu.assign_non_tensor_data(prompts, VALIDATES, "validate" in prompts and prompts["validate"])
        super().generate_sequences(prompts)


class CobaltReplayBuffer(ReplayBuffer):
    """veRL's. It hands over problems and responses in the order of the data, not in that of their coming.

    Sums over a batch depend on it, by roundings. Raises ``SetupError`` where not a single response came back.
    """

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> Any:
        in_order: Any = [uid for uid in self.prompt_global_steps[partition_id] if uid in sampleable_keys]
        uids, rows, steps = super()._select_prompt_uids(partition_id, in_order, batch_size)
        numbers = {uid: number for number, uid in enumerate(uids)}
        places = {key: place_of(key) for key in rows}
        kept = sorted((numbers[uid], *turn, key) for key, (uid, *turn) in places.items() if uid in numbers)
        if not kept:
            raise SetupError(
                f"stopped: all responses to {len(uids)} prompts were lost in the rollout; its log above has the errors"
            )
        return uids, {key: rows[key] for *_, key in kept}, steps


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


def place_of(key: str) -> tuple[str, int, int]:
    """Problem, session and turn of a row, whose ``key`` in veRL's queue is made of them."""
    problem, session, turn = key.rsplit("_", 2)
    return problem, int(session), int(turn)


def trajectories_of(batch: Any) -> dict[tuple[str, int], list[int]]:
    """The rows of each (problem, session), turn by turn, without veRL's padding. Those of a problem are neighbours."""
    numbers: dict[str, int] = {}
    places = []
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if not tag.get("is_padding", False):
            problem, session, turn = place_of(key)
            places.append((numbers.setdefault(problem, len(numbers)), session, turn, problem, row))
    found: dict[tuple[str, int], list[int]] = {}
    for _, session, _, problem, row in sorted(places):
        found.setdefault((problem, session), []).append(row)
    return found


def own_buffer(buffer: Any) -> Any:
    """veRL names the classes of its buffers. This is the same buffer of ours; one of the user's own is kept."""
    kinds = {ReplayBuffer: CobaltReplayBuffer, ReplayBufferAsync: CobaltReplayBufferAsync}
    if (kind := kinds.get(type(buffer))) is None:
        return buffer
    return kind(**{name: getattr(buffer, name) for name in [*inspect.signature(ReplayBuffer.__init__).parameters][1:]})


def neutralised(
    totals: Mapping[int, float | None], problems: Mapping[int, str], lost: Sequence[str]
) -> tuple[dict[int, float], set[int]]:
    """The rewards of the rows that need another than ``totals`` has, where None could not be scored; silent rows.

    Those must not move the policy, whatever is added to their rewards, as a KL penalty, and where deviations are not
    the group's: rows that could not be scored, of a group that is mostly that, or left alone of one. ``problems``: of
    the rows; ``lost``: the problem of each response that has no row.
    """
    if not lost and None not in totals.values():
        return {}, set()
    groups, found = [problems[row] for row in totals], Counter(problems.values())
    # GRPO gives the only response of a group its raw reward
    alone = {problem for problem in lost if found[problem] == 1}

    def filled(values: Iterable[float | None]) -> list[float]:
        return neutralise_groups([*values, *[None] * len(lost)], [*groups, *lost])

    scored = filled(None if total is None else 1.0 for total in totals.values())  # 0 in groups without enough
    rewards, silent = {}, set()
    for (row, total), problem, reward, share in zip(
        totals.items(), groups, filled(totals.values()), scored, strict=False
    ):
        if (own := 0.0 if problem in alone else reward) != total:
            rewards[row] = own
        if total is None or not share or problem in alone:
            silent.add(row)
    return rewards, silent


def with_lost(
    sources: list[str], uids: list[str], infos: dict[str, list[Any]], expected: Mapping[tuple[str, str], int]
) -> tuple[list[str], list[str]]:
    """Validation: ``sources`` and ``uids`` with a row for each lost response.

    In ``infos`` it, and what could not be scored, get the mean of the others. ``expected``: responses to each problem.
    """
    found = Counter(zip(sources, uids, strict=True))
    if lost := [group for group, count in expected.items() for _ in range(count - found[group])]:
        infos.setdefault(INFRA, [0.0] * len(uids))
        for name, values in infos.items():
            values += [1.0 if name == INFRA else None] * len(lost)
        sources, uids = [*sources, *(source for source, _ in lost)], [*uids, *(uid for _, uid in lost)]
    failed_B = infos.get(INFRA, [])
    if any(failed_B):
        for name in infos.keys() - {INFRA}:
            if not any(isinstance(value, str) for value in infos[name]):  # veRL takes no mean of texts
                pairs = zip(infos[name], failed_B, strict=True)
                infos[name] = fill_with_mean([None if failed else value for value, failed in pairs])
    return sources, uids
