"""Makes the checkpoint of assets/minicoder, and its scores on MiniCode dev."""

from pathlib import Path
from typing import Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig
from research.plans.places import Folder, Place

SMALL = "--hidden_size 144 --feed_forward_size 384 --num_layers 5"
TINY = (
    "--clean_problems 4000 --noisy_problems 500 --tokens_per_batch 8192 --hidden_size 128 --num_layers 4"
    " --feed_forward_size 384 --vocab_size 768"
)
PROBES = "--num_problems 200 --num_turns 8 --look_alike_decisions 60 --perturbed_problems 140"
FEW_PROBES = "--num_problems 24 --num_turns 3 --look_alike_decisions 2 --perturbed_problems 12"
SIZES = {"full": ("", PROBES), "small": (SMALL, PROBES), "cpu": (TINY, FEW_PROBES)}
"""Flags of the two commands."""


@dataclass(frozen=True, kw_only=True)
class MinicoderConfig(CommandConfig):
    """Make the checkpoint of assets/minicoder: corpus, tokenizer, two training phases, and its scores on MiniCode dev.

    Under 10 minutes on one H200-class GPU with 16 cores.
    """

    output_dir: Path = Path("runs/minicoder")
    """Where the checkpoint, pretraining.json and scores.json are written. A relative path starts in the project's
    folder."""
    seed: int = 0
    """Seed of the corpus and of training."""
    size: Literal["full", "small", "cpu"] = "full"
    """small: a smaller network on the same corpus, with --seed 1 that of assets/minicoder-small. cpu: a smaller corpus
    too, for a machine without a GPU; it shows that the chain works, its skill is far below that of the shipped ones."""
    start: Path | None = None
    """A checkpoint to begin the noisy phase with, such as `clean` in another run's folder."""


def make_minicoder(config: MinicoderConfig) -> None:
    out, (sizes, probes) = config.output_dir, SIZES[config.size]
    place = Place(Folder(out), {})
    start = ["--start", config.start] if config.start else []
    files = ["--output_dir", out, "--seed", str(config.seed)]
    place.run("-m", "research", "minicode", "pretrain", *files, *start, *sizes.split())
    scores = ["--model", out, "--output_file", out / "scores.json"]
    place.run("-m", "research", "minicode", "probe", *scores, *probes.split())
