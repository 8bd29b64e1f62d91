"""The local Hugging Face engine: the right distribution, seeds that do not depend on batching, limits."""

import asyncio
import copy
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import CONTEXT, save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.completion import FINISH_CONTEXT, FINISH_LENGTH, Sampling
from cobalt.errors import InputError
from cobalt.inference import huggingface
from cobalt.inference.engines import open_engine
from cobalt.inference.flags import OpenWeightConfig
from cobalt.inference.huggingface import open_huggingface_engine
from cobalt.prompts import prompt_tokens
from cobalt.sampler import sampling
from cobalt.sampler.batches import BatchSampler
from cobalt.sampler.network import ATTENTION, CPU_DTYPE, register
from cobalt.sampler.prompts import Prefix, PrefixStore
from cobalt.sampler.sampling import Row, sample_batch, sample_tokens


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
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
    ours = sample(model, [Row(prompt, 70, 0.0, 1.0, 0) for prompt in chosen])
    for prompt, tokens in zip(chosen, ours, strict=True):
        inputs = torch.tensor([prompt])
        output = reference.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=70, do_sample=False, eos_token_id=None
        )
        assert tokens == output[0, len(prompt) :].tolist()


def test_a_row_does_not_depend_on_its_batch(model) -> None:
    """Different lengths, limits and early ends: compaction, padding and growth must not show."""
    lengths = [5, 80, 33, 33, 150, 8]
    rows = [Row(prompt, 20 + 17 * n, 0.8, 0.9, n) for n, prompt in enumerate(prompts(lengths))]
    together = sample(model, rows, frozenset(range(3, 9)))
    assert together == [sample(model, [row], frozenset(range(3, 9)))[0] for row in rows]
    assert len({len(tokens) for tokens in together}) > 3


