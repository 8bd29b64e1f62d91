"""``HFRollout`` of veRL 0.5.0, replaced: Hugging Face rollouts by ``cobalt.sampler``.

veRL's own samples each prompt ``rollout.n`` times although the trainer has repeated it already, hands ``generate``
position ids that transformers 4.57 never advances (all new tokens are sampled at one position), pads every row to the
longest prompt allowed, and decodes until the last row of a batch has ended. Here a plain copy of the policy, given its
weights before each batch, samples every row with random numbers of its own; equal prompts are read once, and rows that
have ended cost nothing. On a CPU each core samples batches of its own.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from verl import DataProto

from cobalt.sampler.network import ATTENTION, register
from cobalt.sampler.sampling import Row, sample_batch
from cobalt.training.patches.table import SEED_VARIABLE


def replace_rollout(rollout: Any) -> None:
    """In ``verl.workers.rollout``, from where veRL's workers import ``HFRollout`` when they are made."""
    rollout.HFRollout = HFRollout


class HFRollout:
    """Samples one response for each row. ``module``: the policy, in FSDP or not; ``config``: veRL's ``rollout``."""

    def __init__(self, module: Any, config: Any):
        for settings in (config, config.get("val_kwargs", {})):
            if settings.get("top_k", 0) > 0:
                raise ValueError("rollout.name=hf samples without top_k: set it to 0")
        self._policy, self._config = module, config
        self._copy: Any = None
        self._calls = 0

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Left-padded ``prompts`` (B, P) with responses (B, ``response_length``)."""
        ids, mask = prompts.batch["input_ids"], prompts.batch["attention_mask"]
        temperature, top_p = self._sampling(prompts.meta_info)
        rows = [
            Row(tuple(row[valid].tolist()), self._config.response_length, temperature, top_p, seed)
            for row, valid, seed in zip(ids, mask.bool(), self._seeds(len(ids)), strict=True)
        ]
        end_tokens = prompts.meta_info["eos_token_id"]
        self._refresh_copy(ids.device)
        responses: list[list[int]] = [[] for _ in rows]
        self._sample(rows, as_set(end_tokens), responses.__setitem__)
        return _with_responses(prompts, responses, self._config.response_length)

    def _sampling(self, meta: dict[str, Any]) -> tuple[float, float]:
        """Temperature (0: greedy) and top_p."""
        if not meta.get("do_sample", self._config.do_sample):
            return 0.0, 1.0
        settings = self._config.val_kwargs if meta.get("validate") else self._config
        return settings.temperature, settings.top_p

    def _seeds(self, count: int) -> list[int]:
        """Other ones in each call, each process and each run."""
        of_run, rank = (int(os.environ.get(name, "0")) for name in (SEED_VARIABLE, "RANK"))
        self._calls += 1
        return np.random.SeedSequence([of_run, rank, self._calls]).generate_state(count, np.uint64).tolist()

    def _refresh_copy(self, device: torch.device) -> None:
        """Make the copy, without FSDP, equal to the policy. Half precision on a GPU, as in other engines."""
        if self._copy is None:
            register()
            dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
            copy = AutoModelForCausalLM.from_config(self._policy.config, dtype=dtype, attn_implementation=ATTENTION)
            self._copy = copy.to(device).eval()
        targets = dict(self._copy.named_parameters())
        with torch.no_grad(), _whole_parameters(self._policy) as parameters:
            for name, value in parameters:
                targets.pop(name).copy_(value)
        assert not targets, f"parameters that the policy does not have: {sorted(targets)}"

    def _sample(self, rows: list[Row], end_tokens: set[int], on_response: Callable[[int, list[int]], None]) -> None:
        """Hand over each row's index and response, the end token included, as soon as it is complete."""
        # Rows of similar length together: a batch is as wide as its longest prompt.
        by_length = sorted(range(len(rows)), key=lambda index: len(rows[index].prompt))
        size = self._config.get("micro_batch_size", len(rows))

        def sample(indices: list[int]) -> None:
            def finished(place: int, tokens: list[int], end_token: int | None) -> None:
                on_response(indices[place], tokens if end_token is None else [*tokens, end_token])

            sample_batch(self._copy, [rows[index] for index in indices], end_tokens, finished)

        batches = [by_length[start : start + size] for start in range(0, len(rows), size)]
        with _one_thread_each(self._copy.device) as count, ThreadPoolExecutor(count) as workers:
            list(workers.map(sample, batches))


def as_set(tokens: int | list[int]) -> set[int]:
    """One token or several, as a set."""
    return {tokens} if isinstance(tokens, int) else set(tokens)


@contextlib.contextmanager
def _whole_parameters(policy: Any) -> Iterator[Iterator[tuple[str, torch.Tensor]]]:
    """Names and values of a model's parameters, gathered where FSDP has sharded them.

    FSDP 1 keeps shards that are no tensors of the model's shapes: they are gathered all at once, for as long as this is
    open. Nothing is written back, for the values are only read. FSDP 2 keeps ``DTensor``s, which gather themselves one
    by one. Both are collective: every rank must read all parameters, in the same order.
    """
    gathered = contextlib.nullcontext()
    if isinstance(policy, FullyShardedDataParallel):
        gathered = FullyShardedDataParallel.summon_full_params(policy, writeback=False)
    with gathered:
        yield (
            (name, value.full_tensor() if isinstance(value, DTensor) else value)
            for name, value in policy.named_parameters()
        )


@contextlib.contextmanager
def _one_thread_each(device: torch.device) -> Iterator[int]:
    """How many batches to sample at once. On a CPU a thread for each: small operations gain little from several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads if device.type == "cpu" else 1
    finally:
        torch.set_num_threads(threads)


def _with_responses(prompts: DataProto, responses: list[list[int]], width: int) -> DataProto:
    ids, mask, positions = (prompts.batch[name] for name in ("input_ids", "attention_mask", "position_ids"))
    padding = [prompts.meta_info["pad_token_id"]]
    tokens = torch.tensor([row + padding * (width - len(row)) for row in responses], device=ids.device)
    lengths = torch.tensor([len(row) for row in responses], device=ids.device)
    steps = torch.arange(width, device=ids.device)
    batch = {
        "prompts": ids,
        "responses": tokens,
        "input_ids": torch.cat([ids, tokens], -1),
        "attention_mask": torch.cat([mask, (steps < lengths[:, None]).to(mask.dtype)], -1),
        "position_ids": torch.cat([positions, positions[:, -1:] + 1 + steps], -1),
    }
    return DataProto(batch=TensorDict(batch, batch_size=len(ids)))
