"""The local Hugging Face engine: the right distribution, seeds that do not depend on batching, limits."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import CONTEXT, save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.errors import InputError
from cobalt.inference.engine import FINISH_CONTEXT, Sampling
from cobalt.inference.hf_attention import ATTENTION, register
from cobalt.inference.hf_sampling import Row, sample_batch, sample_tokens
from cobalt.inference.huggingface import open_huggingface_engine


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(path: str):
    register()
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=ATTENTION).eval()


def sample(model, rows: list[Row], end_tokens: frozenset[int] = frozenset()) -> list[list[int]]:
    tokens: dict[int, list[int]] = {}
    sample_batch(model, rows, set(end_tokens), lambda index, found, ended: tokens.update({index: found}))
    return [tokens[index] for index in range(len(rows))]


def prompts(lengths: list[int]) -> list[tuple[int, ...]]:
    generator = np.random.default_rng(0)
    return [tuple(int(token) for token in generator.integers(3, 250, length)) for length in lengths]


def test_greedy_equals_generate_of_transformers(model, path: str) -> None:
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    chosen = prompts([40, 3, 17])
    ours = sample(model, [Row(prompt, 90, 0.0, 1.0, 0) for prompt in chosen])
    for prompt, tokens in zip(chosen, ours, strict=True):
        inputs = torch.tensor([prompt])
        output = reference.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=90, do_sample=False, eos_token_id=None
        )
        assert tokens == output[0, len(prompt) :].tolist()


def test_a_row_does_not_depend_on_its_batch(model) -> None:
    """Different lengths, limits and early ends: compaction, padding and growth must not show."""
    lengths = [5, 80, 33, 33, 150, 8, 61, 12]
    rows = [Row(prompt, 20 + 17 * n, 0.8, 0.9, n) for n, prompt in enumerate(prompts(lengths))]
    together = sample(model, rows, frozenset(range(3, 9)))
    assert together == [sample(model, [row], frozenset(range(3, 9)))[0] for row in rows]
    assert len({len(tokens) for tokens in together}) > 3


def test_equal_prompts_with_different_seeds_differ(model) -> None:
    (prompt,) = prompts([20])
    texts = sample(model, [Row(prompt, 16, 1.0, 1.0, seed) for seed in range(8)])
    assert len(set(map(tuple, texts))) == 8
    assert texts == sample(model, [Row(prompt, 16, 1.0, 1.0, seed) for seed in range(8)])


def test_sampled_tokens_follow_the_nucleus() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = 20_000
    uniforms = torch.rand(draws, generator=torch.Generator().manual_seed(0))
    logits = probabilities.log().repeat(draws, 1)
    tokens = sample_tokens(logits, torch.ones(draws), torch.full((draws,), 0.8), uniforms)
    shares = torch.bincount(tokens, minlength=4) / draws
    assert torch.allclose(shares, torch.tensor([0.625, 0.375, 0, 0]), atol=0.015)
    tokens = sample_tokens(logits, torch.full((draws,), 0.5), torch.ones(draws), uniforms)
    assert torch.allclose(torch.bincount(tokens, minlength=4) / draws, probabilities**2 / 0.365, atol=0.015)


async def test_engine_answers_many_at_once(path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path)
    async with open_huggingface_engine(path, batch_size=4, max_in_flight=None) as engine:
        asked = [[{"role": "user", "content": "x" * (3 * n + 1)}] for n in range(11)]
        sampling = Sampling(1.0, 1.0, 24)
        answers = await asyncio.gather(*(engine.generate(m, sampling, seed) for seed, m in enumerate(asked)))
        alone = [await engine.generate(m, sampling, seed) for seed, m in enumerate(asked)]
    assert answers == alone
    for answer, messages in zip(answers, asked, strict=True):
        assert answer.prompt_tokens == len(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
        assert answer.completion_tokens <= 24
        assert answer.finish_reason in ("stop", "length")
        assert (answer.finish_reason == "length") == (answer.completion_tokens == 24) or answer.completion_tokens == 24


async def test_prompts_at_the_end_of_the_context(path: str) -> None:
    async with open_huggingface_engine(path, batch_size=4, max_in_flight=None) as engine:
        (full,) = await asyncio.gather(engine.generate([{"role": "user", "content": "é" * CONTEXT}], Sampling(), 0))
        short = await engine.generate([{"role": "user", "content": "é"}], Sampling(1.0, 1.0, 10_000), 0)
    assert (full.text, full.finish_reason) == ("", FINISH_CONTEXT)
    assert short.prompt_tokens + short.completion_tokens <= CONTEXT


async def test_model_id_follows_the_weights(tmp_path: Path) -> None:
    ids = []
    for seed in (0, 0, 1):
        path = save_tiny_model(tmp_path / "model", seed)
        async with open_huggingface_engine(path, 1, None) as engine:
            ids.append(engine.model_id)
    assert ids[0] == ids[1] != ids[2]


async def test_a_missing_model_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--model"):
        async with open_huggingface_engine(str(tmp_path / "none"), 1, None):
            pass


async def test_a_defect_reaches_the_caller(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_huggingface_engine(path, 1, None) as engine:
        monkeypatch.setattr("cobalt.inference.huggingface.sample_batch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await engine.generate([{"role": "user", "content": "x"}], Sampling(), 0)
