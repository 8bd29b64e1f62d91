"""Cobalt's reward as a reward function of TRL's ``GRPOTrainer`` (examples/README.md says how to run it).

It trains on the partial trajectories of ``preproc/process_multi_turn_taco.py``, one program for each.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportPrivateImportUsage] - TRL's own way to import it

from cobalt.extraction import extract_code
from cobalt.records import read_jsonl
from cobalt.rewards import CountTokens, Thinking, thinking_of, tokenizer_counter, training_reward
from cobalt.sandbox import Executor

COLUMNS = ("test_cases", "prev_best_pass_rate")


async def cobalt(
    completions: list[Any],
    test_cases: list[str],
    prev_best_pass_rate: list[float],
    count_tokens: CountTokens,
    thinking: Thinking,
    **_: Any,
) -> list[float | None]:
    """The rewards. None where the infrastructure failed: TRL gives such a completion no advantage."""
    responses = [completion[0]["content"] for completion in completions]
    codes = [extract_code(response) for response in responses]
    async with Executor() as executor:
        results = await executor.run_many(list(zip(codes, test_cases, strict=True)))
    rewards: list[float | None] = []
    for response, code, result, best in zip(responses, codes, results, prev_best_pass_rate, strict=True):
        rate = None if code is None else result.pass_rate
        reward = training_reward(response, rate, best, count_tokens, thinking=thinking).total
        rewards.append(None if result.infra_error is not None else reward)
    return rewards


@dataclass
class TrainConfig:
    """Train a policy with TRL on bandit prompts."""

    contexts: Path
    """Bandit prompts (JSONL)."""
    model: str
    """Directory or hub name of the policy."""
    output_dir: str
    """Folder for checkpoints."""
    steps: int = 10
    prompts_per_step: int = 4
    num_generations: int = 8
    """Responses to each prompt."""
    max_tokens: int = 256
    """Most tokens in one response."""


def main(config: TrainConfig) -> GRPOTrainer:
    """Train; returns the trainer, which holds the log."""
    rows = [
        {"prompt": row["conversation"], **{name: row[name] for name in COLUMNS}}
        for row in read_jsonl(config.contexts, ("conversation", *COLUMNS), unique=None)
    ]
    settings = GRPOConfig(
        config.output_dir,
        max_steps=config.steps,
        num_generations=config.num_generations,
        per_device_train_batch_size=config.prompts_per_step * config.num_generations,
        max_completion_length=config.max_tokens,
        logging_steps=1,
        report_to="none",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
    )
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    reward: Any = partial(cobalt, count_tokens=tokenizer_counter(tokenizer), thinking=thinking_of(tokenizer))
    trainer = GRPOTrainer(config.model, reward, settings, Dataset.from_list(rows))
    trainer.train()
    return trainer


if __name__ == "__main__":
    main(tyro.cli(TrainConfig, use_underscores=True))
