"""The corpus of MiniCode 3 as tokens, and a tiny pre-training on it."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.prompts import first_messages, problem_instruction
from studies.minicode.pretrain import new_network
from studies.minicode.problems import WORDS
from studies.minicode.tokenizer import PAD, TURN_END, render_prompt
from studies.minicode3 import corpus as corpora
from studies.minicode3.corpus import CorpusConfig, read_shards, sample_dialogues, tokenized
from studies.minicode3.generate import generate_rows
from studies.minicode3.pretrain import (
    CODE,
    THINKING,
    PretrainConfig,
    Step,
    batches,
    loss_sums,
    main,
    packed_attention,
    steps_of,
)
from studies.minicode3.thinking import CLEAN

SHIPPED = Path(__file__).parents[3] / "assets/minicoder3"
TINY = {"hidden_size": 256, "num_layers": 1, "feed_forward_size": 64, "tokens_per_step": 4096}


@pytest.fixture(scope="module", autouse=True)
def small_tokenizer():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "VOCABULARY", 1024)
        patch.setattr(corpora, "TOKENIZER_PROBLEMS", 80)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("corpus")
    corpora.main(CorpusConfig(output_dir=out, clean_shards=2, noisy_shards=1, problems_per_shard=2, workers=2))
    return out


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder / "tokenizer")


@pytest.fixture(scope="module")
def samples():
    return list(sample_dialogues(random.Random(5), CLEAN, 60))


def test_the_tokenizer_is_lossless_splits_numbers_and_keeps_names_whole(tokenizer, samples):
    for sample in samples[::5]:
        text = sample.prompt + sample.response
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert tokenizer.tokenize("= 17 -203") == ["=", "Ġ1", "7", "Ġ-", "2", "0", "3"]
    names = "nums words counts out total append enumerate items lambda solve Plan Expected".replace("lambda ", "")
    for name in [*WORDS, *names.split()]:
        assert min(len(tokenizer.tokenize(name)), len(tokenizer.tokenize(f" {name}"))) == 1, name
    assert len(tokenizer) % 64 == 0


def test_thinking_is_long_and_longer_for_longer_programs(tokenizer, samples):
    made, lengths = tokenized(tokenizer, samples)
    assert len(lengths) == len(samples) == len(made.lengths_E)
    assert max(lengths) <= 2000 and np.mean(np.array(lengths) >= 300) > 0.8
    steps = [sample.prompt.count("Then") + sample.prompt.count("After that,") + 2 for sample in samples]
    by_steps = [np.mean([n for n, of in zip(lengths, steps, strict=True) if of == number]) for number in (3, 4, 5)]
    assert by_steps == sorted(by_steps) and by_steps[2] > 1.3 * by_steps[0]


def test_responses_have_thinking_then_one_program(samples):
    for sample in samples:
        assert sample.response.startswith("<think>Plan:") and sample.response.count("</think>\n```python\n") == 1
        code = extract_code(sample.response.removesuffix(TURN_END))
        assert code is not None and f"\n{code}\n```{TURN_END}" in sample.response
        compile(code, "program", "exec")
        assert "<think>Plan" not in sample.prompt or "No program could be extracted" in sample.prompt


def test_a_corpus_is_the_same_for_any_number_of_workers_and_continues(folder, tmp_path):
    config = CorpusConfig(output_dir=tmp_path, clean_shards=1, noisy_shards=1, problems_per_shard=2, workers=1)
    corpora.main(config)
    for name in ("clean-0000.npz", "noisy-0000.npz"):
        ours, theirs = np.load(tmp_path / name), np.load(folder / name)
        assert all(np.array_equal(ours[key], theirs[key]) for key in ("tokens", "lengths", "starts"))
    before = (tmp_path / "clean-0000.npz").stat().st_mtime_ns
    (tmp_path / "noisy-0000.npz").unlink()
    corpora.main(replace(config, clean_shards=2))
    assert (tmp_path / "clean-0000.npz").stat().st_mtime_ns == before
    assert len(json.loads((tmp_path / "corpus.json").read_text())["shards"]) == 3
    assert len(read_shards(tmp_path, "clean").lengths_E) == len(read_shards(folder, "clean").lengths_E)
    with pytest.raises(InputError, match="other settings"):
        corpora.main(replace(config, seed=1))


def test_ablations_change_the_thinking_alone():
    plain, none, shuffled = (
        list(sample_dialogues(random.Random(3), CLEAN, 3, kind)) for kind in ("traces", "none", "shuffled")
    )
    assert [s.prompt for s in plain] == [s.prompt for s in none] == [s.prompt for s in shuffled]
    for at, (a, b, c) in enumerate(zip(plain, none, shuffled, strict=True)):
        assert b.response.startswith("<think></think>")
        assert len({s.response.partition("</think>")[2] for s in (a, b, c)}) == 1
        assert at == 0 or c.response.partition("</think>")[0] == plain[at - 1].response.partition("</think>")[0]


def test_a_packed_batch_gives_the_losses_of_its_samples_alone(folder, tokenizer, monkeypatch):
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "packed", packed_attention)
    torch.manual_seed(0)
    model = new_network(tokenizer, hidden_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4)
    corpus, end = read_shards(folder, "clean"), tokenizer.convert_tokens_to_ids("</think>")
    step = Step("clean", 0, np.array([4, 1, 7]))
    pad = tokenizer.convert_tokens_to_ids(PAD)
    ((_, batch),) = batches({"clean": corpus}, [step], 8192, 5, end, pad)
    ends, expected = np.cumsum(corpus.lengths_E), torch.zeros(2)
    for sample in step.samples:
        length, start = int(corpus.lengths_E[sample]), int(corpus.starts_E[sample])
        ids = torch.from_numpy(corpus.tokens[ends[sample] - length : ends[sample]].astype(np.int64))
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(ids[None, :-1]).logits[0], ids[1:], reduction="none")
        code = ids.tolist().index(end, start)  # the first token of the code among the targets
        expected += torch.stack([losses[start - 1 : code].sum(), losses[code:].sum()])
    model.set_attn_implementation("packed")
    with torch.no_grad():
        torch.testing.assert_close(loss_sums(model, batch), expected, rtol=1e-4, atol=1e-3)
    assert set(batch.parts_L.unique().tolist()) == {0, THINKING, CODE}


def test_steps_hold_every_sample_once_and_fit(folder):
    corpus = read_shards(folder, "clean")
    steps = steps_of("clean", corpus, 4096, seed=0)
    assert sorted(np.concatenate([step.samples for step in steps])) == list(range(len(corpus.lengths_E)))
    assert all(corpus.lengths_E[step.samples].sum() <= 4096 for step in steps)


def test_training_lowers_the_loss_resumes_and_gives_a_checkpoint(folder, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = {"corpus": folder, **TINY}
    main(PretrainConfig(output_dir=whole, **settings))
    main(PretrainConfig(output_dir=parts, stop_after=3, **settings))
    assert not (parts / "config.json").exists()
    with pytest.raises(InputError, match="no such corpus"):
        main(PretrainConfig(output_dir=tmp_path / "none", **{**settings, "corpus": tmp_path / "absent"}))
    with pytest.raises(InputError, match="other settings"):
        main(PretrainConfig(output_dir=parts, seed=1, **settings))
    with (parts / "log.jsonl").open("a") as file:  # a killed run has gone on behind the state that it saved
        file.write('{"step": 4}\n{"step"')
    main(PretrainConfig(output_dir=parts, **settings))
    log = [json.loads(line) for line in (parts / "log.jsonl").read_text().splitlines()]
    assert log[-1]["thinking"] < log[0]["thinking"] and log[-1]["code"] < log[0]["code"]
    assert log[0]["phase"] == "clean" and log[-1]["phase"] == "noisy"
    steps = [line["step"] for line in log]
    assert steps == sorted(set(steps)) and all("phase" in line for line in log)

    models = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (whole, parts)]
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)
    config = json.loads((whole / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"] and "packed" not in json.dumps(config)
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"
    assert (whole / "clean" / "model.safetensors").exists()

    # The noisy phase alone, from the checkpoint between the phases.
    main(PretrainConfig(output_dir=tmp_path / "again", start=whole / "clean", stop_after=1, **settings))
    line = json.loads((tmp_path / "again" / "log.jsonl").read_text())
    assert line["phase"] == "noisy"
    other = tmp_path / "other"
    corpora.main(CorpusConfig(output_dir=other, seed=1, clean_shards=0, noisy_shards=1, problems_per_shard=1))
    with pytest.raises(InputError, match="tokenizer"):
        main(PretrainConfig(output_dir=other, start=whole / "clean", **{**settings, "corpus": other}))


def test_the_shipped_policy_plans_and_writes_a_program():
    tokenizer, model = (cls.from_pretrained(SHIPPED) for cls in (AutoTokenizer, AutoModelForCausalLM))
    (row,) = generate_rows(0, 1, 5)
    prompt = render_prompt(first_messages(problem_instruction(row["question"])))
    ids = torch.tensor([tokenizer.encode(prompt)])
    with torch.inference_mode():
        out = model.generate(ids, do_sample=False, max_new_tokens=600)
    response = tokenizer.decode(out[0, ids.shape[1] :])
    assert response.startswith("<think>Plan:\n1. ") and response.endswith(TURN_END)
    compile(extract_code(response) or "?", "answer", "exec")
    assert sum(weight.numel() for weight in model.parameters()) == 6_821_120
