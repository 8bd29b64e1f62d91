"""Advantages from the policy that has seen the feedback: who has a teacher, what it is shown, and what it gives."""

from types import SimpleNamespace

import pytest
import torch
from online_parts import jagged
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder
from verl.workers.config import FSDPActorConfig

from cobalt.errors import InputError
from cobalt.prompts import feedback_message, first_messages
from cobalt.training.sdpo import (
    Hindsight,
    hindsights,
    teacher_log_probs,
    teacher_metrics,
    teacher_prompts,
    with_teacher,
)
from cobalt.training.shared_prompts import lay_out, rows_by_prefix, score_tokens


def info(acc=0.0, feedback="wrong", infra=0.0):
    return {"acc": acc, "infra": infra, "feedback": None if acc else feedback, "program": f"print({acc})"}


def test_advantages_are_the_weighted_sum_of_both_and_rows_without_a_teacher_keep_only_their_share():
    advantages = [torch.tensor([2.0, 2.0]), torch.tensor([-1.0])]
    student, teacher = [torch.tensor([-1.0, -3.0]), torch.tensor([-2.0])], {0: torch.tensor([-0.5, -4.0])}
    both = with_teacher(advantages, student, teacher, 0.25)
    assert [values.tolist() for values in both] == [[1.5 + 0.125, 1.5 - 0.25], [-0.75]]
    alone = with_teacher(advantages, student, teacher, 1.0)
    assert [values.tolist() for values in alone] == [[0.5, -1.0], [0.0]]
    metrics = teacher_metrics({0: info(), 1: info(1.0)}, student, teacher)
    assert metrics == {"sdpo/teacher_share": 0.5, "sdpo/advantage_failed": -0.25}


def test_what_failed_has_a_teacher_and_with_solutions_what_stands_beside_another_that_passes():
    infos = {0: info(), 1: info(1.0), 2: info(1.0), 3: info(infra=1.0), 4: info(feedback=None), 5: info(1.0)}
    problems = {**dict.fromkeys(range(5), "a"), 5: "b"}
    assert hindsights(infos, problems, solutions=False) == {0: ("wrong", None)}
    right = "print(1.0)"
    beside = {0: ("wrong", right), 1: (None, right), 2: (None, right), 4: (None, right)}
    assert hindsights(infos, problems, solutions=True) == beside  # 5 is the only one of its group
    with pytest.raises(InputError, match=r"cobalt\.sdpo needs a reward function that returns 'acc'"):
        hindsights({0: {"infra": 0.0, "feedback": "wrong"}}, {0: "a"}, solutions=False)


def test_a_teachers_prompt_is_the_policys_with_what_is_known_at_its_end(minicoder):
    context = [
        *first_messages("Add."),
        {"role": "assistant", "content": "```python\n1\n```"},
        feedback_message("Input:\n1"),
    ]
    policys = create_continuous_token_builder(minicoder, hf_model_type="qwen3").build_initial_tokens(context)
    begin = minicoder.decode(policys).partition(context[-1]["content"])
    known = [Hindsight("Input:\n9", None), Hindsight(None, "print(5)"), Hindsight("Input:\n9", "print(5)")]
    prompts = teacher_prompts(minicoder, [context] * 3, dict(enumerate(known)), {})
    for (feedback, answer), prompt in zip(known, prompts.values(), strict=True):
        shown = minicoder.decode(prompt)
        assert shown.startswith(begin[0] + begin[1]) and shown.endswith(begin[2])
        added = shown.removeprefix(begin[0] + begin[1])
        assert ("Input:\n9" in added, "print(5)" in added) == (feedback is not None, answer is not None)


