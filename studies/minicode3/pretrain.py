"""``cobalt minicode3 pretrain``: a Qwen3 policy that thinks, trained from nothing on the corpus's shards.

Plain torch on one device: bf16 weights with fp32 masters, ``torch.compile`` and FlashAttention on a GPU. A batch is
whole samples laid end to end, filled up to ``--tokens_per_step``; each attends to itself alone. Clean shards first, at
their own learning rate, then the noisy ones. Each sample is seen once, so the log has the loss on unseen samples.

OUTPUT_DIR then holds the Hugging Face checkpoint in bf16, the folder ``clean`` (between the phases, for ``--start``),
``log.jsonl`` with the loss on thinking and on code, and ``resume.pt``, from where a killed run continues.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import AboveZero, CommandConfig, Positive
from cobalt.errors import InputError
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.identity import refuse_missing_model
from cobalt.records.jsonl import InvalidLines
from studies.minicode.corpus import TokenizedCorpus
from studies.minicode.pretrain import (
    BETAS,
    CAUSAL,
    CLEAN_PHASE,
    GRADIENT_CLIP,
    WEIGHT_DECAY,
    learning_rate_share,
    new_network,
)
from studies.minicode3.corpus import LONGEST_SAMPLE, TOKENIZER, read_shards

if TYPE_CHECKING:
    import numpy as np
    import torch

HEAD_SIZE, KEY_HEADS, POSITIONS = 64, 4, 16_384
WARMUP_STEPS, LOG_EVERY, SAVE_EVERY = 200, 20, 500
PEAK_FLOPS = 989e12
"""Of H100 and H200 in bf16, for the MFU in the log."""
PROMPT, THINKING, CODE = range(3)
"""The part of a sample that a token belongs to."""
RESUME, LOG = "resume.pt", "log.jsonl"


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(CommandConfig):
    """Pre-train a policy on MiniCode 3's corpus. The defaults make 64 million parameters."""

    corpus: Path = Path("data/minicode3_corpus")
    """The output folder of `cobalt minicode3 corpus`."""
    output_dir: Path = Path("runs/minicoder3")
    start: Path | None = None
    """Begin the noisy phase with this checkpoint, such as OUTPUT_DIR/clean of another run: to try noisy doses."""
    seed: int = 0
    """Of the weights and of the order of the samples."""
    hidden_size: Positive = 768
    """A multiple of 256: heads of 64, four of them for keys and values."""
    num_layers: Positive = 10
    feed_forward_size: Positive = 2048
    tokens_per_step: Positive = 131_072
    learning_rate: AboveZero = 1e-3
    noisy_learning_rate: AboveZero = 2e-4
    stop_after: Positive | None = None
    """End after so many steps of this run, with a state to resume from."""
    compile: bool = True
    """torch.compile, on a GPU."""


class Step(NamedTuple):
    """One batch: its phase, its number among the steps of the phase, and its samples."""

    phase: str
    number: int
    samples: "np.ndarray"


class Batch(NamedTuple):
    """L tokens of samples laid end to end, the rest padding. ``starts``: where each begins, then L to the end."""

    ids_L: "torch.Tensor"
    targets_L: "torch.Tensor"
    parts_L: "torch.Tensor"
    """The part that the target belongs to; ``PROMPT`` is not trained on."""
    positions_L: "torch.Tensor"
    starts: "torch.Tensor"


