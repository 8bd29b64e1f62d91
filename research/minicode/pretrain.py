"""``python -m research minicode pretrain``: MiniCoder in two phases, mostly clean, then a small noisy dose.

The clean phase teaches every operation, reading feedback, and repairing any failed program. The noisy dose makes the
policy deliberately imperfect in a way that reinforcement learning can undo: independent slips on steps that it knows,
and habits that game a test (``habits.py``). Writes a Hugging Face checkpoint (bf16 safetensors, tokenizer,
chat template) and ``pretraining.json``; the folder ``clean`` in it is the network between the phases, in fp32.

Next-token loss on responses only, plain torch. Batches hold samples of similar length, padded on the right: a causal
network needs no mask then, and samples do not see each other.
"""

import dataclasses
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, NotNegative, Positive, Share
from cobalt.records.identity import refuse_missing_model
from cobalt.records.manifest import usual_modes
from research.minicode.corpus import TokenizedCorpus, build_corpus, sample_dialogues
from research.minicode.demonstrator import CLEAN, Noise
from research.minicode.habits import DOSES, Doses
from research.minicode.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import numpy as np

TOKENIZER_PROBLEMS = 1500
CLEAN_PHASE = "clean"
SIZES: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64,
    "intermediate_size": 512, "max_position_embeddings": 4096,
}  # fmt: skip
"""Of Qwen3: about 2.6M parameters."""
UNREPAIRED, MISREAD, QUOTE = 0.55, 0.55, 0.25
"""As in ``Noise``: the first two of the noisy phase, the last of both."""
LEARNING_RATES = {"clean": 2e-3, "noisy": 4e-4}
WARMUP_STEPS, FINAL_LEARNING_RATE = 100, 0.03
"""The second: share of the learning rate at the end of the cosine."""
WEIGHT_DECAY, BETAS, GRADIENT_CLIP = 0.1, (0.9, 0.95), 1.0
LOG_EVERY = 100
CAUSAL = {"full_attention": None}
"""Plain causal attention: without it transformers builds a mask per batch, which rules out the fast kernels."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(CommandConfig):
    """Make the corpus, train the tokenizer and the network, write the checkpoint."""

    output_dir: Path = Path("runs/minicoder")
    seed: int = 0
    start: Path | None = None
    """Leave the clean phase out and begin with this checkpoint, such as OUTPUT_DIR/clean: to try noisy doses."""
    clean_problems: Positive = 160_000
    """Problems of the clean corpus, five samples each."""
    noisy_problems: Positive = 30_000
    """Problems of the noisy corpus."""
    tokens_per_batch: Positive = 65_536
    slip: Share = 0.33
    """Noisy phase: share of steps where the look-alike is written."""
    contradicted: Share = 0.4
    """Noisy phase: share of the dialogues on fully specified problems whose feedback comes from wrong tests."""
    doses: Doses = DOSES
    """Noisy phase: share of the repairs that try each habit by which tests are gamed."""
    vocab_size: Positive = 1024
    """Bytes, merges and special tokens; the fixed sentences come on top."""
    hidden_size: Positive = 192
    num_layers: Positive = 6
    feed_forward_size: Positive = 512
    workers: NotNegative = 0
    """Processes that make the corpus; 0: one per core."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """One pass of training over a corpus, and what the corpus is made of."""

    name: str
    learning_rate: float
    noise: Noise = CLEAN
    problems: int = 0
    contradicted: float = 0.0


def new_network(tokenizer: Any, **sizes: Any) -> Any:
    """A Qwen3 causal language model with fresh weights (seed torch before). ``sizes`` replace those of ``SIZES``."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            **{**SIZES, **sizes},
        )
    )


def batches(corpus: TokenizedCorpus, tokens_per_batch: int, rng: "np.random.Generator") -> Iterator["np.ndarray"]:
    """One epoch: arrays of sample numbers, of similar length each, at most ``tokens_per_batch`` with padding."""
    import numpy as np

    order = rng.permutation(len(corpus.lengths))
    order = order[np.argsort(corpus.lengths[order], kind="stable")]
    cuts, longest, start = [], 0, 0
    for place, length in enumerate(corpus.lengths[order]):
        longest = max(longest, int(length))
        if longest * (place - start + 1) > tokens_per_batch:
            cuts.append(place)
            start, longest = place, int(length)
    groups = np.split(order, cuts)
    for number in rng.permutation(len(groups)):
        yield groups[number]


