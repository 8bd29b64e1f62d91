"""Agent loops of veRL: trajectories of online training, and single turns whose requests have seeds.

The protocol is that of ``run_multi_turn_vllm.py --enable_thinking``: public tests give feedback, and the history holds
what follows a response's thinking. So a turn's prompt does not begin with the last one's tokens, and a trajectory gives
a row for each turn. It ends when a program passes all public tests (``stop_at_success``), at the last turn, when the
next prompt would be too long, or by an infrastructure failure.
"""

from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from cobalt.completion import request_seed
from cobalt.errors import InfraError, InputError, first_line
from cobalt.extraction import extract_code
from cobalt.inference.conversation import history_text
from cobalt.prompts import feedback_message, feedback_to_policy, prompts_of, with_feedback
from cobalt.sandbox import ExecutionResult, TestCases
from cobalt.training.manager import VALIDATES, SharedService, service_of_online, unscored
from cobalt.training.online import OVERLONG, ROLLOUT_FAILED
from cobalt.training.scoring import RewardSettings, is_finished, service_errors
from cobalt.training.settings import CPU_BACKEND, Method


class TurnLoop(AgentLoopBase):
    """Named in ``agent_loops.yaml``. veRL makes one for each trajectory; those of a process share one connection."""

    service: SharedService | None = None

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """The turns of a trajectory of training, a list; a single one in validation. ``columns``: of the data's row.

        Raises ``InfraError`` where the engine failed: veRL drops the trajectory, and the trainer counts it as lost. Any
        other error ends training.
        """
        try:
            return await self._turns(sampling_params, columns)
        except InfraError:
            raise
        except Exception as error:
            tokenizer: Any = self.tokenizer
            end, lost = tokenizer.eos_token_id, unscored(error)
            return [
                AgentLoopOutput(
                    prompt_ids=[end],
                    response_ids=[end],
                    response_mask=[0],
                    response_logprobs=[0.0],
                    reward_score=lost.pop("reward_score"),
                    metrics=AgentLoopMetrics(),
                    extra_fields=lost,
                )
            ]

    async def _turns(self, sampling_params: dict[str, Any], columns: dict[str, Any]) -> list[AgentLoopOutput]:
        method, reward = Method(**self.config.cobalt.online), RewardSettings.read(self.config.reward.reward_kwargs)
        if TurnLoop.service is None:
            TurnLoop.service = service_of_online(reward)
        described: Any = OmegaConf.to_container(self.config.cobalt, resolve=True)
        prompts, turns = prompts_of(described["prompts"]), 1 if columns[VALIDATES] else method.turns
        public = (columns.get("tools_kwargs") or {}).get("public_test_cases")
        if public is None and turns > 1:
            raise InputError(
                "the training data lack extra_info.tools_kwargs.public_test_cases, whose feedback the turns show: "
                "make them with preproc/verl_preproc_single_turn.py from problems with public_test_cases"
            )
        tests = TestCases.parse(public) if public is not None and turns > 1 else None
        tokenizer: Any = self.tokenizer
        messages = list(columns["raw_prompt"])
        prompt = await self.ct_build_initial_tokens(list(messages))
        rows: list[AgentLoopOutput] = []
        request_id = uuid4().hex  # one for all turns: they go to the server that has read the earlier ones
        failed = overlong = False
        while True:
            sampling = dict(sampling_params)
            if self.config.cobalt.backend == CPU_BACKEND:
                sampling["seed"] = seed_of(self.config.cobalt.seed, columns, len(rows))
            request = {"prompt_ids": list(prompt), "sampling_params": sampling}
            try:
                made = await self.server_manager.generate(request_id=request_id, **request)
            except Exception as error:
                raise InfraError(f"the engine failed: {type(error).__name__}: {first_line(error)}") from error
            response = list(made.token_ids)[: self.rollout_config.response_length]
            rows.append(
                AgentLoopOutput(
                    prompt_ids=list(prompt),
                    response_ids=response,
                    response_mask=[1] * len(response),
                    response_logprobs=made.log_probs[: len(response)] if made.log_probs else None,
                    num_turns=2,
                    metrics=AgentLoopMetrics(),
                    extra_fields={**made.extra_fields, ROLLOUT_FAILED: False, OVERLONG: False},
                )
            )
            if len(rows) == turns or tests is None:
                break

            # run the program, as the reward manager reads it
            text = tokenizer.decode(response, skip_special_tokens=True)
            is_whole = is_finished(response, self.rollout_config.response_length, tokenizer.eos_token_id)
            code = extract_code(text, reward.extraction) if is_whole or not reward.require_end else None
            try:
                result = await (await TurnLoop.service.opened()).run(code, tests)
            except service_errors() as error:
                result = ExecutionResult.infra(len(tests), str(error))
            failed = result.infra_error is not None
            if failed or (result.solved and method.stop_at_success):
                break

            # the next prompt shows what it did
            answer = history_text(text, True, reward.extraction, not is_whole)
            feedback = feedback_message(feedback_to_policy(with_feedback(result, tests), prompts), prompts)
            messages += [{"role": "assistant", "content": answer}, feedback]
            # token ids are made as veRL makes those of its data
            template = {**(self.apply_chat_template_kwargs or {}), "add_generation_prompt": True, "tokenize": False}
            prompt = tokenizer.encode(tokenizer.apply_chat_template(messages, **template), add_special_tokens=False)
            if overlong := len(prompt) > self.rollout_config.prompt_length:
                break
        rows[-1].extra_fields |= {ROLLOUT_FAILED: failed, OVERLONG: overlong}
        return rows


class SeededLoop(SingleTurnAgentLoop):
    """veRL's loop of one turn, whose requests bring seeds."""

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> AgentLoopOutput:
        seeded = {**sampling_params, "seed": seed_of(self.config.cobalt.seed, columns)}
        return await super().run(seeded, **columns)  # pyright: ignore[reportAbstractUsage] - a decorated method


def seed_of(seed: int, columns: dict[str, Any], turn: int = 0) -> int:
    """A request's own seed, from its place in the data, its step, its sample and its turn."""
    place = [int(columns["global_steps"]), int(columns["index"])]
    return request_seed(seed, place, int(columns["session_id"]), turn)
