"""Online multi-turn training (GRPO-MT, VeRPO-MT) on veRL 0.5.0: docs/training.md.

How the policy plays (``MultiTurn``), what veRL and its trainer get of that (rows), and how programs become rewards and
advantages (``OnlineRewardManager``).

The protocol is that of ``run_multi_turn_vllm.py --enable_thinking``: public tests give feedback, and the history holds
what follows a response's thinking. A trajectory ends when a program passes all public tests (``stop_at_success``), at
the last turn, when the next prompt would be too long, or by an infrastructure failure.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.nn.functional import pad
from verl import DataProto

from cobalt.completion import Message
from cobalt.errors import InfraError, InputError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.prompts import feedback_message, feedback_to_policy, with_feedback
from cobalt.rewards.online import against_others, discounted_sum, normalised, verpo_mt_advantages
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.serving.execution import Runs
from cobalt.training.batch_scores import MIN_VALID_SHARE, neutralise_groups, shared_costs
from cobalt.training.manager import CobaltRewardManager, response_lengths, width_of
from cobalt.training.scoring import SERVICE_ERRORS, Batch, RewardSettings, Score, is_finished
from cobalt.training.settings import Method

TRAJECTORY, TURN, ADVANTAGE = "trajectory", "turn", "advantage"
"""Columns: the row's trajectory in the batch, its turn, and the advantage that the manager gives it."""
ROLLOUT_FAILED = "rollout_failed"
"""Column: whether the infrastructure ended the row's trajectory."""
OVERLONG = "rollout_overlong"
"""Column, and a cost: whether the row's trajectory ended because its next prompt would have been too long."""
MINI_BATCHES = "mini_batches"
"""Key of ``meta_info``: the number of optimizer steps in the batch. The number of its rows varies."""


@dataclass(frozen=True)
class Request:
    """A prompt's token ids, and the seed of the one response to it (engines with seeds of their own ignore it)."""

    prompt: tuple[int, ...]
    seed: int


OnFinished = Callable[[int, list[int]], None]
"""Takes a request's index and its response's token ids, the end token included."""
Generate = Callable[[Sequence[Request], OnFinished], None]
"""Samples a response to every request, and hands each over as soon as it is complete, from any thread."""
Submit = Callable[[str | None, TestCases], "Future[ExecutionResult]"]


@dataclass
class Trajectory:
    """One conversation of the policy. ``prompts`` and ``responses`` have one entry of token ids per turn played."""

    messages: list[Message]
    next_prompt: tuple[int, ...]
    seeds_T: Sequence[int]
    tests: TestCases | None
    """Public ones; None with a single turn."""
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    open: bool = True
    failed: bool = False
    """An infrastructure failure ended it: nothing may be learned from it."""
    overlong: bool = False
    """It ended because its next prompt would have been too long."""


