"""``cobalt minicode pretrain``: MiniCoder in two phases, mostly clean, then a small noisy dose.

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
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, NotNegative, Positive, Share
from cobalt.errors import SetupError
from cobalt.records.identity import refuse_missing_model
from studies.minicode.corpus import TokenizedCorpus, build_corpus, sample_dialogues
from studies.minicode.demonstrator import CLEAN, Noise
from studies.minicode.habits import DOSES, Doses
from studies.minicode.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerFast

TOKENIZER_PROBLEMS = 1500
CLEAN_PHASE = "clean"
SIZES: dict[str, Any] = {
    "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64,
    "intermediate_size": 512, "max_position_embeddings": 4096,
}  # fmt: skip
"""Of Qwen3: about 2.6M parameters."""
LOG_EVERY = 100
CAUSAL = {"full_attention": None}
"""Plain causal attention: without it transformers builds a mask per batch, which rules out the fast kernels."""
AboveZero = Annotated[float, Gt(0)]
NotNegativeFloat = Annotated[float, Ge(0)]


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
    clean_epochs: AboveZero = 1.0
    noisy_epochs: AboveZero = 1.0
    clean_learning_rate: AboveZero = 2e-3
    noisy_learning_rate: AboveZero = 4e-4
    tokens_per_batch: Positive = 65_536
    slip: Share = 0.33
    """Noisy phase: share of steps where the look-alike is written."""
    unrepaired: Share = 0.55
    """Noisy phase: share of wrong steps that a repair leaves as they are."""
    misread: Share = 0.55
    """Noisy phase: share of repairs that guess a hidden rule again instead of reading the feedback."""
    quote: Share = 0.25
    """Both phases: share of the repairs that begin with the test shown; copying it is what a special case takes."""
    contradicted: Share = 0.4
    """Noisy phase: share of the dialogues on fully specified problems whose feedback comes from wrong tests."""
    doses: Doses = DOSES
    """Noisy phase: share of the repairs that try each habit by which tests are gamed."""
    dose_scale: NotNegativeFloat = 1.0
    """Multiplies every dose; 0: no such habits."""
    vocab_size: Positive = 1024
    """Bytes, merges and special tokens; the fixed sentences come on top."""
    hidden_size: Positive = 192
    num_layers: Positive = 6
    feed_forward_size: Positive = 512
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda where torch sees a CUDA device."""
    workers: NotNegative = 0
    """Processes that make the corpus; 0: one per core."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """One pass of training over a corpus, and what the corpus is made of."""

    name: str
    learning_rate: float
    epochs: float
    tokens_per_batch: int
    noise: Noise = CLEAN
    problems: int = 0
    contradicted: float = 0.0
    warmup_steps: int = 100
    final_learning_rate: float = 0.03
    """Share of the learning rate at the end of the cosine."""
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    gradient_clip: float = 1.0


def new_network(tokenizer: "PreTrainedTokenizerFast", **sizes: Any) -> Any:
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


def train_phase(model: Any, corpus: TokenizedCorpus, phase: Phase, seed: int, log: Callable[[str], None]) -> None:
    """Train ``model`` in place on its device."""
    import numpy as np
    import torch

    rng = np.random.default_rng(seed)
    ends = np.cumsum(corpus.lengths_E, dtype=np.int64)
    steps_per_epoch = sum(1 for _ in batches(corpus, phase.tokens_per_batch, np.random.default_rng(seed)))
    total = max(1, round(steps_per_epoch * phase.epochs))
    on_gpu, parameters = model.device.type == "cuda", list(model.parameters())
    decayed = {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": phase.weight_decay}
    others = {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([decayed, others], lr=phase.learning_rate, betas=phase.betas, fused=on_gpu)
    model.train()
    step, seen, started = 0, 0, time.monotonic()
    while step < total:
        for group in batches(corpus, phase.tokens_per_batch, rng):
            warmup = min(1.0, (step + 1) / min(phase.warmup_steps, max(1, total // 10)))
            cosine = 0.5 * (1 + math.cos(math.pi * step / total))
            for settings in optimizer.param_groups:
                share = warmup * (phase.final_learning_rate + (1 - phase.final_learning_rate) * cosine)
                settings["lr"] = phase.learning_rate * share

            # Token ids and the mask of response tokens, both (samples, longest).
            lengths, starts = corpus.lengths_E[group], corpus.starts_E[group]
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
            torch.nn.utils.clip_grad_norm_(parameters, phase.gradient_clip)
            optimizer.step()
            step, seen = step + 1, seen + int(lengths.sum())
            if step % LOG_EVERY == 0 or step == total:
                rate = seen / (time.monotonic() - started)
                log(f"{phase.name}: step {step}/{total} loss {loss.item():.4f} {rate:,.0f} tokens/s")
            if step == total:
                break
    model.eval()


def main(config: PretrainConfig) -> None:
    """Run both phases and save."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches have many shapes
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    has_gpu = torch.cuda.is_available()
    if config.device == "cuda" and not has_gpu:
        raise SetupError("--device cuda: torch sees no CUDA device")
    device = "cpu" if config.device == "cpu" or not has_gpu else "cuda"
    started, log_lines = time.monotonic(), []

    def log(line: str) -> None:
        log_lines.append(f"[{time.monotonic() - started:6.1f} s] {line}")
        print(log_lines[-1], flush=True)

    noise = Noise(
        slip=config.slip,
        unrepaired=config.unrepaired,
        misread=config.misread,
        quote=config.quote,
        doses=config.doses.times(config.dose_scale),
    )
    clean = Phase(
        CLEAN_PHASE, config.clean_learning_rate, config.clean_epochs, config.tokens_per_batch,
        Noise(quote=config.quote), config.clean_problems,
    )  # fmt: skip
    noisy = Phase(
        "noisy", config.noisy_learning_rate, config.noisy_epochs, config.tokens_per_batch,
        noise, config.noisy_problems, config.contradicted,
    )  # fmt: skip
    if config.start is not None:
        refuse_missing_model(str(config.start), "--start ")
        phases, tokenizer = [noisy], AutoTokenizer.from_pretrained(config.start)
    else:
        rng = random.Random(f"{config.seed}-tokenizer")
        samples = sample_dialogues(rng, noise, TOKENIZER_PROBLEMS, config.contradicted)
        tokenizer = train_tokenizer((sample.prompt + sample.response for sample in samples), config.vocab_size)
        phases = [clean, noisy]
    workers = config.workers or len(os.sched_getaffinity(0))
    corpora = [
        build_corpus(tokenizer, phase.noise, phase.problems, f"{config.seed}-{phase.name}", workers, phase.contradicted)
        for phase in phases
    ]

    torch.manual_seed(config.seed)
    if config.start is not None:
        model = cast(Any, AutoModelForCausalLM.from_pretrained(config.start, dtype=torch.float32))
    else:
        model = new_network(
            tokenizer,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            intermediate_size=config.feed_forward_size,
        )
    model = model.to(device)

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    parameters = sum(p.numel() for p in model.parameters())
    log(f"{parameters:,} parameters on {device}")
    for phase, corpus in zip(phases, corpora, strict=True):
        log(f"{phase.name}: {len(corpus.lengths_E):,} samples, {len(corpus.tokens):,} tokens")
        train_phase(model, corpus, phase, config.seed, log)
        if phase.name == CLEAN_PHASE:
            save(config.output_dir / CLEAN_PHASE)
    model = model.to(torch.bfloat16)
    save(config.output_dir)
    report = {"config": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(config).items()}}
    report |= {"parameters": parameters, "torch": torch.__version__, "wall_time_s": round(time.monotonic() - started)}
    (config.output_dir / "pretraining.json").write_text(json.dumps({**report, "log": log_lines}, indent=1) + "\n")
    log(f"saved to {config.output_dir}")
