"""The reference's rotary embedding survives veRL's cast to bf16."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from cobalt.training.patches.rotary import keep_frequencies, restore_frequencies

SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}
CONFIGS = [Qwen3Config(head_dim=16, rope_theta=1e6, **SIZES), LlamaConfig(**SIZES)]


class Workers:
    """Stands for ``verl.workers.fsdp_workers``."""

    @staticmethod
    def get_fsdp_wrap_policy(module, config=None, is_lora=False):
        return module, config, is_lora


def frequencies(model):
    return model.model.rotary_emb.inv_freq


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_frequencies_are_those_before_the_cast_and_the_weights_stay_bf16(config):
    model = AutoModelForCausalLM.from_config(config)
    before = frequencies(model).clone()
    model.to(torch.bfloat16)
    assert not torch.equal(frequencies(model).float(), before)
    workers = type("workers", (Workers,), {})
    keep_frequencies(workers)
    assert workers.get_fsdp_wrap_policy(module=model, config={"a": 1}, is_lora=True) == (model, {"a": 1}, True)
    assert torch.equal(frequencies(model), before)
    assert "model.rotary_emb.inv_freq" not in model.state_dict()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_log_probs_at_late_positions_are_then_those_of_the_rounded_weights():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[0], attn_implementation="sdpa").eval()
    ids = torch.randint(64, (1, 2048))

    def late_log_probs():
        with torch.no_grad():
            return model(ids).logits[0, -512:].log_softmax(-1)

    rounded = {name: weight.bfloat16().float() for name, weight in model.state_dict().items()}
    model.load_state_dict(rounded)
    expected = late_log_probs()
    model.to(torch.bfloat16).float()  # the cast, then arithmetic that rounds nothing more
    assert (late_log_probs() - expected).abs().max() > 0.05
    restore_frequencies(model)
    assert torch.equal(late_log_probs(), expected)


def test_models_without_rotary_embeddings_are_left_alone():
    model = torch.nn.Linear(2, 2)
    restore_frequencies(model)
    assert not dict(model.named_buffers())
