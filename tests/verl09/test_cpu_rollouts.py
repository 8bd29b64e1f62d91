"""Rollouts on CPU cores: the policy's weights, seeds of requests and the ends of responses."""

import asyncio
from types import SimpleNamespace
from typing import Any

from test_plugin import MINICODER  # skips without veRL 0.9.1

# isort: split
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.sampler.sampling import Row, sample_batch
from cobalt.training.verl09.cpu_rollouts import TIED, CpuServer
from cobalt.training.verl09.online import seed_of

MOST = 48


@pytest.fixture(scope="module")
def policy() -> Any:
    return AutoModelForCausalLM.from_pretrained(MINICODER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    messages = [{"role": "user", "content": "Print the sum of the numbers."}]
    tokenizer = AutoTokenizer.from_pretrained(MINICODER)
    return tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def answers(server: CpuServer, prompt: list[int], seeds: list[int], temperature: float = 1.0) -> list[list[int]]:
    async def all_of() -> list[list[int]]:
        asked = [{"temperature": temperature, "top_p": 1.0, "seed": seed} for seed in seeds]
        made = await asyncio.gather(*(server.generate(prompt, sampling, "") for sampling in asked))
        return [list(answer.token_ids) for answer in made]

    return asyncio.run(all_of())


def test_the_server_samples_from_the_weights_it_was_sent(policy: Any, prompt: list[int]) -> None:
    server = CpuServer(SimpleNamespace(response_length=MOST), MINICODER)
    asyncio.run(server.load(dict(policy.named_parameters()), 3))
    expected: dict[int, list[int]] = {}
    end = AutoTokenizer.from_pretrained(MINICODER).eos_token_id
    rows = [Row(tuple(prompt), MOST, 1.0, 1.0, seed) for seed in (1, 2, 3)]
    copy = server._model
    assert all(torch.equal(value, dict(policy.named_parameters())[name]) for name, value in copy.named_parameters())

    def finished(index: int, tokens: list[int], ended: int | None) -> None:
        expected[index] = tokens if ended is None else [*tokens, ended]

    sample_batch(copy, rows, {end}, finished)
    assert answers(server, prompt, [1, 2, 3]) == [expected[place] for place in range(3)]
    assert len({tuple(tokens) for tokens in expected.values()}) > 1, "seeds matter"


def test_other_weights_are_read_anew(policy: Any, prompt: list[int]) -> None:
    server = CpuServer(SimpleNamespace(response_length=MOST), MINICODER)
    weights = dict(policy.named_parameters())
    asyncio.run(server.load(weights, 1))
    before = answers(server, prompt, [5], temperature=0.0)
    asyncio.run(server.load({name: torch.zeros_like(value) for name, value in weights.items()}, 2))
    assert answers(server, prompt, [5], temperature=0.0) != before
    asyncio.run(server.load(weights, 3))
    assert answers(server, prompt, [5], temperature=0.0) == before


def test_weights_that_are_missing_are_refused(policy: Any) -> None:
    server = CpuServer(SimpleNamespace(response_length=MOST), MINICODER)
    weights = dict(policy.named_parameters())
    missing = next(name for name in weights if name != TIED)
    del weights[missing]
    with pytest.raises(ValueError, match=missing.replace(".", r"\.")):
        asyncio.run(server.load(weights, 1))


def test_a_response_ends_where_the_tokenizer_says_though_the_model_names_no_end(
    policy: Any, prompt: list[int], tmp_path: Path
) -> None:
    policy.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(MINICODER)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text("{}")
    server = CpuServer(SimpleNamespace(response_length=MOST), str(tmp_path))
    asyncio.run(server.load(dict(policy.named_parameters()), 1))
    (tokens,) = answers(server, prompt, [5], temperature=0.0)
    assert tokens[-1] == tokenizer.eos_token_id and len(tokens) < MOST


def test_each_place_step_sample_and_turn_has_a_seed_of_its_own() -> None:
    columns = {"global_steps": 1, "index": 2, "session_id": 3}
    seeds = [seed_of(0, columns), seed_of(0, columns, 1), seed_of(1, columns)]
    seeds += [seed_of(0, {**columns, name: 4}) for name in columns]
    assert len(set(seeds)) == len(seeds) and seed_of(0, dict(columns)) == seeds[0]
