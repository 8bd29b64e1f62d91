"""MiniCoder's network and its training loop: next-token loss on responses only, plain torch.

Batches hold samples of similar length, padded on the right: a causal network needs no mask then, and samples do not
see each other.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from studies.minicode.corpus import TokenizedCorpus

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class NetworkConfig:
    """Qwen3 sizes; the default has about 2.6M parameters."""

    hidden_size: int = 192
    num_layers: int = 6
    num_heads: int = 3
    num_key_value_heads: int = 1
    head_size: int = 64
    feed_forward_size: int = 512
    max_positions: int = 4096


@dataclass(frozen=True)
class PhaseConfig:
    """One pass of training over a corpus."""

    name: str
    learning_rate: float
    epochs: float
    tokens_per_batch: int
    warmup_steps: int = 100
    final_learning_rate: float = 0.03
    """Share of the learning rate at the end of the cosine."""
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    gradient_clip: float = 1.0


LOG_EVERY = 100
CAUSAL = {"full_attention": None}
"""Plain causal attention: without it transformers builds a mask per batch, which rules out the fast kernels."""


def new_network(config: NetworkConfig, tokenizer: "PreTrainedTokenizerFast") -> Any:
    """A Qwen3 causal language model with fresh weights (seed torch before)."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_size,
            intermediate_size=config.feed_forward_size,
            max_position_embeddings=config.max_positions,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def batches(corpus: TokenizedCorpus, tokens_per_batch: int, rng: "np.random.Generator") -> Iterator["np.ndarray"]:
    """One epoch: arrays of sample numbers, of similar length each, at most ``tokens_per_batch`` with padding."""
    import numpy as np

    order = rng.permutation(len(corpus.lengths_E))
    order = order[np.argsort(corpus.lengths_E[order], kind="stable")]
    cuts, longest, start = [], 0, 0
    for place, length in enumerate(corpus.lengths_E[order]):
        longest = max(longest, int(length))
        if longest * (place - start + 1) > tokens_per_batch:
            cuts.append(place)
            start, longest = place, int(length)
    groups = np.split(order, cuts)
    for number in rng.permutation(len(groups)):
        yield groups[number]


def train_phase(model: Any, corpus: TokenizedCorpus, phase: PhaseConfig, seed: int, log: Callable[[str], None]) -> None:
    """Train ``model`` in place on its device."""
    import numpy as np
    import torch

    rng = np.random.default_rng(seed)
    ends = np.cumsum(corpus.lengths_E, dtype=np.int64)
    steps_per_epoch = sum(1 for _ in batches(corpus, phase.tokens_per_batch, np.random.default_rng(seed)))
    total = max(1, round(steps_per_epoch * phase.epochs))
    optimizer = _optimizer(model, phase)
    model.train()
    step, seen, started = 0, 0, time.monotonic()
    while step < total:
        for group in batches(corpus, phase.tokens_per_batch, rng):
            for settings in optimizer.param_groups:
                settings["lr"] = phase.learning_rate * _schedule(step, total, phase)
            loss = _loss(model, _batch(corpus, ends, group, model.device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), phase.gradient_clip)
            optimizer.step()
            step, seen = step + 1, seen + int(corpus.lengths_E[group].sum())
            if step % LOG_EVERY == 0 or step == total:
                rate = seen / (time.monotonic() - started)
                log(f"{phase.name}: step {step}/{total} loss {loss.item():.4f} {rate:,.0f} tokens/s")
            if step == total:
                break
    model.eval()


def _schedule(step: int, total: int, phase: PhaseConfig) -> float:
    warmup = min(1.0, (step + 1) / min(phase.warmup_steps, max(1, total // 10)))
    cosine = 0.5 * (1 + math.cos(math.pi * step / total))
    return warmup * (phase.final_learning_rate + (1 - phase.final_learning_rate) * cosine)


def _optimizer(model: Any, phase: PhaseConfig) -> "torch.optim.AdamW":
    import torch

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": phase.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=phase.learning_rate, betas=phase.betas, fused=model.device.type == "cuda")


def _batch(
    corpus: TokenizedCorpus, ends: "np.ndarray", group: "np.ndarray", device: "torch.device"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Token ids and the mask of response tokens, both (samples, longest)."""
    import numpy as np
    import torch

    lengths, starts = corpus.lengths_E[group], corpus.starts_E[group]
    columns = np.arange(lengths.max())
    places = (ends[group] - lengths)[:, None] + np.minimum(columns, lengths[:, None] - 1)
    ids = corpus.tokens[places].astype(np.int64)
    mask = (columns >= starts[:, None]) & (columns < lengths[:, None])
    return torch.from_numpy(ids).to(device, non_blocking=True), torch.from_numpy(mask).to(device, non_blocking=True)


def _loss(model: Any, batch: tuple["torch.Tensor", "torch.Tensor"]) -> "torch.Tensor":
    import torch

    ids, mask = batch
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
        states = model.model(input_ids=ids[:, :-1], attention_mask=CAUSAL, use_cache=False).last_hidden_state
        logits = model.lm_head(states[mask[:, 1:]])
    return torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][mask[:, 1:]])
