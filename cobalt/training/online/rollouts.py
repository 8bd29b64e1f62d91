"""How the policy plays: program, feedback, next program, for all trajectories of a batch together.

The protocol is that of ``run_multi_turn_vllm.py --enable_thinking``: public tests give feedback, and the history holds
what follows a response's thinking. A trajectory ends when a program passes all public tests, at the last turn, when the
next prompt would be too long, or by an infrastructure failure. The programs of a turn run from the moment that their
responses are complete, while others are still generated; the next turn begins when all of them have run.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from verl import DataProto
from verl.utils import hf_tokenizer

from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.prompts import feedback_message, feedback_to_policy, with_feedback
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.serving.execution import Runs, open_execution_service
from cobalt.training.online.rows import Trajectory, rows_of
from cobalt.training.online.settings import OnlineSettings
from cobalt.training.scoring import SERVICE_ERRORS, RewardSettings, is_finished


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


class MultiTurn:
    """Plays the trajectories of a batch with any engine, as veRL's workers call it."""

    def __init__(self, settings: OnlineSettings, config: Any):
        """``config``: veRL's ``rollout``."""
        self._settings = settings
        self._max_prompt, self._max_response = config.prompt_length, config.response_length
        self._tokenizer = hf_tokenizer(settings.model)

    def rollout(self, prompts: DataProto, generate: Generate, seeds_B: Sequence[int]) -> DataProto:
        """Rows for ``prompts`` (B = trajectories × turns); ``seeds_B``: of each row's response.

        Raises ``InputError`` where turns are to follow and the data holds no tests to give feedback.
        """
        turns, columns, trajectories = self._settings.method.turns, prompts.non_tensor_batch, []
        for row in range(0, len(prompts), turns):
            tests = (columns["tools_kwargs"][row] or {}).get("public_test_cases")
            if tests is None and turns > 1:
                raise InputError(
                    "the training data lack extra_info.tools_kwargs.public_test_cases, whose feedback the turns show: "
                    "make them with preproc/verl_preproc_single_turn.py from problems with public_test_cases"
                )
            messages, ids = list(columns["raw_prompt"][row]), tuple(columns["raw_prompt_ids"][row])
            seeds_T, parsed = (
                seeds_B[row : row + turns],
                TestCases.parse(tests) if tests is not None and turns > 1 else None,
            )
            trajectories.append(Trajectory(messages, ids, seeds_T, parsed))
        waited_s = 0.0
        with background_programs(self._settings.reward) as (submit, work_done):
            for turn in range(turns):
                playing = [trajectory for trajectory in trajectories if trajectory.open]
                if not playing:
                    break
                runs = self._generate(turn, playing, generate, submit)
                started = time.monotonic()
                results = {index: run.result() for index, run in runs.items()}
                waited_s += time.monotonic() - started
                for index, result in results.items():
                    self._continue(playing[index], result)
        costs = {"execution_wait_s": waited_s, **work_done}
        return rows_of(trajectories, turns, self._max_prompt, self._max_response, self._tokenizer.pad_token_id, costs)

    def _generate(
        self, turn: int, playing: Sequence[Trajectory], generate: Generate, submit: Submit
    ) -> "dict[int, Future[ExecutionResult]]":
        """Sample a response for each trajectory. Returns the runs of their programs; none in the last turn."""
        runs: dict[int, Future[ExecutionResult]] = {}
        end_token, any_end = self._tokenizer.eos_token_id, not self._settings.reward.require_end

        def finished(index: int, response: list[int]) -> None:
            trajectory = playing[index]
            trajectory.prompts.append(trajectory.next_prompt)
            trajectory.responses.append(response)
            if trajectory.tests is not None and turn + 1 < self._settings.method.turns:
                has_end = any_end or is_finished(response, self._max_response, end_token)
                code = extract_code(self._text_of(response)) if has_end else None  # as the reward manager reads it
                runs[index] = submit(code, trajectory.tests)

        generate([Request(trajectory.next_prompt, trajectory.seeds_T[turn]) for trajectory in playing], finished)
        return runs

    def _continue(self, trajectory: Trajectory, result: ExecutionResult) -> None:
        """Make the next prompt from what the program of this turn did, or end the trajectory."""
        trajectory.failed = result.infra_error is not None
        trajectory.open = not trajectory.failed and not result.solved
        if trajectory.open and trajectory.tests is not None:
            answer = history_text(self._text_of(trajectory.responses[-1]), enable_thinking=True)
            feedback = feedback_message(feedback_to_policy(with_feedback(result, trajectory.tests)))
            trajectory.messages += [{"role": "assistant", "content": answer}, feedback]
            # token ids are made as veRL makes those of its data
            text = self._tokenizer.apply_chat_template(trajectory.messages, add_generation_prompt=True, tokenize=False)
            trajectory.next_prompt = tuple(self._tokenizer.encode(text, add_special_tokens=False))
            trajectory.open = len(trajectory.next_prompt) <= self._max_prompt

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
    limits = {"max_in_flight": settings.max_in_flight, **settings.limits}
    opened = open_execution_service(settings.executor, patient=True, **limits)
    opening = asyncio.run_coroutine_threadsafe(stack.enter_async_context(opened), loop)
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
