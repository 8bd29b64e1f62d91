"""A random Qwen3 of 50k parameters with a byte-level tokenizer, made on the fly."""

from pathlib import Path

import torch
from tokenizers_for_tests import make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

CONTEXT = 512


def save_tiny_model(path: Path, seed: int = 0) -> str:
    """Write model and tokenizer to ``path``; returns it as text."""
    fast = make_tokenizer()
    fast.pad_token = "<|im_start|>"
    fast.save_pretrained(path)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    return str(path)
