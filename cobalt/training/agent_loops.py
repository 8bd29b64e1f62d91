"""Agent loops of veRL: trajectories of online training, and single turns whose requests have seeds.

A trajectory gives a row for each turn. The history is that of ``Game``: earlier thinking is gone, so a turn's prompt
does not begin with the last one's tokens, and a trajectory cannot be one row.
"""

from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from cobalt.completion import request_seed
from cobalt.errors import InfraError, first_line
from cobalt.prompts import prompts_of
from cobalt.sandbox import ExecutionResult
from cobalt.training.manager import VALIDATES, SharedService, service_of_online, unscored
from cobalt.training.online import OVERLONG, ROLLOUT_FAILED, Game
from cobalt.training.scoring import SERVICE_ERRORS, RewardSettings
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
        prompts = prompts_of(described["prompts"])
        game = Game(method, reward, self.tokenizer, self.rollout_config, self.apply_chat_template_kwargs or {}, prompts)
        turns = 1 if columns[VALIDATES] else method.turns
        prompt = await self.ct_build_initial_tokens(list(columns["raw_prompt"]))
        trajectory = game.begin(columns["raw_prompt"], prompt, columns.get("tools_kwargs"), turns)
        rows: list[AgentLoopOutput] = []
        while trajectory.open:
            sampling = dict(sampling_params)
            if self.config.cobalt.backend == CPU_BACKEND:
                sampling["seed"] = seed_of(self.config.cobalt.seed, columns, len(rows))
            request = {"prompt_ids": list(trajectory.next_prompt), "sampling_params": sampling}
            try:
                made = await self.server_manager.generate(request_id=uuid4().hex, **request)
            except Exception as error:
                raise InfraError(f"the engine failed: {type(error).__name__}: {first_line(error)}") from error
            response = list(made.token_ids)[: self.rollout_config.response_length]
            code = game.take(trajectory, response)
            rows.append(
                AgentLoopOutput(
                    prompt_ids=list(trajectory.prompts[-1]),
                    response_ids=response,
                    response_mask=[1] * len(response),
                    response_logprobs=made.log_probs[: len(response)] if made.log_probs else None,
                    num_turns=2,
                    metrics=AgentLoopMetrics(),
                    extra_fields={**made.extra_fields, ROLLOUT_FAILED: False, OVERLONG: False},
                )
            )
            if len(rows) == turns or trajectory.tests is None:
                break
            try:
                result = await (await TurnLoop.service.opened()).run(code, trajectory.tests)
            except SERVICE_ERRORS as error:
                result = ExecutionResult.infra(len(trajectory.tests), str(error))
            game.go_on(trajectory, result)
        rows[-1].extra_fields |= {ROLLOUT_FAILED: trajectory.failed, OVERLONG: trajectory.overlong}
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