class MultiTurn:
    """Plays the trajectories of a batch with any engine, as veRL's workers call it."""

    def __init__(
        self,
        method: Method,
        reward: RewardSettings,
        tokenizer: Any,
        config: Any,
        template: Mapping[str, Any] = MappingProxyType({}),
    ):
        """``config``: veRL's ``rollout``; ``template``: arguments of the chat template beside the messages."""
        self._method, self._reward, self._tokenizer, self._template = method, reward, tokenizer, template
        self._max_prompt, self._max_response = config.prompt_length, config.response_length

    def rollout(self, prompts: DataProto, generate: Generate, seeds_B: Sequence[int]) -> DataProto:
        """Rows for ``prompts`` (B = trajectories × turns); ``seeds_B``: of each row's response.

        The next turn begins when all programs of a turn have run. Raises ``InputError`` where turns are to follow and
        the data holds no tests to give feedback.
        """
        turns, columns, trajectories = self._method.turns, prompts.non_tensor_batch, []
        for row in range(0, len(prompts), turns):
            messages, ids, tools = (columns[name][row] for name in ("raw_prompt", "raw_prompt_ids", "tools_kwargs"))
            trajectories.append(self.begin(messages, ids, tools, turns, seeds_B[row : row + turns]))
        waited_s = 0.0
        with background_programs(self._reward) as (submit, work_done):
            for turn in range(turns):
                playing = [trajectory for trajectory in trajectories if trajectory.open]
                if not playing:
                    break
                runs = self._generate(turn, playing, generate, submit)
                started = time.monotonic()
                results = {index: run.result() for index, run in runs.items()}
                waited_s += time.monotonic() - started
                for index, result in results.items():
                    self.go_on(playing[index], result)
        overlong = sum(trajectory.overlong for trajectory in trajectories)
        costs = {"execution_wait_s": waited_s, "overlong": overlong, **work_done}
        return rows_of(trajectories, turns, self._max_prompt, self._max_response, self._tokenizer.pad_token_id, costs)

    def begin(
        self, messages: Any, prompt: Sequence[int], tools_kwargs: Any, turns: int, seeds_T: Sequence[int] = ()
    ) -> Trajectory:
        """A trajectory of at most ``turns``. ``tools_kwargs``: of the data. Raises ``InputError`` (``rollout``)."""
        tests = (tools_kwargs or {}).get("public_test_cases") if turns > 1 else None
        if tests is None and turns > 1:
            raise InputError(
                "the training data lack extra_info.tools_kwargs.public_test_cases, whose feedback the turns show: "
                "make them with preproc/verl_preproc_single_turn.py from problems with public_test_cases"
            )
        public = None if tests is None else TestCases.parse(tests)
        return Trajectory(list(messages), tuple(prompt), seeds_T, public)

    def _generate(
        self, turn: int, playing: Sequence[Trajectory], generate: Generate, submit: Submit
    ) -> "dict[int, Future[ExecutionResult]]":
        """Sample a response for each trajectory. Returns the runs of their programs; none in the last turn.

        A program runs from the moment that its response is complete, while others are still generated.
        """
        runs: dict[int, Future[ExecutionResult]] = {}

        def finished(index: int, response: list[int]) -> None:
            trajectory = playing[index]
            code = self.take(trajectory, response)
            if trajectory.tests is not None and turn + 1 < self._method.turns:
                runs[index] = submit(code, trajectory.tests)

        generate([Request(trajectory.next_prompt, trajectory.seeds_T[turn]) for trajectory in playing], finished)
        return runs

    def take(self, trajectory: Trajectory, response: list[int]) -> str | None:
        """Add the response of a turn. Returns its program, as the reward manager reads it."""
        trajectory.prompts.append(trajectory.next_prompt)
        trajectory.responses.append(response)
        if self._reward.require_end and not self._has_end(response):
            return None
        return extract_code(self._text_of(response), self._reward.extraction)

    def go_on(self, trajectory: Trajectory, result: ExecutionResult) -> None:
        """Make the next prompt from what the program of this turn did, or end the trajectory."""
        trajectory.failed = result.infra_error is not None
        trajectory.open = not trajectory.failed and not (result.solved and self._method.stop_at_success)
        if trajectory.open and trajectory.tests is not None:
            text, was_cut = self._text_of(trajectory.responses[-1]), not self._has_end(trajectory.responses[-1])
            answer = history_text(text, True, self._reward.extraction, was_cut)
            feedback = feedback_message(feedback_to_policy(with_feedback(result, trajectory.tests)))
            trajectory.messages += [{"role": "assistant", "content": answer}, feedback]
            # token ids are made as veRL makes those of its data
            settings = {**self._template, "add_generation_prompt": True, "tokenize": False}
            text = self._tokenizer.apply_chat_template(trajectory.messages, **settings)
            trajectory.next_prompt = tuple(self._tokenizer.encode(text, add_special_tokens=False))
            trajectory.overlong = len(trajectory.next_prompt) > self._max_prompt
            trajectory.open = not trajectory.overlong

    def _has_end(self, response: list[int]) -> bool:
        return is_finished(response, self._max_response, self._tokenizer.eos_token_id)

    def _text_of(self, response: list[int]) -> str:
        return self._tokenizer.decode(response, skip_special_tokens=True)


