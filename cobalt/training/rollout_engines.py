"""Rollouts in veRL's workers: Hugging Face models by ``cobalt.sampler``, and trajectories with any engine.

veRL 0.5.0's own ``HFRollout`` samples each prompt ``rollout.n`` times although the trainer has repeated it already, and
samples all new tokens at one position, because transformers 4.57 never advances its position ids. Here a plain copy of
the policy gets its weights before each batch, and samples every row with random numbers of its own. Equal prompts are
read once, and rows that have ended cost nothing. Each core samples batches of its own.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from verl import DataProto

from cobalt.sampler.network import ATTENTION, register
from cobalt.sampler.sampling import Row, sample_batch
from cobalt.training.online import Generate, MultiTurn, OnFinished, Request, padded


class HFRollout:
    """Samples one response for each row, on a CPU. ``module``: the policy, in FSDP 2 or not."""

    def __init__(self, module: Any, config: Any, seed: int = 0):
        for settings in (config, config.get("val_kwargs", {})):
            if settings.get("top_k", 0) > 0:
                raise ValueError("rollout.name=hf samples without top_k: set it to 0")
        self._policy, self._config, self._seed = module, config, seed
        self._copy: Any = None
        self._validations: list[int] = []  # steps at which a batch of validation was sampled

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Left-padded ``prompts`` (B, P) with responses (B, ``response_length``)."""
        ids, mask = prompts.batch["input_ids"], prompts.batch["attention_mask"].bool()
        generate, seeds = self.engine(prompts)
        asked = [tuple(row[valid].tolist()) for row, valid in zip(ids, mask, strict=True)]
        responses: list[list[int]] = [[] for _ in seeds]
        generate(list(map(Request, asked, seeds)), responses.__setitem__)
        rows = list(zip(asked, responses, strict=True))
        return DataProto(padded(rows, ids.shape[1], self._config.response_length, prompts.meta_info["pad_token_id"]))

    def engine(self, prompts: DataProto) -> tuple[Generate, list[int]]:
        """A function that answers requests with the policy's present weights, sampled as ``prompts`` ask for.

        With a seed for each row of ``prompts``. They depend on the run's seed, process and step, so a resumed run draws
        what an uninterrupted one does. Batches of one validation differ.
        """
        meta, width = prompts.meta_info, self._config.response_length
        settings = self._config.val_kwargs if meta.get("validate") else self._config
        samples = meta.get("do_sample", self._config.do_sample)
        temperature, top_p = (settings.temperature, settings.top_p) if samples else (0.0, 1.0)
        end_tokens = set(np.atleast_1d(meta["eos_token_id"]).tolist())
        place = [self._seed, int(os.environ.get("RANK", "0")), meta["global_steps"]]
        if meta.get("validate"):
            self._validations.append(meta["global_steps"])
            place.append(self._validations.count(meta["global_steps"]))
        sequence = np.random.SeedSequence(place)
        if self._copy is None:
            register()
            config = self._policy.config
            self._copy = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=ATTENTION)
            self._copy.eval()
        targets = dict(self._copy.named_parameters())
        with torch.no_grad():
            # Gathering shards is collective: every rank reads all parameters, in the same order.
            for name, value in self._policy.named_parameters():
                targets.pop(name).copy_(value.full_tensor() if isinstance(value, DTensor) else value)
        assert not targets, f"parameters that the policy does not have: {sorted(targets)}"

        def generate(requests: Sequence[Request], on_finished: OnFinished) -> None:
            rows = [Row(request.prompt, width, temperature, top_p, request.seed) for request in requests]
            # Rows of similar length together: a batch is as wide as its longest prompt.
            by_length = sorted(range(len(rows)), key=lambda index: len(rows[index].prompt))
            size = self._config.get("micro_batch_size", len(rows))

            def sample(indices: list[int]) -> None:
                def finished(place: int, tokens: list[int], end_token: int | None) -> None:
                    on_finished(indices[place], tokens if end_token is None else [*tokens, end_token])

                sample_batch(self._copy, [rows[index] for index in indices], end_tokens, finished)

            # A batch for each thread: small operations gain little from several.
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                with ThreadPoolExecutor(threads) as workers:
                    list(workers.map(sample, (by_length[start : start + size] for start in range(0, len(rows), size))))
            finally:
                torch.set_num_threads(threads)

        return generate, sequence.generate_state(len(prompts), np.uint64).tolist()


class OnlineRollout:
    """A rollout of veRL's workers whose training batches are trajectories, a row for each turn.

    veRL's own multi-turn rollouts keep all turns in one row, earlier thinking included. ``rollout``: ``HFRollout``, or
    veRL's ``vLLMRollout``, whose seeds are vLLM's own.
    """

    def __init__(self, rollout: Any, multi_turn: MultiTurn):
        self._rollout, self._multi_turn = rollout, multi_turn
        self._request_ids = count()
        if not isinstance(rollout, HFRollout):
            from vllm.sampling_params import RequestOutputKind  # type: ignore[import-not-found]

            rollout.sampling_params.output_kind = RequestOutputKind.FINAL_ONLY  # as ``LLM.generate`` does

    def generate_sequences(self, prompts: DataProto, **kwargs: Any) -> DataProto:
        """One row for each of ``prompts``; in validation a single turn."""
        if prompts.meta_info.get("validate", False):
            return self._rollout.generate_sequences(prompts, **kwargs)
        if isinstance(self._rollout, HFRollout):
            return self._multi_turn.rollout(prompts, *self._rollout.engine(prompts))
        return self._multi_turn.rollout(prompts, self._generate_with_vllm, [0] * len(prompts))

    def _generate_with_vllm(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """``Generate`` on the engine inside vLLM's ``LLM``, whose own ``generate`` hands over all rows at the end."""
        engine = self._rollout.inference_engine.llm_engine
        places = {str(next(self._request_ids)): place for place in range(len(requests))}
        for request_id, place in places.items():
            prompt = {"prompt_token_ids": list(requests[place].prompt)}
            engine.add_request(request_id, prompt, self._rollout.sampling_params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    on_finished(places[output.request_id], list(output.outputs[0].token_ids))
