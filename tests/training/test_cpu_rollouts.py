"""Rollouts on CPU cores: the policy's weights, seeds of requests and the ends of responses."""

import asyncio
from types import SimpleNamespace

import pytest
import torch
from online_parts import MODEL
from transformers import AutoModelForCausalLM

from cobalt.sampler.sampling import Row, sample_batch
from cobalt.training.cpu_rollouts import TIED, CpuServer

MOST = 48


@pytest.fixture(scope="module")
def policy():
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def server(policy):
    """It has the policy's weights, after 3 updates."""
    made = CpuServer(SimpleNamespace(response_length=MOST), MODEL)
    asyncio.run(made.load(dict(policy.named_parameters()), 3))
    return made


@pytest.fixture(scope="module")
def prompt(minicoder):
    messages = [{"role": "user", "content": "Print the sum of the numbers."}]
    return minicoder.encode(minicoder.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def answers(server, prompt, seeds, temperature=1.0):
    async def all_of():
        asked = [{"temperature": temperature, "top_p": 1.0, "seed": seed} for seed in seeds]
        made = await asyncio.gather(*(server.generate(prompt, sampling, "") for sampling in asked))
        return [list(answer.token_ids) for answer in made]

    return asyncio.run(all_of())


def test_the_server_samples_from_the_weights_it_was_sent(server, policy, prompt, minicoder):
    expected = {}
    rows = [Row(tuple(prompt), MOST, 1.0, 1.0, seed) for seed in (1, 2, 3)]
    copy = server._model
    assert all(torch.equal(value, dict(policy.named_parameters())[name]) for name, value in copy.named_parameters())

    def finished(index, tokens, ended):
        expected[index] = tokens if ended is None else [*tokens, ended]

    sample_batch(copy, rows, {minicoder.eos_token_id}, finished)
    assert answers(server, prompt, [1, 2, 3]) == [expected[place] for place in range(3)]
    assert len({tuple(tokens) for tokens in expected.values()}) > 1, "seeds matter"


def test_other_weights_are_read_anew(server, policy, prompt):
    weights = dict(policy.named_parameters())
    before = answers(server, prompt, [5], temperature=0.0)
    asyncio.run(server.load({name: torch.zeros_like(value) for name, value in weights.items()}, 4))
    assert answers(server, prompt, [5], temperature=0.0) != before
    asyncio.run(server.load(weights, 5))
    assert answers(server, prompt, [5], temperature=0.0) == before


def test_weights_that_are_missing_are_refused(server, policy):
    weights = dict(policy.named_parameters())
    missing = next(name for name in weights if name != TIED)
    del weights[missing]
    with pytest.raises(ValueError, match=missing.replace(".", r"\.")):
        asyncio.run(server.load(weights, 6))


def test_a_response_ends_where_the_tokenizer_says_though_the_model_names_no_end(policy, prompt, minicoder, tmp_path):
    policy.save_pretrained(tmp_path)
    minicoder.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text("{}")
    server = CpuServer(SimpleNamespace(response_length=MOST), str(tmp_path))
    asyncio.run(server.load(dict(policy.named_parameters()), 1))
    (tokens,) = answers(server, prompt, [5], temperature=0.0)
    assert tokens[-1] == minicoder.eos_token_id and len(tokens) < MOST