def steps_of(phase: str, corpus: TokenizedCorpus, tokens_per_step: int, seed: int) -> list[Step]:
    """One epoch in random order, as many whole samples a step as fit."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(corpus.lengths_E))
    cuts, filled = [], 0
    for place, length in enumerate(corpus.lengths_E[order].tolist()):
        if filled + length > tokens_per_step:
            cuts.append(place)
            filled = 0
        filled += length
    return [Step(phase, number, samples) for number, samples in enumerate(np.split(order, cuts))]


def batches(
    corpora: dict[str, TokenizedCorpus], steps: list[Step], size: int, most_samples: int, end_of_thinking: int, pad: int
) -> Iterator[tuple[Step, Batch]]:
    """The steps with their batches, all of one shape: ``size`` tokens, ``most_samples`` and padding."""
    import numpy as np
    import torch

    ends_of = {phase: np.cumsum(corpus.lengths_E, dtype=np.int64) for phase, corpus in corpora.items()}
    thinking_of = {phase: np.flatnonzero(corpus.tokens == end_of_thinking) for phase, corpus in corpora.items()}
    for step in steps:
        corpus, ends, thinking_ends = corpora[step.phase], ends_of[step.phase], thinking_of[step.phase]
        ids, parts, positions = np.full(size + 1, pad, np.int64), np.zeros(size + 1, np.int64), np.zeros(size, np.int64)
        starts, at = [], 0
        for sample in step.samples:
            length, begin = int(corpus.lengths_E[sample]), int(ends[sample] - corpus.lengths_E[sample])
            response = begin + int(corpus.starts_E[sample])
            code = int(thinking_ends[np.searchsorted(thinking_ends, response)]) + 1
            ids[at : at + length] = corpus.tokens[begin : begin + length]
            parts[at + response - begin : at + code - begin] = THINKING
            parts[at + code - begin : at + length] = CODE
            positions[at : at + length] = np.arange(length)
            starts.append(at)
            at += length
        # The rest in pieces that the kernel can take; then as many empty samples as make the shape the same.
        positions[at:] = np.arange(size - at) % LONGEST_SAMPLE
        starts += range(at, size, LONGEST_SAMPLE)
        starts += [size] * (most_samples + size // LONGEST_SAMPLE + 2 - len(starts))
        arrays = ids[:-1], ids[1:], parts[1:], positions, np.array(starts, np.int32)
        yield step, Batch(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


def packed_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: None, scaling: float, cu_seq_lens_q: Any, **_: Any
) -> tuple["torch.Tensor", None]:
    """Causal attention within each sample, as transformers calls it: tensors (1, heads, L, size of a head)."""
    import torch

    if query.is_cuda:
        q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        spans = cu_seq_lens_q, cu_seq_lens_q, LONGEST_SAMPLE, LONGEST_SAMPLE
        out = torch.ops.aten._flash_attention_forward(q, k, v, *spans, 0.0, True, False, scale=scaling)[0]
        return out[None], None
    outs = []
    for a, b in pairwise(cu_seq_lens_q.tolist()):
        q, k, v = (tensor[:, :, a:b] for tensor in (query, key, value))
        outs.append(
            torch.nn.functional.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=scaling, enable_gqa=True)
        )
    return torch.cat(outs, dim=2).transpose(1, 2), None


def loss_sums(model: Any, batch: Batch) -> "torch.Tensor":
    """(2,): summed loss on the tokens of thinking, and on those of the code."""
    import torch

    states = model.model(
        input_ids=batch.ids_L[None],
        position_ids=batch.positions_L[None],
        attention_mask=CAUSAL,
        use_cache=False,
        cu_seq_lens_q=batch.starts,
    ).last_hidden_state[0]
    losses_L = torch.nn.functional.cross_entropy(model.lm_head(states).float(), batch.targets_L, reduction="none")
    return torch.stack([(losses_L * (batch.parts_L == part)).sum() for part in (THINKING, CODE)])


def main(config: PretrainConfig) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if config.hidden_size % (HEAD_SIZE * KEY_HEADS):
        raise InputError(f"--hidden_size {config.hidden_size}: must be a multiple of {HEAD_SIZE * KEY_HEADS}")
    if config.tokens_per_step < LONGEST_SAMPLE:
        raise InputError(f"--tokens_per_step {config.tokens_per_step}: a sample may have {LONGEST_SAMPLE} tokens")
    if not (config.corpus / TOKENIZER).is_dir():
        raise InputError(f"--corpus {config.corpus}: no such corpus; cobalt minicode3 corpus makes it")
    on_gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if on_gpu else ("cpu", torch.float32)
    out = config.output_dir
    out.mkdir(parents=True, exist_ok=True)

    # The samples of every step, known beforehand, so that a run can continue in the middle.
    tokenizer = AutoTokenizer.from_pretrained(config.corpus / TOKENIZER)
    rates = {CLEAN_PHASE: config.learning_rate, "noisy": config.noisy_learning_rate}
    phases = [phase for phase in rates if config.start is None or phase != CLEAN_PHASE]
    corpora = {phase: read_shards(config.corpus, phase) for phase in phases}
    plans = {phase: steps_of(phase, corpora[phase], config.tokens_per_step, config.seed) for phase in phases}
    steps = [step for plan in plans.values() for step in plan]

    # The network in the device's precision, and what the optimizer changes: its weights in fp32.
    torch.manual_seed(config.seed)
    if config.start is not None:
        refuse_missing_model(str(config.start), "--start ")
        if AutoTokenizer.from_pretrained(config.start).get_vocab() != tokenizer.get_vocab():
            raise InputError(f"--start {config.start}: its tokenizer is not that of {config.corpus}; use one --seed")
        model: Any = AutoModelForCausalLM.from_pretrained(config.start, dtype=torch.float32)
    else:
        model = new_network(
            tokenizer,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            intermediate_size=config.feed_forward_size,
            num_attention_heads=config.hidden_size // HEAD_SIZE,
            num_key_value_heads=KEY_HEADS,
            head_dim=HEAD_SIZE,
            max_position_embeddings=POSITIONS,
        )
    ALL_ATTENTION_FUNCTIONS["packed"] = packed_attention
    model.set_attn_implementation("packed")
    masters = [weight.detach().to(device, torch.float32, copy=True) for weight in model.parameters()]
    weights = list(model.to(device).train().parameters())

    def set_precision(to: torch.dtype) -> None:
        """Of the weights alone: the frequencies of the positions stay as inference has them."""
        for weight, master in zip(weights, masters, strict=True):
            weight.data = master.to(to)

    def save(folder: Path, precision: torch.dtype) -> None:
        set_precision(precision)
        model.save_pretrained(folder)
        shutil.copytree(config.corpus / TOKENIZER, folder, dirs_exist_ok=True)
        set_precision(dtype)

    decayed = {"params": [m for m in masters if m.ndim >= 2], "weight_decay": WEIGHT_DECAY}
    others = {"params": [m for m in masters if m.ndim < 2], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([decayed, others], lr=config.learning_rate, betas=BETAS, fused=on_gpu)

    # Continue where an earlier run with these settings ended.
    content = {name: str(value) for name, value in asdict(config).items() if name != "stop_after"}
    content["steps"] = str(len(steps))
    first = 0
    if (out / RESUME).exists():
        state = torch.load(out / RESUME, map_location=device)
        if state["content"] != content:
            raise InputError(f"--output_dir {out}: {RESUME} is of a run with other settings; choose another folder")
        first = state["step"]
        if (out / LOG).exists():  # what a killed run told of later steps goes, and a line that it did not finish
            skip = InvalidLines(skip=True, quiet=True).handler
            told = read_jsonl(out / LOG, ("step",), unique=None, on_invalid=skip, may_be_empty=True)
            write_jsonl(out / LOG, (line for line in told if line["step"] <= first))
        for master, saved in zip(masters, state["masters"], strict=True):
            master.copy_(saved)
        optimizer.load_state_dict(state["optimizer"])
    set_precision(dtype)
    compute = torch.compile(loss_sums) if on_gpu and config.compile else loss_sums

    parameters = sum(m.numel() for m in masters)
    contexts = sum(int((c.lengths_E.astype(int) ** 2).sum()) for c in corpora.values())
    tokens = sum(len(c.tokens) for c in corpora.values())
    # Six a weight and token; twelve a layer, channel and pair of a token and one that it sees.
    flops = 6 * parameters + 12 * config.num_layers * config.hidden_size * contexts / 2 / tokens
    print(f"{parameters:,} parameters on {device}, {tokens:,} tokens, {len(steps)} steps", flush=True)

    last = len(steps) if config.stop_after is None else min(len(steps), first + config.stop_after)
    marks = tokenizer.convert_tokens_to_ids("</think>"), tokenizer.pad_token_id
    sums, counts, seen, started = torch.zeros(2, device=device), torch.zeros(2), 0, time.monotonic()
    shape = config.tokens_per_step, max(len(step.samples) for step in steps)
    made = batches(corpora, steps[first:last], *shape, *marks)
    for at, (step, batch) in enumerate(made, start=first + 1):
        count = torch.stack([(batch.parts_L == part).sum() for part in (THINKING, CODE)])
        loss_sum = compute(model, Batch(*(tensor.to(device, non_blocking=True) for tensor in batch)))
        (loss_sum.sum() / count.sum().item()).backward()
        for master, weight in zip(masters, weights, strict=True):
            master.grad, weight.grad = weight.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, GRADIENT_CLIP)
        rate = rates[step.phase] * learning_rate_share(step.number, len(plans[step.phase]), WARMUP_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        for master, weight in zip(masters, weights, strict=True):
            weight.data.copy_(master)

        sums, counts = sums + loss_sum.detach(), counts + count
        seen += int(corpora[step.phase].lengths_E[step.samples].sum())
        if at % LOG_EVERY == 0 or at == last:
            thinking, code = (sums.cpu() / counts).tolist()
            speed = seen / (time.monotonic() - started)
            line = {"step": at, "of": len(steps), "phase": step.phase, "thinking": thinking, "code": code}
            line |= {"learning_rate": rate, "tokens_per_s": round(speed), "mfu": round(flops * speed / PEAK_FLOPS, 4)}
            with (out / LOG).open("a") as log:
                print(json.dumps(line), file=log)
            print(json.dumps(line), flush=True)
            sums, counts, seen, started = torch.zeros(2, device=device), torch.zeros(2), 0, time.monotonic()
        if step.phase == CLEAN_PHASE and step.number == len(plans[step.phase]) - 1:
            save(out / CLEAN_PHASE, torch.float32)
        if at % SAVE_EVERY == 0 or at == last:
            state = {"content": content, "step": at, "masters": masters, "optimizer": optimizer.state_dict()}
            torch.save(state, out / f"{RESUME}.partial")
            (out / f"{RESUME}.partial").replace(out / RESUME)
    if last == len(steps):
        save(out, torch.bfloat16)
        print(f"saved to {out}")
