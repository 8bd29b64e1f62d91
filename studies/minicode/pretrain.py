"""``cobalt minicode pretrain``: MiniCoder in two phases, mostly clean, then a small noisy dose.

The clean phase teaches every operation, reading feedback, and repairing any failed program. The noisy dose makes the
policy deliberately imperfect in a way that reinforcement learning can undo: independent slips on steps that it knows,
and habits that game a test (``habits.py``). Writes a Hugging Face checkpoint (bf16 safetensors, tokenizer,
chat template) and ``pretraining.json``; the folder ``clean`` in it is the network between the phases, in fp32.
"""

import json
import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt

from cobalt.commands.flags import CommandConfig, NotNegative, Positive, Share
from cobalt.errors import SetupError
from cobalt.records.identity import refuse_missing_model
from studies.minicode.attempts import Noise
from studies.minicode.corpus import TokenizedCorpus, build_corpus, sample_dialogues
from studies.minicode.habits import DOSES, Doses
from studies.minicode.learning import NetworkConfig, PhaseConfig, new_network, train_phase
from studies.minicode.tokenizer import train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENIZER_PROBLEMS = 1500
CLEAN_PHASE = "clean"
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


@dataclass(frozen=True)
class Phase:
    """How to train, how imperfect the corpus is, and of how many problems it is made."""

    training: PhaseConfig
    noise: Noise
    problems: int
    contradicted: float = 0.0

    @property
    def name(self) -> str:
        return self.training.name


def main(config: PretrainConfig) -> None:
    """Run both phases and save."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # batches have many shapes
    import torch

    device, started, log_lines = _device(config), time.monotonic(), []

    def log(line: str) -> None:
        log_lines.append(f"[{time.monotonic() - started:6.1f} s] {line}")
        print(log_lines[-1], flush=True)

    if config.start is not None:
        refuse_missing_model(str(config.start), "--start ")
    tokenizer = _tokenizer(config)
    corpora = [_corpus(config, tokenizer, phase) for phase in _phases(config)]
    torch.manual_seed(config.seed)
    model = _network(config, tokenizer).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    log(f"{parameters:,} parameters on {device}")
    for phase, corpus in zip(_phases(config), corpora, strict=True):
        log(f"{phase.name}: {len(corpus.lengths_E):,} samples, {len(corpus.tokens):,} tokens")
        train_phase(model, corpus, phase.training, config.seed, log)
        if phase.name == CLEAN_PHASE:
            _save(model, tokenizer, config.output_dir / CLEAN_PHASE)
    _save(model.to(torch.bfloat16), tokenizer, config.output_dir)
    report = {"config": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(config).items()}}
    report |= {"parameters": parameters, "torch": torch.__version__, "wall_time_s": round(time.monotonic() - started)}
    (config.output_dir / "pretraining.json").write_text(json.dumps({**report, "log": log_lines}, indent=1) + "\n")
    log(f"saved to {config.output_dir}")


def _device(config: PretrainConfig) -> str:
    import torch

    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if config.device == "cuda" and not torch.cuda.is_available():
        raise SetupError("--device cuda: torch sees no CUDA device")
    return config.device


def _tokenizer(config: PretrainConfig) -> "PreTrainedTokenizerFast":
    """That of ``config.start``, or one trained on dialogues of the noisy phase."""
    if config.start is not None:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(config.start)
    noisy = _phases(config)[-1]
    texts = sample_dialogues(
        random.Random(f"{config.seed}-tokenizer"), noisy.noise, TOKENIZER_PROBLEMS, noisy.contradicted
    )
    return train_tokenizer((sample.prompt + sample.response for sample in texts), config.vocab_size)


def _network(config: PretrainConfig, tokenizer: "PreTrainedTokenizerFast") -> Any:
    if config.start is not None:
        import torch
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(config.start, dtype=torch.float32)
    return new_network(_sizes(config), tokenizer)


def _save(model: Any, tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _corpus(config: PretrainConfig, tokenizer: "PreTrainedTokenizerFast", phase: Phase) -> TokenizedCorpus:
    workers = config.workers or len(os.sched_getaffinity(0))
    seed = f"{config.seed}-{phase.name}"
    return build_corpus(tokenizer, phase.noise, phase.problems, seed, workers, phase.contradicted)


def _phases(config: PretrainConfig) -> list[Phase]:
    """The phases to be run, the noisy one last."""
    noise = Noise(
        slip=config.slip,
        unrepaired=config.unrepaired,
        misread=config.misread,
        quote=config.quote,
        doses=config.doses.times(config.dose_scale),
    )
    batch = config.tokens_per_batch
    clean = PhaseConfig(CLEAN_PHASE, config.clean_learning_rate, config.clean_epochs, batch)
    noisy = PhaseConfig("noisy", config.noisy_learning_rate, config.noisy_epochs, batch)
    phases = [
        Phase(clean, Noise(quote=config.quote), config.clean_problems),
        Phase(noisy, noise, config.noisy_problems, config.contradicted),
    ]
    return phases if config.start is None else phases[1:]


def _sizes(config: PretrainConfig) -> NetworkConfig:
    return NetworkConfig(
        hidden_size=config.hidden_size, num_layers=config.num_layers, feed_forward_size=config.feed_forward_size
    )