@pytest.mark.parametrize(("unit", "rows"), [(1, 4), (4, 8)])
def test_log_probabilities_come_back_to_their_rows_from_ranks_with_equally_many(unit, rows):
    """The group scores a token by its id, at the place of the token before it."""
    seen = []

    def compute_log_prob(data):
        seen.append(data)
        return {"log_probs": jagged([-row.roll(-1) / 100 for row in data["input_ids"].unbind()])}

    prompts = [torch.arange(1, length) for length in (9, 4, 6)]
    responses = [torch.arange(start, start + 3) for start in (50, 60, 70)]
    group = SimpleNamespace(_dispatch_info={"actor": [0, 1]}, compute_log_prob=compute_log_prob)
    found = teacher_log_probs(group, prompts, responses, temperature=0.7, unit=unit)
    for log_probs, response in zip(found, responses, strict=True):
        torch.testing.assert_close(log_probs, -response / 100)
    (data,) = seen
    assert (len(data) - rows, data["temperature"], data["calculate_entropy"], data["compute_loss"]) == (
        0,
        0.7,
        False,
        False,
    )
    for ids, positions in zip(data["input_ids"].unbind(), data["position_ids"].unbind(), strict=True):
        assert positions.tolist() == [*range(len(ids))]


def tiny_policy():
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "head_dim": 8}
    config = Qwen3Config(**shape, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    config._attn_implementation = "sdpa"
    return Qwen3ForCausalLM(config).train()


def scored(model, prompts, responses):
    """Log-probabilities of the responses (B, tokens), with what their prompts begin with computed once."""
    rows = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    cells = torch.arange(sum(map(len, rows))).split([len(row) for row in rows])
    layout = lay_out(rows_by_prefix(prompts, [*map(len, responses)]), cells.__getitem__, "cpu")
    places = torch.cat([torch.arange(len(row)) for row in rows])
    head = model.get_output_embeddings()
    values, _ = score_tokens(model, head, layout, torch.cat(rows), places, 1.0, False, False)
    spread = torch.zeros(len(places)).index_put((layout.cells_R,), values)
    return torch.stack([spread[row[len(prompt) :]] for row, prompt in zip(cells, prompts, strict=True)])


def test_the_gradient_is_that_of_trls_sampled_token_loss():
    """Of veRL's loss with our advantages, whose tokens all count the same, at the policy that sampled. In fp32."""
    trl = pytest.importorskip("trl.experimental.sdpo.loss_utils", reason="TRL with experimental.sdpo is not installed")
    model = tiny_policy()
    generator = torch.Generator().manual_seed(1)
    context = torch.randint(50, (9,), generator=generator)
    prompts = [context, context, context[:5]]
    teachers = [
        torch.cat([prompt, torch.randint(50, (4 + row,), generator=generator)]) for row, prompt in enumerate(prompts)
    ]
    responses = [torch.randint(50, (6,), generator=generator) for _ in prompts]

    def logits(prompt, response):
        return model(torch.cat([prompt, response])[None]).logits[:, len(prompt) - 1 : -1]

    losses = []
    for prompt, teacher, response in zip(prompts, teachers, responses, strict=True):
        with torch.no_grad():
            of_teacher = logits(teacher, response)
        of_student = logits(prompt, response)
        arguments = of_student, of_teacher, response[None]
        losses.append(trl.compute_sampled_token_self_distillation_loss(*arguments, distillation_alpha=1.0))
    torch.cat(losses).mean().backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters()}

    model.zero_grad()
    with torch.no_grad():
        of_teacher = scored(model, teachers, responses)
    log_probs = scored(model, prompts, responses)
    old = log_probs.detach()
    given = torch.stack(with_teacher(list(torch.zeros(3, 6)), list(old), dict(enumerate(of_teacher)), 1.0))
    torch.testing.assert_close(-given * old, torch.cat(losses).detach(), rtol=1e-4, atol=1e-5)
    config = FSDPActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    loss, _ = get_policy_loss_fn("vanilla")(old, log_probs, given, torch.ones(3, 6), "token-mean", config)
    loss.backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-6)
    assert max(float(values.abs().max()) for values in expected.values()) > 1e-3
