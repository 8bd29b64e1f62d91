"""``research offline``: a policy trained on the reference's stored answers, with nothing sampled and no program run.

``rft``: cross-entropy on the first passing answer to each context, the mean over all response tokens of a batch (as
with ``cobalt.loss_weights=tokens``). ``dpo``: direct preference optimisation (arXiv 2305.18290) on the first passing
and the first failing answer to one context.

Plain torch in fp32, AdamW with the recipe's settings and a constant learning rate. The checkpoint is in bf16, as
``cobalt merge`` writes it.
"""

import dataclasses
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import AboveZero, CommandConfig, ModelName, Positive, Share
from cobalt.cli.tasks import batched
from cobalt.errors import InputError
from cobalt.prompts import prompt_tokens
from cobalt.records.identity import model_identity, refuse_missing_model
from cobalt.records.manifest import origin_of, recorded_run, refuse_existing, whole_folder
from cobalt.training.merge import keep_settings
from research.offline.examples import Example, Messages, read_examples

WEIGHT_DECAY, BETAS, GRADIENT_CLIP = 0.01, (0.9, 0.999), 1.0
"""As in the recipe."""
LOG_EVERY = 10

Scored = tuple[list[int], list[int]]
"""Token ids of a prompt and of the response to it, end token included."""


@dataclasses.dataclass
class Row:
    """What one context adds to a batch: a passing answer and, of DPO, a failing one after it."""

    answers: list[Scored]
    reference: float = 0.0
    """Of DPO: the ``margins`` of the reference."""


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(CommandConfig):
    """Train on stored answers to the bandit's contexts: rejection-sampling fine-tuning, or DPO."""

    method: Literal["rft", "dpo"]
    contexts: Path
    """The bandit's contexts (process_multi_turn_taco.py)."""
    trajectories: Path
    """The evaluated trajectories that the contexts were made from (eval_multi_turn.py)."""
    model: ModelName
    """Directory or hub name of the policy to begin with; of DPO also the reference."""
    output_dir: Path
    """The checkpoint's folder; must not exist yet."""
    learning_rate: AboveZero
    epochs: Positive = 1
    batch_size: Positive = 64
    """Sequences in a step; a pair of DPO is two."""
    beta: AboveZero = 0.1
    """Of DPO: how much a distance to the reference costs."""
    held_out: Share = 0.0
    """Share of the problems that are left out of training and measured after it."""
    seed: int = 0


def main(config: OfflineConfig) -> None:
    """See ``OfflineConfig``. The output folder appears complete or not at all."""
    refuse_existing(config.output_dir)
    refuse_missing_model(config.model, "--model ")
    inputs = [config.contexts, config.trajectories]
    paths = ("contexts", "trajectories", "model", "output_dir")
    content = {name: value for name, value in asdict(config).items() if name not in paths}
    contents = {config.output_dir: {**content, "model_id": model_identity(config.model)}}
    with recorded_run("offline", asdict(config), inputs, contents) as run, whole_folder(config.output_dir) as partial:
        examples, run.counts = read_examples(*inputs)
        run.origin = origin_of(config.trajectories)
        started = time.monotonic()
        model, tokenizer = load(config.model)
        run.counts |= train(model, tokenizer, examples, config)
        run.counts["seconds"] = round(time.monotonic() - started, 1)
        save(model, tokenizer, config.model, partial)
    print(f"{config.output_dir}: {run.counts}")


def load(model: str) -> tuple[Any, Any]:
    """Network in fp32, on CUDA if there is a device, and tokenizer."""
    from cobalt.inference.huggingface import load_network

    return load_network(model, "--model", torch.float32, attention="sdpa")


def encode(tokenizer: Any, messages: Messages, answer: str) -> Scored:
    """A context as the sampler and veRL's data set read it, and the answer to it."""
    return prompt_tokens(tokenizer, messages), [
        *tokenizer.encode(answer, add_special_tokens=False),
        tokenizer.eos_token_id,
    ]


def rows_of(examples: Sequence[Example], tokenizer: Any, method: str, room: int) -> list[tuple[Any, Row]]:
    """The problem and the row of each example that ``method`` can use and that fits into ``room`` tokens."""
    rows = []
    for example in examples:
        wanted = [example.passing] if method == "rft" else [example.passing, example.failing]
        answers = [encode(tokenizer, example.messages, text) for text in wanted if text is not None]
        if len(answers) == len(wanted) and all(len(prompt) + len(response) <= room for prompt, response in answers):
            rows.append((example.problem, Row(answers)))
    return rows


