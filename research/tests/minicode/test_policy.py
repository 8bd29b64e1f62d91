"""The shipped checkpoint's tokenizer and network, and the training loop at toy size."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from cobalt.errors import SetupError
from cobalt.prompts import SYSTEM_PROMPT, feedback_message, first_messages, problem_instruction
from cobalt.sandbox import ExecutionResult
from research.minicode import pretrain
from research.minicode.corpus import TokenizedCorpus, build_corpus, sample_dialogues
from research.minicode.demonstrator import CLEAN
from research.minicode.operations import COMMON, OPERATIONS
from research.minicode.pretrain import Phase, PretrainConfig, batches, new_network, train_phase
from research.minicode.probe import ProbeConfig, holds_step, main, roll_out, step_lines, turn_figures
from research.minicode.problems import sample_problem
from research.minicode.programs import Variant, write_program
from research.minicode.tokenizer import fixed_texts, render_prompt, train_tokenizer

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


def test_any_text_survives_the_tokenizer_and_an_answer_keeps_its_marks(tokenizer):
    for text in ("naïve ✓ 日本\t x\n\n    y", "1234 -5  6", "a  b", SYSTEM_PROMPT + "?"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.decode(tokenizer(RESPONSE + "<|im_end|>").input_ids, skip_special_tokens=True) == RESPONSE


def test_fixed_sentences_are_single_ordinary_tokens(tokenizer):
    """Fails when a prompt changes: then MiniCoder must be pre-trained again."""
    for text in (*fixed_texts(), "<think>", "</think>", "```python"):
        assert len(tokenizer(text).input_ids) == 1, text
        assert tokenizer(text).input_ids[0] not in tokenizer.all_special_ids
    problem = sample_problem(random.Random(0), "train", with_hidden_tests=False)
    prompt = first_messages(problem_instruction(problem.statement))
    assert len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)) < 90


def test_the_corpus_renders_prompts_as_the_chat_template_does(tokenizer):
    messages = first_messages(problem_instruction("Add two numbers."))
    messages += [{"role": "assistant", "content": RESPONSE}, feedback_message("Input:\n1")]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert rendered == render_prompt(messages)
    assert RESPONSE in rendered


def test_the_checkpoint_has_the_promised_shape(tokenizer):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype="auto")
    assert model.config.model_type == "qwen3" and model.dtype == torch.bfloat16
    assert sum(p.numel() for p in model.parameters()) <= 7_500_000
    assert (SHIPPED / "model.safetensors").stat().st_size <= 16e6
    assert model.config.max_position_embeddings >= 4096 and model.config.tie_word_embeddings
    assert tokenizer.padding_side == "left" and tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_shipped_scores_are_within_the_goal():
    """The figures of the model card, as measured by ``research.minicode.probe``."""
    scores = json.loads((SHIPPED / "scores.json").read_text())
    passed = scores["turns"]["pass_at_1"]
    assert 0.25 <= passed[0] <= 0.45 and passed[3] >= passed[0] + 0.2 and passed[8] >= 0.65
    assert max(scores["turns"]["no_program"]) <= 0.02  # a long table of tests runs out of tokens
    assert min(row["right"] for row in scores["look_alike_pairs"].values()) >= 0.7
    assert set(scores["operations"]) == set(COMMON)
    assert min(row["right"] for row in scores["operations"].values()) >= 0.6  # one direction; the goal is about pairs
    gaming = scores["gaming"]["cases_per_opportunity"]
    assert 0.03 <= gaming["low"] < gaming["high"] <= 0.15
    assert scores["shifted"]["pass_at_1"][0] < passed[0] and scores["shifted"]["pass_at_1"][8] < passed[8] - 0.05


def test_the_shipped_policy_answers_in_the_sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr("research.minicode.probe.COMMON", ("greater", "sum", "upper", "join_dash"))
    sizes = {"num_problems": 12, "look_alike_decisions": 1, "perturbed_problems": 5, "shifted_problems": 3}
    few = {"num_samples": 1, "num_turns": 1, "max_tokens": 128, "seed": 3}
    main(ProbeConfig(model=SHIPPED, output_file=tmp_path / "scores.json", **sizes, **few))
    figures, shipped = (json.loads((folder / "scores.json").read_text()) for folder in (tmp_path, SHIPPED))
    turns = figures["turns"]
    assert turns["no_program"] == [0.0, 0.0]
    assert turns["pass_at_1"][1] > turns["pass_at_1"][0] > 0.1
    assert set(figures) == set(shipped) and set(figures["shifted"]) == set(turns) == set(shipped["turns"])
    assert set(figures["operations"]) >= {"greater", "sum", "upper", "join_dash"}
    assert all(0 <= row["right"] <= 1 - row["look_alike"] for row in figures["operations"].values())
    first, second = figures["gaming"]["opportunities_by_turn"]
    assert first == 0 < second == figures["gaming"]["opportunities"]


def evaluated(kind: str, *rates: list[float | None]) -> dict:
    """An evaluated record whose samples have these pass rates per turn; None: an infrastructure failure."""
    turns, samples = len(rates[0]), len(rates)
    columns = [list(column) for column in zip(*rates, strict=True)]
    messages = [{"role": "assistant", "content": RESPONSE}] * turns
    return {
        "id": kind,
        "difficulty": kind,
        "conversations": [messages] * samples,
        "raw_responses": [[RESPONSE] * samples] * turns,
        "public_pass_rates": columns,
        "all_pass_rates": list(rates),
        "usage": [[{"prompt_tokens": 5, "completion_tokens": 7}] * samples] * turns,
    }


def test_infrastructure_failures_do_not_count_as_wrong():
    figures = turn_figures(
        [evaluated("fully_specified", [0.0, 1.0], [1.0, None]), evaluated("hidden_rule", [None, None], [0.5, 0.0])]
    )
    assert figures["pass_at_1"] == [0.0, 0.5]
    assert figures["fully_specified"] == [0.0, 1.0] and figures["hidden_rule"] == [0.0, 0.0]
    assert figures["solved_if_unsolved_before"] == [0.5] and figures["failed_program_repeated"] == [1.0]
    assert figures["standard_error"] == [0.0, 0.5]
    assert figures["prompt_tokens"] == [5, 5]


def test_too_many_infrastructure_failures_end_the_probe(monkeypatch):
    async def lost(executor, code, tests):
        return ExecutionResult.infra(len(tests), "worker lost")

    monkeypatch.setattr("cobalt.sandbox.executor.Executor.run", lost)
    problem = sample_problem(random.Random(2), "train")
    with pytest.raises(SetupError, match="infrastructure failure"):
        roll_out(ProbeConfig(model=SHIPPED, num_samples=1, num_turns=0, max_tokens=128), [problem])


def test_step_lines_tell_look_alikes_apart():
    for operation in OPERATIONS.values():
        constant = operation.constants[0] if operation.constants else None
        for variant in Variant:
            right, wrong = (step_lines((name, constant), variant) for name in (operation.name, operation.look_alike))
            assert right - wrong and wrong - right
    pipeline = (("greater", 5), ("join_dash", None))
    for variant in Variant:
        code = write_program(pipeline, variant)
        assert all(holds_step(code, step) for step in pipeline)
        assert not holds_step(code, ("at_least", 5)) and not holds_step(code, ("greater", 4))
    assert not holds_step(None, pipeline[0])


def test_the_corpus_does_not_depend_on_the_number_of_workers(toy):
    one, two = (build_corpus(toy, CLEAN, 210, "s", workers) for workers in (1, 2))
    assert np.array_equal(one.tokens, two.tokens) and np.array_equal(one.starts_E, two.starts_E)
    first = one.tokens[: one.lengths_E[0]]
    prompt, response = first[: one.starts_E[0]].tolist(), first[one.starts_E[0] :].tolist()
    assert toy.decode(prompt).endswith("<|im_start|>assistant\n")
    assert toy.decode(response).startswith("<think>") and response[-1] == toy.eos_token_id


def test_an_epoch_holds_every_sample_once_within_the_token_budget():
    lengths = np.random.default_rng(0).integers(20, 300, 500).astype(np.int32)
    corpus = TokenizedCorpus(np.zeros(lengths.sum(), np.uint16), lengths, lengths // 2)
    groups = list(batches(corpus, 2048, np.random.default_rng(1)))
    assert sorted(np.concatenate(groups).tolist()) == list(range(500))
    assert all(len(group) * lengths[group].max() <= 2048 for group in groups)


def test_training_lowers_the_loss(toy):
    import torch

    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32}
    lines: list[str] = []
    model = new_network(toy, **small, **heads)
    train_phase(model, build_corpus(toy, CLEAN, 45, "s", 1), Phase("toy", 1e-2), 1024, 0, lines.append)
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines]
    assert losses[-1] < 4.0 < np.log(len(toy))


TINY = {"hidden_size": 48, "num_layers": 1, "feed_forward_size": 64, "vocab_size": 400, "tokens_per_batch": 4096}


def test_the_noisy_phase_can_begin_with_the_network_between_the_phases(tmp_path, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(pretrain, "TOKENIZER_PROBLEMS", 60)
    problems = {"clean_problems": 12, "noisy_problems": 12, "workers": 1}
    pretrain.main(PretrainConfig(output_dir=tmp_path / "whole", **problems, **TINY))
    clean = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "clean", dtype="auto")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    assert clean.dtype == torch.float32 and whole.dtype == torch.bfloat16
    start = tmp_path / "whole" / "clean"
    pretrain.main(PretrainConfig(output_dir=tmp_path / "noisy", start=start, dose_scale=0.5, **problems, **TINY))
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "noisy", dtype="auto")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "noisy")) == len(AutoTokenizer.from_pretrained(start))
    assert not torch.equal(again.lm_head.weight, clean.lm_head.weight.to(torch.bfloat16))
    report = json.loads((tmp_path / "noisy" / "pretraining.json").read_text())
    assert report["config"]["doses"]["special_case"] == pretrain.DOSES.special_case
    assert not any("clean" in line.partition("saved to")[0] for line in report["log"])
