"""The shipped checkpoint's tokenizer and network, and the training loop at toy size."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from cobalt.prompts import feedback_message, first_messages, problem_instruction
from research.minicode import pretrain
from research.minicode.corpus import build_corpus, sample_dialogues
from research.minicode.demonstrator import CLEAN
from research.minicode.pretrain import PretrainConfig
from research.minicode.probe import ProbeConfig, main
from research.minicode.problems import instruction_of, sample_problem
from research.minicode.tokenizer import fixed_texts, render_prompt, train_tokenizer
from research.minicode.wording import prompts

SHIPPED = Path(__file__).parents[3] / "assets" / "minicoder"
RESPONSE = "<think>keep x > 5; sum</think>\n```python\na = list(map(int, input().split()))\nprint(sum(a))\n```"


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(SHIPPED)


@pytest.fixture(scope="module")
def toy():
    samples = list(sample_dialogues(random.Random(1), CLEAN, 30))
    return train_tokenizer((sample.prompt + sample.response for sample in samples), vocab_size=400)


def test_fixed_sentences_are_single_ordinary_tokens(tokenizer):
    """Fails when a prompt changes: then MiniCoder must be pre-trained again."""
    for text in (*fixed_texts(), "<think>", "</think>", "```python"):
        assert len(tokenizer(text).input_ids) == 1, text
        assert tokenizer(text).input_ids[0] not in tokenizer.all_special_ids
    problem = sample_problem(random.Random(0), "train", with_hidden_tests=False)
    prompt = first_messages(instruction_of(problem), prompts())
    assert len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)) < 90


def test_the_corpus_renders_prompts_as_the_chat_template_does(tokenizer):
    messages = first_messages(problem_instruction("Add two numbers.", prompts=prompts()), prompts())
    messages += [{"role": "assistant", "content": RESPONSE}, feedback_message("Input:\n1", prompts())]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert rendered == render_prompt(messages)
    assert RESPONSE in rendered


def test_the_shipped_policy_answers_in_the_sandbox(tmp_path):
    sizes = {"num_problems": 12, "perturbed_problems": 5, "shifted_problems": 3}
    few = {"num_samples": 1, "num_turns": 1, "max_tokens": 128, "seed": 3}
    main(ProbeConfig(model=SHIPPED, output_file=tmp_path / "scores.json", **sizes, **few))
    figures = json.loads((tmp_path / "scores.json").read_text())
    turns = figures["turns"]
    assert turns["no_program"] == [0.0, 0.0]
    assert turns["pass_at_1"][1] > turns["pass_at_1"][0] > 0.1
    first, second = figures["gaming"]["opportunities_by_turn"]
    assert first == 0 < second == figures["gaming"]["opportunities"]


def test_the_corpus_does_not_depend_on_the_number_of_workers(toy):
    one, two = (build_corpus(toy, CLEAN, 210, "s", workers) for workers in (1, 2))
    assert np.array_equal(one.tokens, two.tokens) and np.array_equal(one.starts, two.starts)
    first = one.tokens[: one.lengths[0]]
    prompt, response = first[: one.starts[0]].tolist(), first[one.starts[0] :].tolist()
    assert toy.decode(prompt).endswith("<|im_start|>assistant\n")
    assert toy.decode(response).startswith("<think>") and response[-1] == toy.eos_token_id


TINY = {"hidden_size": 48, "num_layers": 1, "feed_forward_size": 64, "vocab_size": 400, "tokens_per_batch": 4096}


def test_the_noisy_phase_can_begin_with_the_network_between_the_phases(tmp_path, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(pretrain, "TOKENIZER_PROBLEMS", 60)
    problems = {"clean_problems": 12, "noisy_problems": 12, "workers": 1}
    pretrain.main(PretrainConfig(output_dir=tmp_path / "whole", **problems, **TINY))
    clean = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "clean", dtype="auto")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    assert clean.dtype == torch.float32 and whole.dtype == torch.bfloat16
    start = tmp_path / "whole" / "clean"
    pretrain.main(PretrainConfig(output_dir=tmp_path / "noisy", start=start, **problems, **TINY))
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "noisy", dtype="auto")
    assert not torch.equal(again.lm_head.weight, clean.lm_head.weight.to(torch.bfloat16))
    log = json.loads((tmp_path / "noisy" / "pretraining.json").read_text())["log"]
    assert not any("clean" in line.partition("saved to")[0] for line in log)
