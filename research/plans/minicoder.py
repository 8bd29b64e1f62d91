"""Makes the checkpoint of assets/minicoder, and its scores on MiniCode dev."""

from pathlib import Path
from typing import Literal

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig
from research.plans.places import Folder, Place

SMALL = "--hidden_size 144 --feed_forward_size 384 --num_layers 5"
PROBES = "--num_problems 200 --num_turns 8 --perturbed_problems 140"


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
    size: Literal["full", "small"] = "full"
    """small: a smaller network on the same corpus; with --seed 1 the other reference of the results."""
    start: Path | None = None
    """A checkpoint to begin the noisy phase with, such as `clean` in another run's folder."""


def make_minicoder(config: MinicoderConfig) -> None:
    out, sizes = config.output_dir, SMALL if config.size == "small" else ""
    place = Place(Folder(out), {})
    start = ["--start", config.start] if config.start else []
    files = ["--output_dir", out, "--seed", str(config.seed)]
    place.run("-m", "research", "minicode", "pretrain", *files, *start, *sizes.split())
    scores = ["--model", out, "--output_file", out / "scores.json"]
    place.run("-m", "research", "minicode", "probe", *scores, *PROBES.split())
