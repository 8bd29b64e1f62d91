"""The reward manager: it scores each trajectory as soon as it is generated.

A reward worker is a process with one event loop. It holds one connection to the execution service as long as it lives.
In online training the processes of agent loops run programs, too. With ``executor=local`` all share one executor.
Equal programs of trajectories that are scored at the same time run once.
A failure of the infrastructure is no verdict: such a trajectory gets ``infra`` 1, and the trainer makes it neutral.
Any other error ends training. veRL would drop the response and train on the rest, so ``error`` tells the trainer.
"""

import asyncio
import math
import time
import traceback
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import ray
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from cobalt.errors import CobaltError, first_line
from cobalt.sandbox import ExecutionResult
from cobalt.sandbox.executor import Tests, parse_program
from cobalt.serving.execution import ExecutionService, Runs
from cobalt.training.online import ROLLOUT_FAILED, TrajectoryScorer
from cobalt.training.responses import ResponseScorer, follows_context
from cobalt.training.scoring import ARRIVED, INFRA, SCORE_NAMES, SCORED, Batch, RewardSettings, service_errors
from cobalt.training.settings import Method

PROGRAMS = "programs"
"""Key of ``reward_extra_info`` in online training: the judged programs of the trajectory, as dictionaries."""
FAILURE_S = 5.0
"""How long to wait between a failed attempt to reach the execution service and the next one."""
ERROR = "ends_training"
"""Key of ``reward_extra_info``: what the trainer has to end training with."""
VALIDATES = "validates"
"""Column: whether veRL validates. ``CobaltAgentLoopManager`` adds it; veRL's own tells nobody (its issue 7121)."""


def unscored(error: Exception) -> dict[str, Any]:
    """The result for a response without a score, because of the infrastructure or by an error that ends training."""
    # NaN, since veRL's filter (algorithm.filter_groups) would take zeros for a group of equal rewards
    info: dict[str, Any] = {**dict.fromkeys(SCORE_NAMES, math.nan), INFRA: 1.0}
    if isinstance(error, service_errors()):
        print(f"cobalt: INFRA FAILURE: a response was not scored: {error}", flush=True)
    else:
        traceback.print_exception(error)
        name = "" if isinstance(error, CobaltError) else f"{type(error).__name__}: "
        info[ERROR] = f"{name}{first_line(error)}"
    return {"reward_score": math.nan, "reward_extra_info": info}


class SharedService:
    """One connection to what runs programs, for one event loop. It is opened when it is asked for, and stays open."""

    def __init__(self, reward: RewardSettings, service: ExecutionService | None = None):
        """``service``: an open one, if there is one."""
        self.stack = AsyncExitStack()
        self._reward, self._opening = reward, asyncio.Lock()
        self._service = service
        self._failure: Exception | None = None
        self._failed_at = 0.0

    async def opened(self) -> ExecutionService:
        """Raises one of ``service_errors``: the same to all who wait for an attempt, and for ``FAILURE_S`` after it."""
        async with self._opening:
            if self._failure is not None and time.monotonic() < self._failed_at + FAILURE_S:
                raise self._failure.with_traceback(None)
            if self._service is None:
                try:
                    self._service = await self.stack.enter_async_context(self._reward.open_service())
                except service_errors() as error:
                    self._failure, self._failed_at = error, time.monotonic()
                    raise
        return self._service


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class JobExecutor:
    """The local executor of a training in which several processes run programs: one budget of cores and memory."""

    def __init__(self, reward: RewardSettings):
        self._service = SharedService(reward)

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """As ``ExecutionService.run``. Raises one of ``service_errors``."""
        return await (await self._service.opened()).run(code, tests)


class JobExecutorClient:
    """The training's ``JobExecutor``, as ``ExecutionService`` takes an executor."""

    def __init__(self, reward: RewardSettings):
        actor: Any = JobExecutor
        self._actor = actor.options(name="cobalt_executor", get_if_exists=True).remote(reward)

    async def run(self, code: str | None, tests: Tests) -> ExecutionResult:
        """Raises what ``parse_program`` does, and one of ``service_errors``."""
        return await self._actor.run.remote(*parse_program(code, tests))


def service_of_online(reward: RewardSettings) -> SharedService:
    """What runs programs in online training, where agent loops and the reward worker are different processes."""
    if reward.executor == "serve":
        return SharedService(reward)
    return SharedService(reward, ExecutionService(JobExecutorClient(reward), max_in_flight=reward.max_in_flight))


class StreamingRewardManager(RewardManagerBase):
    """veRL's interface to our scorers. Their settings are ``config.reward.reward_kwargs`` and ``config.cobalt``."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_router: Any):
        super().__init__(config, tokenizer, compute_score)
        settings = tokenizer, compute_score, config.reward.get("reward_kwargs") or {}, config.data.reward_fn_key
        self._scorer, connect = ResponseScorer(*settings), SharedService
        if config.cobalt.get("online"):
            self._scorer, connect = TrajectoryScorer(Method(**config.cobalt.online), *settings), service_of_online
        self.service = connect(self._scorer.settings)
        self._width = config.actor_rollout_ref.rollout.response_length
        self._runs: Runs = {}  # of the trajectories that are scored now
        self._scoring = 0

    async def run_single(self, data: Any) -> dict[str, Any]:
        """``reward_score`` of a trajectory's last response, and ``reward_extra_info``: the reward's parts by name."""
        arrived = time.time()
        self._scoring += 1
        try:
            columns, responses = data.non_tensor_batch, data.batch["responses"]
            lengths = columns.get("response_len", [responses.shape[1]] * len(data))  # missing: one without padding
            ids = [row[: int(length)].tolist() for row, length in zip(responses, lengths, strict=True)]
            items = await asyncio.to_thread(self._scorer.items, ids, columns, self._width)
            validates = bool(columns[VALIDATES][-1])
            batch = Batch(await self.service.opened(), self._scorer.counter(), validates, self._runs)
            if validates or not isinstance(self._scorer, TrajectoryScorer):
                named, more = await self._scorer.score(items[-1], batch), {}
                if not validates:
                    named |= follows_context(items[-1])
            else:
                failed = columns["tool_extra_fields"][-1].get(ROLLOUT_FAILED, False)
                programs = await self._scorer.programs(items, failed, batch)
                named, more = dict(programs[-1].score), {PROGRAMS: [asdict(program) for program in programs]}
        except Exception as error:
            return unscored(error)
        finally:
            self._scoring -= 1
            if not self._scoring:
                self._runs.clear()
        times = {} if validates else {ARRIVED: arrived, SCORED: time.time()}
        return {"reward_score": named.pop("score"), "reward_extra_info": {**named, INFRA: 0.0, **more, **times}}