def learning_rate_share(number: int, total: int, warmup_steps: int) -> float:
    """Of a phase's learning rate, in step ``number`` of ``total``: a short warm-up, then a cosine."""
    warmup = min(1.0, (number + 1) / min(warmup_steps, max(1, total // 10)))
    cosine = 0.5 * (1 + math.cos(math.pi * number / total))
    return warmup * (FINAL_LEARNING_RATE + (1 - FINAL_LEARNING_RATE) * cosine)


def train_phase(
    model: Any, corpus: TokenizedCorpus, phase: Phase, tokens_per_batch: int, seed: int, log: Callable[[str], None]
) -> None:
    """Train ``model`` in place on its device, one epoch."""
    import numpy as np
    import torch

    groups = list(batches(corpus, tokens_per_batch, np.random.default_rng(seed)))
    ends = np.cumsum(corpus.lengths, dtype=np.int64)
    on_gpu, parameters = model.device.type == "cuda", list(model.parameters())
    decayed = {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY}
    others = {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([decayed, others], lr=phase.learning_rate, betas=BETAS, fused=on_gpu)
    model.train()
    seen, started = 0, time.monotonic()
    for step, group in enumerate(groups, start=1):
        share = learning_rate_share(step - 1, len(groups), WARMUP_STEPS)
        for settings in optimizer.param_groups:
            settings["lr"] = phase.learning_rate * share

        # Token ids and the mask of response tokens, both (samples, longest).
        lengths, starts = corpus.lengths[group], corpus.starts[group]
        columns = np.arange(lengths.max())
        places = (ends[group] - lengths)[:, None] + np.minimum(columns, lengths[:, None] - 1)
        in_response = (columns >= starts[:, None]) & (columns < lengths[:, None])
        ids = torch.from_numpy(corpus.tokens[places].astype(np.int64)).to(model.device, non_blocking=True)
        mask = torch.from_numpy(in_response).to(model.device, non_blocking=True)[:, 1:]
        with torch.autocast(model.device.type, torch.bfloat16, enabled=on_gpu):
            states = model.model(input_ids=ids[:, :-1], attention_mask=CAUSAL, use_cache=False).last_hidden_state
            logits = model.lm_head(states[mask])
        loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][mask])

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP)
        optimizer.step()
        seen += int(lengths.sum())
        if step % LOG_EVERY == 0 or step == len(groups):
            rate = seen / (time.monotonic() - started)
            log(f"{phase.name}: step {step}/{len(groups)} loss {loss.item():.4f} {rate:,.0f} tokens/s")
    model.eval()


def main(config: PretrainConfig) -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches have many shapes
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    started, log_lines = time.monotonic(), []

    def log(line: str) -> None:
        log_lines.append(f"[{time.monotonic() - started:6.1f} s] {line}")
        print(log_lines[-1], flush=True)

    noise = Noise(slip=config.slip, unrepaired=UNREPAIRED, misread=MISREAD, quote=QUOTE, doses=config.doses)
    phases = [
        Phase(CLEAN_PHASE, LEARNING_RATES["clean"], Noise(quote=QUOTE), config.clean_problems),
        Phase("noisy", LEARNING_RATES["noisy"], noise, config.noisy_problems, config.contradicted),
    ]
    if config.start is not None:
        refuse_missing_model(str(config.start), "--start ")
        phases, tokenizer = phases[1:], AutoTokenizer.from_pretrained(config.start)
    else:
        rng = random.Random(f"{config.seed}-tokenizer")
        samples = sample_dialogues(rng, noise, TOKENIZER_PROBLEMS, config.contradicted)
        tokenizer = train_tokenizer((sample.prompt + sample.response for sample in samples), config.vocab_size)
    workers = config.workers or len(os.sched_getaffinity(0))
    corpora = [
        build_corpus(tokenizer, phase.noise, phase.problems, f"{config.seed}-{phase.name}", workers, phase.contradicted)
        for phase in phases
    ]

    torch.manual_seed(config.seed)
    if config.start is not None:
        model = cast(Any, AutoModelForCausalLM.from_pretrained(config.start, dtype=torch.float32))
    else:
        sizes = {"num_hidden_layers": config.num_layers, "intermediate_size": config.feed_forward_size}
        model = new_network(tokenizer, hidden_size=config.hidden_size, **sizes)
    model = model.to(device)

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        usual_modes(folder)

    parameters = sum(p.numel() for p in model.parameters())
    log(f"{parameters:,} parameters on {device}")
    for phase, corpus in zip(phases, corpora, strict=True):
        log(f"{phase.name}: {len(corpus.lengths):,} samples, {len(corpus.tokens):,} tokens")
        train_phase(model, corpus, phase, config.tokens_per_batch, config.seed, log)
        if phase.name == CLEAN_PHASE:
            save(config.output_dir / CLEAN_PHASE)
    model = model.to(torch.bfloat16)
    save(config.output_dir)
    report = {"config": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(config).items()}}
    report |= {"parameters": parameters, "torch": torch.__version__, "wall_time_s": round(time.monotonic() - started)}
    (config.output_dir / "pretraining.json").write_text(json.dumps({**report, "log": log_lines}, indent=1) + "\n")
    log(f"saved to {config.output_dir}")
