"""An engine that answers with the request itself. A seed picks what goes wrong.

``SLOW``: takes a minute. ``CRASH``: kills its process, once per file ``$FAKE_VLLM_DIR/crashed``. ``GIVE_UP``: ends for
reason ``error``, once per file ``$FAKE_VLLM_DIR/gave_up``. Aborted requests are written to ``$FAKE_VLLM_DIR/aborted``,
the id of a process that stands for the engine's own to ``$FAKE_VLLM_DIR/pid``.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import AutoTokenizer

SLOW, CRASH, GIVE_UP = 666, 667, 668


class EngineDeadError(Exception):
    """As vLLM's: of a module that others than replicas have not imported."""


class AsyncLLM:
    """Signatures as in vLLM 0.23."""

    def __init__(self, model: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self.errored, self.dead_error = False, EngineDeadError("engine dead")
        self._process = subprocess.Popen(["sleep", "600"])
        Path(os.environ["FAKE_VLLM_DIR"], "pid").write_text(str(self._process.pid))

    @classmethod
    def from_vllm_config(
        cls, vllm_config: Any, start_engine_loop: bool = True, usage_context: Any = None
    ) -> "AsyncLLM":
        return cls(vllm_config.model_config.model)

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        folder = Path(os.environ["FAKE_VLLM_DIR"])
        if sampling_params.seed == CRASH and not (folder / "crashed").exists():
            (folder / "crashed").touch()
            os._exit(1)
        try:
            await asyncio.sleep(60 if sampling_params.seed == SLOW else 0.01)
        except asyncio.CancelledError:
            (folder / "aborted").touch()
            raise
        seen = {
            "prompt": prompt["prompt_token_ids"],
            "max_tokens": sampling_params.max_tokens,
            "seed": sampling_params.seed,
        }
        reason = "stop"
        if sampling_params.seed == GIVE_UP and not (folder / "gave_up").exists():
            (folder / "gave_up").touch()
            reason = "error"
        assert not sampling_params.detokenize
        stop = self._tokenizer("!")["input_ids"]
        answer = SimpleNamespace(
            text="", token_ids=self._tokenizer(json.dumps(seen))["input_ids"] + stop, finish_reason=reason
        )
        yield SimpleNamespace(outputs=[answer], finished=True)

    def shutdown(self) -> None:
        self._process.kill()
        self._process.wait()
