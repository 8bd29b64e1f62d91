"""A model and prompts of chosen sizes, for measuring what a training costs where its weights cannot be had.

    python -m research.benchmarks.sized --shape qwen3-8b --tokenizer Qwen/Qwen3-8B --response 600 \
      --contexts data/train.parquet --prompt 3200 --output sized

It writes ``sized/model``, a Qwen3 of random weights whose responses end with the same chance at each token, and
``sized/train.parquet``, rows of ``--contexts`` whose prompts are filled up with text of other rows. So a step reads and
computes what one of a real model with such lengths does. It learns nothing: no response has a program.

Attention and feed-forward parts are computed and add nothing to the residual stream, so the last norm reads the
embedding alone. Its channel 0 is the same for all tokens, and the head reads it for the end token alone: that token's
logit is a constant, and the other logits are normal with the variance that the head's weights have.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from annotated_types import Gt
from pydantic.dataclasses import dataclass
from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from cobalt.cli.console import print_summary
from cobalt.cli.entry import run
from cobalt.cli.flags import CommandConfig, Positive
from cobalt.errors import InputError
from cobalt.records import Manifest
from cobalt.records.identity import refuse_missing_model
from cobalt.records.manifest import check_paths, refuse_existing, whole_folder
from cobalt.records.parquet import parquet_errors
from cobalt.training.cost_model import SHAPES, Shape

STD = 0.02
"""Of random weights."""
SPREAD = 2 / 3
"""Prompts have from 1 - ``SPREAD`` to 1 + ``SPREAD`` times the mean's tokens, all equally often."""


def sized_model(shape: Shape, end_token: int, mean: float) -> Any:
    """A bf16 Qwen3 of random weights, on the GPU if there is one. ``mean``: tokens of a response that nothing cuts.

    ``end_token``: its id. The head must not be tied to the embedding.
    """
    config = Qwen3Config(**asdict(shape), eos_token_id=end_token, initializer_range=STD, dtype="bfloat16")
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: Any = Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.normal_()[:, 0] = 1
        head = model.lm_head.weight.normal_(std=STD)
        head[:, 0] = 0
        head[end_token] = 0
        # the sum of all other exponentials, in the mean
        others = math.log(shape.vocab_size) + STD**2 * shape.hidden_size / 2
        head[end_token, 0] = others - math.log(mean)
    model.generation_config = GenerationConfig(eos_token_id=end_token, pad_token_id=end_token)
    return model


def filled_up(rows: Sequence[dict[str, Any]], tokenizer: Any, mean: int, seed: int) -> Iterator[dict[str, Any]]:
    """``rows`` of a training file, whose last messages begin with text of others. ``mean``: tokens of a prompt."""
    draw = random.Random(seed)
    texts = [row["prompt"][-1]["content"] for row in rows]
    for row in rows:
        missing = draw.uniform(1 - SPREAD, 1 + SPREAD) * mean
        missing -= len(tokenizer.encode("".join(message["content"] for message in row["prompt"])))
        filling: list[int] = []
        while len(filling) < missing:
            filling += tokenizer.encode(draw.choice(texts))
        *before, last = row["prompt"]
        text = tokenizer.decode(filling[: max(0, int(missing))]) + last["content"]
        yield {**row, "prompt": [*before, {**last, "content": text}]}


@dataclass(frozen=True, kw_only=True)
class SizedConfig(CommandConfig):
    """Make a model and prompts of chosen sizes, for measuring what a training costs."""

    shape: Literal["qwen3-8b", "qwen3-14b", "qwen3-32b"] = "qwen3-8b"
    tokenizer: str
    """Hugging Face id or folder; its vocabulary must not be larger than the shape's."""
    response: Annotated[float, Gt(1)] = 600
    """Tokens of a response, mean, if nothing cuts it."""
    contexts: Path
    """Training rows (``preproc/verl_preproc_multi_turn.py``)."""
    prompt: Positive = 3200
    """Tokens of a prompt, mean."""
    output: Path
    """Folder; must not exist yet."""
    seed: int = 0


def main(config: SizedConfig) -> None:
    """Write both. The folder appears complete or not at all."""
    refuse_existing(config.output)
    check_paths([config.contexts], [])
    refuse_missing_model(config.tokenizer, "--tokenizer ")
    tokenizer: Any = AutoTokenizer.from_pretrained(config.tokenizer)
    shape = SHAPES[config.shape]
    if len(tokenizer) > shape.vocab_size:
        raise InputError(f"--tokenizer: {len(tokenizer)} tokens, and {config.shape} has {shape.vocab_size}")
    with parquet_errors(config.contexts):
        table = pq.read_table(config.contexts)
    if "prompt" not in table.column_names or not pa.types.is_list(table.schema.field("prompt").type):
        raise InputError.at(config.contexts, None, "no column 'prompt' of messages: not a training file")
    given = table.to_pylist()
    if not any(row["prompt"][-1]["content"] for row in given):
        raise InputError.at(config.contexts, None, "no prompts")
    rows = list(filled_up(given, tokenizer, config.prompt, config.seed))
    content = {"shape": asdict(shape), **{name: getattr(config, name) for name in ("response", "prompt", "seed")}}
    manifest = Manifest(config.output, "research/benchmarks/sized.py", asdict(config), content, [config.contexts])
    manifest.start()
    torch.manual_seed(config.seed)
    with whole_folder(config.output) as folder:
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "train.parquet")
        model = sized_model(shape, tokenizer.eos_token_id, config.response)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
    manifest.counts = {"parameters": model.num_parameters(), "prompts": len(rows)}
    manifest.done()
    print_summary(f"{config.shape}: {config.output}", manifest.counts)


if __name__ == "__main__":
    run(SizedConfig, main)