@contextmanager
def background_programs(settings: RewardSettings) -> Iterator[tuple[Submit, dict[str, float]]]:
    """Runs programs while the policy generates: an event loop with the execution service, in a thread of its own.

    Gives ``submit``, for any thread, and what was run (``work_done``), filled in at the end. Equal programs run once.
    A failure of the service is a result with ``infra_error``, never an exception.
    """
    loop, stack, work_done = asyncio.new_event_loop(), AsyncExitStack(), dict[str, float]()
    thread = threading.Thread(target=loop.run_forever, name="programs")
    thread.start()
    opening = asyncio.run_coroutine_threadsafe(stack.enter_async_context(settings.open_service()), loop)
    runs: Runs = {}

    async def run(code: str | None, tests: TestCases) -> ExecutionResult:
        try:
            service = await asyncio.shield(asyncio.wrap_future(opening))
            return await service.run(code, tests, runs)
        except SERVICE_ERRORS as error:
            return ExecutionResult.infra(len(tests), str(error))

    try:
        yield lambda code, tests: asyncio.run_coroutine_threadsafe(run(code, tests), loop), work_done
    finally:
        with suppress(*SERVICE_ERRORS):  # the service never opened
            work_done.update(opening.result().work_done())
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def rows_of(
    trajectories: Sequence[Trajectory], turns: int, prompt_width: int, width: int, pad_token: int, costs: Mapping
) -> DataProto:
    """One row per trajectory and turn, those of a trajectory adjacent; ``width``: of responses.

    veRL repeats each prompt ``rollout.n`` times, which is samples × turns here, and wants as many rows back. A row
    after the end holds one prompt token, which models need, and no response. The trainer drops it, so the rows with a
    response share the costs.
    """
    rows: list[tuple[Sequence[int], Sequence[int]]] = []
    for trajectory in trajectories:
        played = [*zip(trajectory.prompts, trajectory.responses, strict=True)]
        rows += played + [(trajectory.prompts[0][-1:], [])] * (turns - len(played))
    batch = padded(rows, prompt_width, width, pad_token)
    failed = np.repeat([trajectory.failed for trajectory in trajectories], turns)
    named = {ROLLOUT_FAILED: failed.astype(object)}
    live_B = batch["attention_mask"][:, prompt_width:].any(1).numpy()
    for name, shares in shared_costs("rollout", costs, int(live_B.sum())).items():
        named[name] = np.where(live_B, shares[0], 0.0).astype(object)
    return DataProto(batch=batch, non_tensor_batch=named)


def padded(rows: Sequence[tuple[Sequence[int], Sequence[int]]], prompt_width: int, width: int, pad_token: int) -> Any:
    """veRL's tensors of rows (prompt, response): prompts padded on their left, responses on their right."""
    tensors, places = [], torch.arange(prompt_width + width)
    for prompt, response in rows:
        before = prompt_width - len(prompt)
        prompts = pad(torch.tensor(prompt), (before, 0), value=pad_token)
        responses = pad(torch.tensor(response, dtype=torch.long), (0, width - len(response)), value=pad_token)
        tensors.append(
            {
                "prompts": prompts,
                "responses": responses,
                "input_ids": torch.cat([prompts, responses]),
                "attention_mask": ((places >= before) & (places < prompt_width + len(response))).long(),
                "position_ids": (places - before).clamp(min=0),  # they count valid tokens, and then go on
            }
        )
    batch = {name: torch.stack([row[name] for row in tensors]) for name in tensors[0]}
    return TensorDict(batch, batch_size=len(rows))


def kept_rows(live_B: list[bool], unit: int) -> list[int]:
    """Indices of the live rows, in order, and of the fewest others that make the count a multiple of ``unit``.

    The others are spread evenly over ranks and micro-batches.

    >>> kept_rows([True, False, True, True, False, False], 2)
    [0, 2, 1, 3]
    """
    live = [index for index, is_live in enumerate(live_B) if is_live]
    fillers = [index for index, is_live in enumerate(live_B) if not is_live][: -len(live) % unit]
    total = len(live) + len(fillers)
    places = {int((number + 0.5) * total / len(fillers)) for number in range(len(fillers))}
    live_rows, filler_rows = iter(live), iter(fillers)
    return [next(filler_rows if place in places else live_rows) for place in range(total)]