def test_what_a_batch_changes_on_a_cpu_is_too_little_to_change_a_text(model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows end and later steps have others."""
    precise = copy.deepcopy(model).to(CPU_DTYPE)
    rows = [Row(prompt, 40 if n == 0 else 3 * n, 0.8, 0.9, n) for n, prompt in enumerate(prompts([70, 5, 150, 33]))]
    seen: list[torch.Tensor] = []

    def noted(logits: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        seen.append(logits[0])
        return sample_tokens(logits, *rest)

    monkeypatch.setattr(sampling, "sample_tokens", noted)
    for batch in (rows, rows[:1]):
        sample(precise, batch)
    together, alone = torch.stack(seen).chunk(2)
    assert len(alone) == 40 and torch.allclose(together, alone, rtol=0, atol=1e-12)


def test_equal_prompts_with_different_seeds_differ(model) -> None:
    rows = [Row(prompts([20])[0], 16, 1.0, 1.0, seed) for seed in range(8)]
    texts = sample(model, rows)
    assert len(set(map(tuple, texts))) == 8
    assert texts == sample(model, rows)


def test_rows_of_a_prompt_read_it_together_and_are_sampled_as_if_alone(model) -> None:
    """Groups of unequal size, which shrink as rows end."""
    chosen = [prompt for prompt, count in zip(prompts([70, 12, 33]), (1, 8, 3), strict=True) for _ in range(count)]
    rows = [Row(prompt, 5 + 4 * n, 0.8, 0.9, n) for n, prompt in enumerate(chosen)]
    rows = rows[::2] + rows[1::2]  # in any order
    precise = copy.deepcopy(model).to(CPU_DTYPE)
    assert sample(precise, rows) == [sample(precise, [row])[0] for row in rows]


def test_a_batch_begins_once_no_more_requests_come(model, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr("cobalt.sampler.batches.sample_batch", lambda _, rows, *__: sizes.append(len(rows)))
    with closing(BatchSampler(model, set(), batch_size=64, workers=1, gather_s=0.5)) as sampler:
        for prompt in prompts([5] * 4):
            sampler.submit(Row(prompt, 1, 0.0, 1.0, 0), prompt)
            time.sleep(0.1)
        while not sizes:
            time.sleep(0.1)
    assert sizes == [4]


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
        asked = [[{"role": "user", "content": "x" * (3 * n + 1)}] for n in range(7)]
        sampling = Sampling(1.0, 1.0, 24)
        answers = await asyncio.gather(*(engine.generate(m, sampling, seed) for seed, m in enumerate(asked)))
        alone = [await engine.generate(m, sampling, seed) for seed, m in enumerate(asked)]
    assert answers == alone
    for answer, messages in zip(answers, asked, strict=True):
        assert answer.prompt_tokens == len(prompt_tokens(tokenizer, messages))
        assert answer.completion_tokens == 24 or (answer.completion_tokens < 24 and answer.finish_reason == "stop")
        assert answer.finish_reason in ("stop", "length")


async def test_prompts_at_the_end_of_the_context(path: str) -> None:
    async with open_huggingface_engine(path, batch_size=4, max_in_flight=None) as engine:
        full = await engine.generate([{"role": "user", "content": "é" * CONTEXT}], Sampling(), 0)
        short = await engine.generate([{"role": "user", "content": "é" * 240}], Sampling(1.0, 1.0, 10_000), 0)
    assert (full.text, full.finish_reason) == ("", FINISH_CONTEXT)
    assert (short.prompt_tokens + short.completion_tokens, short.finish_reason) == (CONTEXT, FINISH_LENGTH)


async def test_model_id_follows_the_weights_and_a_missing_model_is_bad_input(tmp_path: Path) -> None:
    ids = []
    for seed in (0, 0, 1):
        path = save_tiny_model(tmp_path / "model", seed)
        async with open_huggingface_engine(path, 1, None) as engine:
            ids.append(engine.model_id)
    assert ids[0] == ids[1] != ids[2]
    with pytest.raises(InputError, match="--model"):
        async with open_huggingface_engine(str(tmp_path / "none"), 1, None):
            pass


@pytest.mark.parametrize(
    ("on_gpu", "fp32", "wanted"),
    [(True, True, "float32"), (True, False, "bfloat16"), (False, True, "float32"), (False, False, "float64")],
)
async def test_precision(path: str, monkeypatch: pytest.MonkeyPatch, on_gpu: bool, fp32: bool, wanted: str) -> None:
    network, tokenizer = huggingface.load_network(path, "--model", torch.float32)
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    monkeypatch.setattr(huggingface, "load_network", lambda *arguments: asked.append(arguments) or (network, tokenizer))
    async with open_huggingface_engine(path, 1, None, fp32):
        assert asked == [(path, "--model", getattr(torch, wanted))]


async def test_a_defect_reaches_the_caller(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_huggingface_engine(path, 1, None) as engine:
        monkeypatch.setattr("cobalt.sampler.batches.sample_batch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await engine.generate([{"role": "user", "content": "x"}], Sampling(), 0)


def test_known_prefixes_change_nothing(model) -> None:
    """Rows with a known beginning, with a longer known one, and without: as if everything were read."""
    prefixes: list[Prefix] = []
    starts = prompts([50, 30, 90])
    sample_batch(model, [Row(prompt, 1, 0.0, 1.0, 0) for prompt in starts], set(), lambda *_: None, prefixes.append)
    known = {prefix.tokens: prefix for prefix in prefixes}
    assert known.keys() == set(starts)
    longer = [start + end for start, end in zip(starts, prompts([21, 80, 5]), strict=True)]
    plain = [Row(prompt, 30, 0.9, 0.9, seed) for seed, prompt in enumerate([*longer, *prompts([70])])]
    helped = [
        replace(row, known=known[start].common_with(row.prompt)) for row, start in zip(plain, starts, strict=False)
    ]
    assert sample(model, [*helped, plain[3]]) == sample(model, plain)


def test_only_the_common_part_of_a_prefix_is_used() -> None:
    prefix = Prefix((1, 2, 3, 4), torch.zeros(1, 2, 1, 4, 8))
    assert prefix.common_with((1, 2, 9, 4, 5)).tokens == (1, 2)
    assert prefix.common_with((1, 2, 9, 4, 5)).columns.shape[3] == 2
    assert prefix.common_with((1, 2, 3)).tokens == (1, 2), "the last token is always read"


def test_the_store_drops_the_least_recently_used() -> None:
    store = PrefixStore(most_bytes=2 * 64)
    for key in "abac":
        store.get(key)
        store.put(key, Prefix((1,), torch.zeros(1, 2, 1, 1, 8)))
    assert [store.get(key) is not None for key in "abc"] == [True, False, True]


async def test_turns_of_a_conversation_read_only_what_is_new(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [{"role": "user", "content": "x" * 60}]
    second = [*first, {"role": "assistant", "content": "y" * 5}, {"role": "user", "content": "z"}]
    async with open_huggingface_engine(path, batch_size=4, max_in_flight=None) as engine:
        fresh = await engine.generate(second, Sampling(1.0, 1.0, 16), 0)
    read: list[int] = []
    original = sampling.read_prompts

    def counting(model, found, on_read):
        read.extend(prompt.new_length for prompt in found)
        return original(model, found, on_read)

    monkeypatch.setattr(sampling, "read_prompts", counting)
    async with open_huggingface_engine(path, batch_size=4, max_in_flight=None) as engine:
        one = await engine.generate(first, Sampling(1.0, 1.0, 16), 0)
        assert await engine.generate(second, Sampling(1.0, 1.0, 16), 0) == fresh
    assert read[0] == one.prompt_tokens
    assert read[1] <= fresh.prompt_tokens - one.prompt_tokens + 1


def test_sampling_stops_on_demand(model) -> None:
    (prompt,) = prompts([20])
    asked = iter([False, False, True])
    finished: list[int] = []
    rows = [Row(prompt, limit, 1.0, 1.0, 0) for limit in (2, 300)]
    sample_batch(model, rows, set(), lambda index, *_: finished.append(index), stopped=lambda: next(asked))
    assert finished == [0]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"fp32": True}, "--fp32 needs --engine hf, not vllm"),
        ({"batch_size": 8}, "--batch_size needs --engine hf, not vllm"),
        ({"engine": "hf", "api_base": "http://there/v1"}, "--api_base needs --engine vllm, not hf"),
        ({"engine": "own.py:Engine", "request_timeout_s": 9}, "--request_timeout_s needs --engine vllm, not own.py"),
    ],
)
def test_a_flag_is_refused_where_it_would_do_nothing(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        open_engine(OpenWeightConfig(**flags))
