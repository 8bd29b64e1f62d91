"""A Hugging Face model in this process, on CUDA if there is a device, else on the CPU.

Requests are sampled in batches (``cobalt.sampler.batches``). Programs run and messages are built meanwhile. For small
models and tests; vLLM serves large ones.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, FINISH_STOP, Completion, Message, Sampling
from cobalt.errors import InputError
from cobalt.prompts import prompt_tokens
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.sampler.batches import BatchSampler
from cobalt.sampler.network import ATTENTION, CPU_DTYPE, register
from cobalt.sampler.prompts import Row

GATHER_S = 0.05
BATCHES_PER_WORKER = 2  # one that is sampled, one that waits


@dataclass
class HuggingFaceEngine:
    """Use through ``open_huggingface_engine``."""

    model_id: str
    max_in_flight: int
    tokenizer: Any
    sampler: BatchSampler
    context: int
    """Most tokens of prompt and response."""

    async def generate(self, messages: list[Message], sampling: Sampling, seed: int) -> Completion:
        prompt = prompt_tokens(self.tokenizer, messages)
        max_new = min(sampling.max_tokens, self.context - len(prompt))
        if max_new < 1:
            return Completion("", len(prompt), 0, FINISH_CONTEXT)
        row = Row(tuple(prompt), max_new, sampling.temperature, sampling.top_p, seed)
        texts = tuple(message["content"] for message in messages)
        # the messages of the turn before are all but the last two
        tokens, end_token = await asyncio.wrap_future(self.sampler.submit(row, texts, texts[:-2]))
        text, ended = self.tokenizer.decode(tokens, skip_special_tokens=True), end_token is not None
        return Completion(text, len(prompt), len(tokens) + ended, FINISH_STOP if ended else FINISH_LENGTH)


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    configured = model.generation_config.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    return {token for token in [*listed, tokenizer.eos_token_id] if token is not None}


def load_network(model: str, flag: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Network on the device and tokenizer of ``model`` (directory or hub name).

    ``flag``: how the model was given, for the complaint.
    """
    refuse_missing_model(model, f"{flag} ")
    register()
    logging.disable_progress_bar()  # of loading: ours follow
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
        network = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=dtype,
            device_map="cuda" if torch.cuda.is_available() else "cpu",
            attn_implementation=ATTENTION,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{flag} {model}: {error}") from None
    return network.eval(), tokenizer


@asynccontextmanager
async def open_huggingface_engine(
    model: str, batch_size: int, max_in_flight: int | None, fp32: bool = False
) -> AsyncIterator[HuggingFaceEngine]:
    """Load ``model`` (directory or hub name) and serve it while the body runs.

    In fp32 if asked for, else in bf16 on a GPU and in ``CPU_DTYPE`` on a CPU.
    """
    on_gpu = torch.cuda.is_available()
    workers = 1 if on_gpu else len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    dtype = torch.float32 if fp32 else torch.bfloat16 if on_gpu else CPU_DTYPE
    network, tokenizer = load_network(model, "--model", dtype)
    in_flight = max_in_flight or BATCHES_PER_WORKER * workers * batch_size
    with closing(BatchSampler(network, end_tokens(network, tokenizer), batch_size, workers, GATHER_S)) as sampler:
        context = network.config.max_position_embeddings
        yield HuggingFaceEngine(model_identity(model), in_flight, tokenizer, sampler, context)
