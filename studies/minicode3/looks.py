"""``cobalt minicode3 looks``: the tokens that a policy looked at while it wrote its responses, for ``cobalt view``.

A token is written from the position before it. How much that position looks at an earlier token is the attention of
the head that attends to it most, of all heads in all layers. The first token is left out: idle heads look there.
"""

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import CommandConfig, InputFile, ModelFolder, OutputFile, Positive
from cobalt.prompts import prompt_tokens
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.identity import model_identity
from cobalt.records.jsonl import Record, count_lines
from cobalt.records.manifest import check_paths, file_sha256, recorded_run
from cobalt.records.rows import raw_responses

Turns = list[tuple[list[int], list[int]] | None]
"""Of a trajectory: tokens of prompt and response; None for a turn that is too long."""
FIELDS = ("id", "conversations", "raw_responses")
MOST_LOOKS, LEAST_PERCENT = 6, 10


@dataclass(frozen=True, kw_only=True)
class LooksConfig(CommandConfig):
    """Add to trajectories what the policy looked at, token by token. `cobalt view` shows it."""

    model: ModelFolder = Path("assets/minicoder3")
    """Folder of the policy that wrote the trajectories."""
    input_file: InputFile
    """Trajectories of run_multi_turn_*.py or eval_multi_turn.py, with thinking."""
    output_file: OutputFile
    """The first rows of the input with the field `looks` (JSONL)."""
    num_problems: Positive = 10
    """As many rows from the beginning of the file."""
    num_samples: Positive = 1
    """As many trajectories of each problem."""
    max_tokens: Positive = 4096
    """Turns whose prompt and response are longer are left out: all heads are held in memory."""


def looks_of(network: Any, tokenizer: Any, prompt: list[int], response: list[int]) -> Record:
    """``tokens``: texts. ``start``: the response's first. ``looks``: for each of its tokens [place, percent] pairs."""
    import torch

    ids = torch.tensor([[*prompt, *response]], device=network.device)
    with torch.inference_mode():
        layers = network(ids, output_attentions=True, use_cache=False).attentions
    strongest_LL = torch.stack([heads[0].amax(0) for heads in layers]).amax(0).float().fill_diagonal_(0)
    strongest_LL[:, 0] = 0
    percents, places = (100 * strongest_LL[len(prompt) - 1 : -1]).round().int().topk(min(MOST_LOOKS, ids.shape[1]))
    pairs = zip(places.tolist(), percents.tolist(), strict=True)
    looks = [[pair for pair in zip(*both, strict=True) if pair[1] >= LEAST_PERCENT] for both in pairs]
    return {"tokens": [tokenizer.decode([token]) for token in ids[0]], "start": len(prompt), "looks": looks}


def turns_of(row: Record, tokenizer: Any, config: LooksConfig) -> list[Turns]:
    """Of the first samples."""
    responses_TN, found = raw_responses(row), []
    for sample, messages in enumerate(row["conversations"][: config.num_samples]):
        first = 1 + [message["role"] for message in messages].index("user")
        turns: Turns = []
        for turn, texts_N in enumerate(responses_TN):
            prompt = prompt_tokens(tokenizer, messages[: first + 2 * turn])
            response = tokenizer.encode(texts_N[sample] or "", add_special_tokens=False)
            turns.append((prompt, response) if 0 < len(response) <= config.max_tokens - len(prompt) else None)
        found.append(turns)
    return found


def main(config: LooksConfig) -> None:
    check_paths([config.input_file], [config.output_file])
    import torch

    from cobalt.inference.huggingface import load_network

    network, tokenizer = load_network(str(config.model), "--model", torch.float32, "eager")
    content = {"model_id": model_identity(str(config.model)), "input_sha256": file_sha256(config.input_file)}
    content |= {name: getattr(config, name) for name in ("num_problems", "num_samples", "max_tokens")}

    def read(row: Record) -> tuple[Record, list[Turns]]:
        try:
            return row, turns_of(row, tokenizer, config)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not readable as trajectories: {error!r}") from None

    outputs = {config.output_file: content}
    with recorded_run("cobalt minicode3 looks", asdict(config), [config.input_file], outputs) as run:
        rows = itertools.islice(read_jsonl(config.input_file, FIELDS, parse=read), config.num_problems)
        total = min(config.num_problems, count_lines(config.input_file))
        made = progress_bar(iterable=rows, total=total, desc="looks", unit=" problems")
        looked = (
            {**row, "looks": [[turn and looks_of(network, tokenizer, *turn) for turn in turns] for turns in samples]}
            for row, samples in made
        )
        run.counts = {"problems": write_jsonl(config.output_file, looked)}
    print_summary(f"Looks: {config.output_file}", run.counts)
