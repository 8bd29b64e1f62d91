"""vLLM's asynchronous engine behind one call: a chat request in, a completion out.

Run with the V1 ``AsyncLLM`` of vLLM 0.23 and of 0.8.5 (docs/results/infrastructure.md).
vLLM has an environment of its own (``constraints/serve-vllm.txt``), so type checkers do not find it beside the rest.
"""

import asyncio
import json
import os
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cobalt.completion import FINISH_CONTEXT, FINISH_STOP, GIVEN_UP
from cobalt.records.identity import model_identity


class ChatRequest(BaseModel):
    """One request."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, str]]
    temperature: float = Field(0.6, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(8192, ge=1)
    seed: int | None = None


class VllmEngine:
    """Loads the model on construction (seconds to minutes). ``options`` are those of ``AsyncEngineArgs``."""

    def __init__(self, options: dict[str, Any], chat_template_kwargs: dict[str, Any]):
        # Serve's replicas run in a thread of their own, where vLLM 0.8.5 takes its old engine unless it is told not to.
        os.environ.setdefault("VLLM_USE_V1", "1")
        os.environ.setdefault("VLLM_WORKER_MULTIPROCESS_METHOD", "spawn")  # a replica has threads: no fork
        from transformers import AutoTokenizer
        from vllm import AsyncEngineArgs  # pyright: ignore[reportMissingImports]
        from vllm.usage.usage_lib import UsageContext  # pyright: ignore[reportMissingImports]
        from vllm.v1.engine.async_llm import AsyncLLM  # pyright: ignore[reportMissingImports]

        context = UsageContext.OPENAI_API_SERVER
        config = AsyncEngineArgs(**options).create_engine_config(context)
        others = _children()
        self._engine = AsyncLLM.from_vllm_config(config, usage_context=context)
        self._warden = _start_warden(_children() - others)
        self._max_num_seqs: int = config.scheduler_config.max_num_seqs
        self._max_model_len: int = config.model_config.max_model_len
        self._model_id = model_identity(options["model"], options.get("revision"))
        self._template = chat_template_kwargs
        self._tokenizer = AutoTokenizer.from_pretrained(
            options.get("tokenizer", options["model"]), trust_remote_code=options.get("trust_remote_code", False)
        )
        self._text_thread = ThreadPoolExecutor(1, "tokenizer")  # one thread: tokenizers are not reentrant

    def describe(self) -> dict[str, Any]:
        """The model's identity (with the template settings, if any) and the engine's limits."""
        import vllm  # pyright: ignore[reportMissingImports]

        settings = f" {json.dumps(self._template, sort_keys=True)}" if self._template else ""
        return {
            "model_id": f"{self._model_id}{settings}",
            "max_num_seqs": self._max_num_seqs,
            "max_model_len": self._max_model_len,
            "vllm_version": vllm.__version__,
        }

    async def generate(self, request: ChatRequest) -> dict[str, Any]:
        """Fields of a completion. Cancelling the call aborts the request inside the engine.

        Raises ``RuntimeError`` if the engine gave the request up.
        """
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._text_thread)
        prompt = await in_thread(self._encode, request.messages)
        room = self._max_model_len - len(prompt)
        if room < 1:
            return _completion("", len(prompt), 0, FINISH_CONTEXT)
        stream = self._engine.generate({"prompt_token_ids": prompt}, self._sampling(request, room), uuid.uuid4().hex)
        answer = [output.outputs[0] async for output in stream][-1]
        if answer.finish_reason is None or answer.finish_reason in GIVEN_UP:
            raise RuntimeError(f"the engine gave a request up (finish reason {answer.finish_reason})")
        without_stop = answer.token_ids[:-1] if answer.finish_reason == FINISH_STOP else answer.token_ids
        text = await in_thread(self._decode, without_stop)
        return _completion(text, len(prompt), len(answer.token_ids), answer.finish_reason)

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        return self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **self._template
        )

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _sampling(self, request: ChatRequest, room: int) -> Any:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]

        return SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=min(request.max_tokens, room),
            seed=request.seed,
            output_kind=RequestOutputKind.FINAL_ONLY,
            detokenize=False,  # it would be done token by token, in this process
        )

    def check_health(self) -> None:
        """Raises once the engine's own process has died.

        Not vLLM's exception: Serve's controller would import vLLM to read it, and do nothing else for as long.
        """
        if self._engine.errored:
            raise RuntimeError(f"vLLM's engine has died: {self._engine.dead_error}")

    def close(self) -> None:
        """Stop the engine's processes."""
        self._engine.shutdown()
        self._text_thread.shutdown(wait=False, cancel_futures=True)


def _children() -> set[int]:
    """Process ids of what this process has started, and of what that has."""
    import psutil  # pyright: ignore[reportMissingModuleSource]

    return {child.pid for child in psutil.Process().children(recursive=True)}


def _start_warden(pids: set[int]) -> "subprocess.Popen[bytes]":
    """A process that kills the given ones once this process, or the returned object, is gone.

    Ray kills replicas without warning, and vLLM's engine would go on, with its GPU memory.
    """
    wait_and_kill = ["sh", "-c", 'read -r _; kill -9 "$@"', "sh", *map(str, pids)]  # the pipe ends with this process
    return subprocess.Popen(wait_and_kill, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _completion(text: str, prompt_tokens: int, completion_tokens: int, finish_reason: str) -> dict[str, Any]:
    return {
        "text": text,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "finish_reason": finish_reason,
    }
