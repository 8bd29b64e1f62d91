"""Agent loops of bench_methods.py: veRL's single-turn loop and ours, whose responses have drawn lengths.

An engine is asked for a drawn number of tokens past any end token. The loop is then given an answer of as many tokens,
and the time is written to the training's folder.
"""

import json
import time
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from cobalt.completion import request_seed
from cobalt.training.agent_loops import TurnLoop
from cobalt.training.online import ROLLOUT_FAILED
from research.benchmarks.bench_methods import RESPONSES_FILE, answer_tokens, drawn


class ForcedServer:
    """veRL's client of the engines, for one trajectory."""

    def __init__(self, loop: Any, columns: dict[str, Any]):
        """``columns``: of the data's row, with what ``bench_methods.training_rows`` put there."""
        self._server, self._tokenizer, self._turn = loop.server_manager, loop.tokenizer, 0
        self._place, self._sample = columns["extra_info"]["price"], columns["session_id"]
        self._log = Path(loop.config.trainer.default_local_dir) / RESPONSES_FILE

    async def generate(self, request_id: str, *, sampling_params: dict[str, Any], **request: Any) -> Any:
        """The turn's response. Raises ``RuntimeError`` if the engine's has another length."""
        problem, turn, start = self._place["problem"], self._turn, time.time()
        length, passes = drawn(request_seed(0, problem, self._sample, turn), self._place["mean"], turn)
        forced = {**sampling_params, "max_tokens": length, "ignore_eos": True}
        made = await self._server.generate(request_id, sampling_params=forced, **request)
        if len(made.token_ids) != length:
            raise RuntimeError(f"vLLM gave {len(made.token_ids)} tokens, not {length}")
        row = {"step": self._place["step"], "problem": problem, "sample": self._sample, "turn": turn, "tokens": length}
        with self._log.open("a") as file:
            file.write(json.dumps({**row, "start": start, "end": time.time()}) + "\n")
        self._turn += 1
        made.token_ids = answer_tokens(self._tokenizer, length, passes, f"{problem}-{self._sample}-{turn}")
        return made


class SingleTurn(SingleTurnAgentLoop):
    """veRL's. Our online reward manager asks each trajectory whether its rollout failed."""

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        self.server_manager = ForcedServer(self, columns)
        output = await super().run(sampling_params, **columns)
        output.extra_fields[ROLLOUT_FAILED] = False
        return output


class Turns(TurnLoop):
    """Ours."""

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        self.server_manager = ForcedServer(self, columns)
        return await super().run(sampling_params, **columns)