def drop_rows_after_end(batch: Any, turns: int, rows_of_problem: int, mini_batches: int, unit: int) -> None:
    """Name the trajectory and turn of the rows of veRL's ``batch`` and drop those without a response, in place.

    Each problem's rows then come turn by turn, so that those with the same prompt are adjacent. The rows of an
    optimizer step are a multiple of ``unit``.
    """
    numbers_B = np.arange(len(batch))
    batch.non_tensor_batch[TRAJECTORY], batch.non_tensor_batch[TURN] = numbers_B // turns, numbers_B % turns
    batch.reorder(torch.from_numpy(np.lexsort((numbers_B % turns, numbers_B // rows_of_problem))))
    live_B = batch.batch["response_mask"].any(-1).tolist()
    batch.reorder(torch.tensor(kept_rows(live_B, mini_batches * unit)))
    batch.meta_info[MINI_BATCHES] = mini_batches


def played_rows(batch: Any) -> list[list[int]]:
    """Rows of each trajectory that have a response, in the order of turns. Empty if the rows are no trajectories."""
    if TRAJECTORY not in batch.non_tensor_batch:
        return []
    rows_of_trajectory: dict[int, list[int]] = defaultdict(list)
    for row, (number, length) in enumerate(
        zip(batch.non_tensor_batch[TRAJECTORY], response_lengths(batch), strict=True)
    ):
        if length:
            rows_of_trajectory[number].append(row)
    return [*rows_of_trajectory.values()]


def shares_of_updates(trajectories: Sequence[Sequence[int]], updates: int) -> list[list[int]]:
    """The rows of each optimizer update: neighbouring trajectories, whole, and about equally many rows.

    Every update gets a trajectory. With fewer trajectories than ``updates`` there are fewer updates.

    >>> shares_of_updates([[0, 1, 2], [3], [4, 5], [6], [7, 8, 9]], 2)
    [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    """
    ends_N, updates = np.cumsum([len(rows) for rows in trajectories]), min(updates, len(trajectories))
    cuts = [0]
    for number in range(1, updates):
        allowed_N = np.arange(cuts[-1] + 1, len(trajectories) - (updates - number) + 1)
        distances_N = np.abs(ends_N[allowed_N - 1] - ends_N[-1] * number / updates)
        cuts.append(int(allowed_N[distances_N.argmin()]))
    parts = [trajectories[start:end] for start, end in pairwise([*cuts, len(trajectories)])]
    return [[row for rows in part for row in rows] for part in parts]


def with_given_advantages(batch: Any) -> Any:
    """``batch`` with the advantages that the manager gave its rows, at every token of their responses."""
    advantages_B = torch.tensor(batch.non_tensor_batch[ADVANTAGE].astype(np.float32))
    batch.batch["advantages"] = batch.batch["returns"] = advantages_B[:, None] * batch.batch["response_mask"]
    return batch


@dataclass(frozen=True)
class Program:
    """A turn's program as it was judged."""

    score: Score
    passed_K: tuple[bool, ...]
    """Its result on each of the problem's tests; VeRPO's only."""


class OnlineRewardManager(CobaltRewardManager):
    """The reward manager of online training, known to veRL as ``cobalt_online``.

    Each program gets the reward that the bandit gives it in the same context: the best pass rate so far is that of its
    own trajectory. From all programs of a group come the advantages, which the trainer takes as they are.

    What the infrastructure failed is neutral, by trajectories: one with a failed program gets advantage 0 in all turns,
    and a group with fewer than half of its trajectories valid too.
    """

    def __init__(self, method: Method, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.method = method

    def __call__(self, data: DataProto, return_dict: bool = False) -> Any:
        """The bandit's result with ``advantage`` as one more named score. Validation is the bandit's own."""
        if data.meta_info.get("validate", False):
            return super().__call__(data, return_dict)
        items, rows_N = self.items(data, width_of(data)), played_rows(data)

        async def judge(rows: list[int], batch: Batch) -> list[Program]:
            failed = data.non_tensor_batch[ROLLOUT_FAILED][rows[0]]
            return await self.programs([items[row] for row in rows], failed, batch)

        judged_N, work = self.judged(judge, rows_N, validate=False)
        outcomes: dict[int, Score | Exception] = {}
        for rows, judged in zip(rows_N, judged_N, strict=True):
            for turn, row in enumerate(rows):
                outcomes[row] = judged if isinstance(judged, Exception) else judged[turn].score
        problems_N = [data.non_tensor_batch["uid"][rows[0]] for rows in rows_N]
        programs_N = [None if isinstance(judged, Exception) else judged for judged in judged_N]
        advantages = turn_advantages(rows_N, problems_N, programs_N, self.method)
        columns = {ADVANTAGE: [advantages.get(row, 0.0) for row in range(len(data))]}
        return self.rewards(data, outcomes, work, return_dict, **columns)

    async def programs(self, items: Sequence[dict[str, Any]], rollout_failed: bool, batch: Batch) -> list[Program]:
        """The programs of a trajectory, judged. ``items``: of its turns. Raises one of ``SERVICE_ERRORS``."""
        if rollout_failed:
            raise InfraError("a program could not be run during the rollout")
        best: float = items[0]["extra_info"].get("prev_best_pass_rate") or 0.0
        programs = []
        for item in items:
            item["extra_info"]["prev_best_pass_rate"] = best
            score = await self.score(item, batch)
            best = max(best, score.get("pass_rate", 0.0))
            passed_K: tuple[bool, ...] = ()
            if self.method.method == "verpo":
                info = item["extra_info"]
                code = extract_code(item["solution_str"], info["extraction"]) if info["finished"] else None
                passed_K = (False,) * len(TestCases.parse(item["ground_truth"]))
                if code is not None:  # free if the reward function ran it: its result is kept
                    passed_K = (await batch.execute(code, item["ground_truth"])).passing
            programs.append(Program(score, passed_K))
        return programs


def turn_advantages(
    rows_N: Sequence[Sequence[int]],
    problems_N: Sequence[Any],
    programs_N: Sequence[Sequence[Program] | None],
    method: Method,
) -> dict[int, float]:
    """The advantage of each row. ``rows_N``: of a trajectory, turn by turn; ``programs_N``: None if not judged."""
    groups: dict[Any, list[int]] = defaultdict(list)  # indices of trajectories
    for index, problem in enumerate(problems_N):
        groups[problem].append(index)
    advantages: dict[int, float] = {}
    for group in groups.values():
        values_NT = group_advantages([programs_N[index] for index in group], method)
        for index, values_T in zip(group, values_NT, strict=True):  # values, also of turns that were not played
            advantages |= {row: float(value) for row, value in zip(rows_N[index], values_T, strict=False)}
    return advantages


def group_advantages(programs_NT: Sequence[Sequence[Program] | None], method: Method) -> np.ndarray:
    """(N, T) of the trajectories of one problem; None: the infrastructure failed one of its programs."""
    shape = len(programs_NT), method.turns
    if method.method == "grpo":
        scores_N: list[float | None] = []
        for programs in programs_NT:
            rewards_T = [program.score["score"] for program in programs or ()]
            is_sum = method.trajectory_score == "sum"
            score = discounted_sum(np.array(rewards_T), method.gamma) if is_sum else (rewards_T or [0.0])[-1]
            scores_N.append(None if programs is None else score)
        values_N = normalised(np.array(neutralise_groups(scores_N, [0] * len(scores_N))))
        return np.broadcast_to(values_N[:, None], shape)
    valid = [programs for programs in programs_NT if programs is not None]
    if len(valid) < MIN_VALID_SHARE * len(programs_NT):
        return np.zeros(shape)
    passed_NTK, mask_NT = np.zeros((*shape, len(valid[0][0].passed_K)), bool), np.zeros(shape, bool)
    for index, programs in enumerate(programs_NT):
        for turn, program in enumerate(programs or ()):
            passed_NTK[index, turn], mask_NT[index, turn] = program.passed_K, True
    compare = against_others if method.turn_baseline == "others" else normalised
    weights = method.gamma, method.smoothing, method.outcome_weight
    return verpo_mt_advantages(passed_NTK, mask_NT, *weights, compare)
