"""Rollouts of a Hugging Face model on CPU cores, as a server of veRL.

Each process of training has a server beside it, which samples by ``cobalt.sampler``. Each request brings a seed of its
own, and sampling is in fp64, so a text does not depend on the others of its batch. A resumed run draws what an
uninterrupted one does.
"""

import asyncio
import os
from typing import Any

import ray
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from cobalt.inference.huggingface import end_tokens
from cobalt.sampler.batches import BatchSampler
from cobalt.sampler.network import ATTENTION, CPU_DTYPE, register
from cobalt.sampler.prompts import Row

BATCH_SIZE = 64
GATHER_S = 0.2
"""A step's requests come through Ray within this time."""
TIED = "lm_head.weight"


def server_name(rank: int) -> str:
    """Of the Ray actor of a training process."""
    return f"cobalt_rollouts_{rank}"


class CpuServer:
    """One copy of the policy, and a thread that samples from it."""

    def __init__(self, config: Any, model: str):
        register()
        torch.set_num_threads(1)
        network = AutoConfig.from_pretrained(model)
        self._model: Any = AutoModelForCausalLM.from_config(
            network, dtype=CPU_DTYPE, attn_implementation=ATTENTION
        ).eval()
        self._model.generation_config = GenerationConfig.from_pretrained(model)
        ends = end_tokens(self._model, AutoTokenizer.from_pretrained(model))
        self._sampler = BatchSampler(self._model, ends, BATCH_SIZE, 1, GATHER_S)
        self._max_new, self._step = config.response_length, 0

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """One response. ``sampling_params`` must hold a ``seed``."""
        temperature, top_p = sampling_params["temperature"], sampling_params["top_p"]
        row = Row(tuple(prompt_ids), self._max_new, temperature, top_p, sampling_params["seed"])
        tokens, end = await asyncio.wrap_future(self._sampler.submit(row, row.prompt))
        fields = {"global_steps": self._step}
        tokens = tokens if end is None else [*tokens, end]
        return TokenOutput(token_ids=tokens, stop_reason="completed", extra_fields=fields)

    async def load(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        """Take the policy's weights after ``step`` updates."""
        targets = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, value in weights.items():
                if name in targets:  # the head may be tied to the embeddings
                    targets.pop(name).copy_(value)
        if missing := targets.keys() - {TIED}:
            raise ValueError(f"parameters that the policy does not have: {sorted(missing)}")
        self._sampler.forget_prompts()
        self._step = step or 0

    async def set_global_steps(self, step: int) -> None:
        self._step = step

    async def nothing(self, *_: Any, **__: Any) -> None:
        """Memory is never handed over to training, and no request is ever broken off."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = resume_generation = nothing


class CpuReplica(RolloutReplica):
    """veRL's handle of one server."""

    async def launch_servers(self) -> None:
        options = {"name": server_name(self.replica_rank), "num_cpus": 0, "max_concurrency": self.max_concurrency}
        server: Any = ray.remote(CpuServer).options(**options).remote(self.config, self.model_config.path)
        self.servers, self._server_handle, self._server_address = [server], server, server_name(self.replica_rank)


class WeightsSender(BaseRollout):
    """In a training process: sends the policy's weights to its server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1):
        super().__init__(config, model_config, device_mesh)
        self._rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Any,
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        """Gather all weights, (name, tensor) one by one, which every process takes part in, and send them."""
        gathered = {name: value.detach().float().clone() async for name, value in ensure_async_iterator(weights)}
        server: Any = ray.get_actor(server_name(self._rank))
        await server.load.remote(gathered, global_steps)