def train(model: Any, tokenizer: Any, examples: Sequence[Example], config: OfflineConfig) -> dict[str, Any]:
    """Train ``model`` in place. Returns how much it was trained, and what was measured."""
    rows, held_out = [], []
    for problem, row in rows_of(examples, tokenizer, config.method, model.config.max_position_embeddings):
        # Each problem draws for itself: its contexts lie on one side.
        is_held_out = random.Random(f"{config.seed}-{problem}").random() < config.held_out
        (held_out if is_held_out else rows).append(row)
    if not rows:
        raise InputError("nothing to train on: no context has the stored answers that are needed")
    per_batch = max(1, config.batch_size // len(rows[0].answers))

    model.eval()
    if config.method == "dpo":
        with torch.no_grad():
            for batch in batched([*rows, *held_out], per_batch):
                for row, margin in zip(batch, margins(model, batch).tolist(), strict=True):
                    row.reference = margin
    before = measure(model, held_out, per_batch, config.beta)

    model.train()
    torch.manual_seed(config.seed)
    rng, step, started = random.Random(config.seed), 0, time.monotonic()
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate, BETAS, weight_decay=WEIGHT_DECAY)
    steps = config.epochs * math.ceil(len(rows) / per_batch)
    for _ in range(config.epochs):
        for batch in batched(rng.sample(rows, len(rows)), per_batch):
            loss = losses(model, batch, config.beta).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
            optimizer.step()
            step += 1
            if step % LOG_EVERY == 0 or step in (1, steps):
                print(f"step {step}/{steps} loss {loss.item():.4f} {time.monotonic() - started:.1f} s", flush=True)

    model.eval()
    tokens = config.epochs * sum(len(response) for row in rows for _, response in row.answers)
    results = {"rows": len(rows), "steps": steps, "response tokens": tokens, "rows held out": len(held_out)}
    return {**results, "held out, before": before, "held out": measure(model, held_out, per_batch, config.beta)}


def measure(model: Any, rows: Sequence[Row], per_batch: int, beta: float) -> dict[str, float]:
    """The mean loss on ``rows`` and, of DPO, the share of pairs whose margin is above the reference's."""
    if not rows:
        return {}
    with torch.no_grad():
        found = torch.cat([losses(model, batch, beta) for batch in batched(rows, per_batch)])
    results = {"loss": round(found.mean().item(), 5)}
    if len(rows[0].answers) == 2:
        of_reference = math.log(2)  # the loss at its margin
        results["accuracy"] = round((found < of_reference).float().mean().item(), 4)
    return results


def losses(model: Any, batch: Sequence[Row], beta: float) -> torch.Tensor:
    """What the loss is the mean of. Rejection sampling: one value for each token. DPO: one for each pair."""
    if len(batch[0].answers) == 1:
        return -torch.cat(response_log_probs(model, [row.answers[0] for row in batch]))
    references = torch.tensor([row.reference for row in batch], device=model.device)
    return -torch.nn.functional.logsigmoid(beta * (margins(model, batch) - references))


def margins(model: Any, batch: Sequence[Row]) -> torch.Tensor:
    """log π(passing) − log π(failing) of each pair."""
    log_probs = response_log_probs(model, [answer for row in batch for answer in row.answers])
    sums = torch.stack([of_answer.sum() for of_answer in log_probs]).view(-1, 2)
    return sums[:, 0] - sums[:, 1]


def response_log_probs(model: Any, answers: Sequence[Scored]) -> list[torch.Tensor]:
    """Log-probabilities of the tokens of each answer.

    Prompt and response pass together, padded on the right. There a causal network needs no mask against padding.
    """
    rows = [torch.tensor([*prompt, *response]) for prompt, response in answers]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
    states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    # the state before a token gives the token
    before = [states[i, len(prompt) - 1 : len(rows[i]) - 1] for i, (prompt, _) in enumerate(answers)]
    tokens = torch.cat([torch.tensor(response) for _, response in answers]).to(model.device)
    logits = model.get_output_embeddings()(torch.cat(before))
    log_probs = -torch.nn.functional.cross_entropy(logits.float(), tokens, reduction="none")
    return list(log_probs.split([len(response) for _, response in answers]))


def save(model: Any, tokenizer: Any, start: str, folder: Path) -> None:
    """Write the checkpoint, with the start's own settings."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    keep_settings(start, folder)
