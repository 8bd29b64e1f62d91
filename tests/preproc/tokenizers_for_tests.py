"""Small byte-level BPE tokenizers with different chat templates, trained on the spot."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Each message begins with a special token."""

DROPS_THINKING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>{{ m.content.split('</think>')[-1] }}<|im_end|>"
    "{% else %}<|im_start|>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|><think>{% endif %}"
)
"""Thinking is dropped from history, the last message has no end, the generation prompt opens thinking."""

PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Messages begin with ordinary text: tokens may span their border."""

TEMPLATES = {"chatml": CHATML, "drops_thinking": DROPS_THINKING, "plain": PLAIN}

CORPUS = [
    Path(__file__).read_text(),
    "def solve(n):\n    return n + 1\n" * 20,
    "Input:\n1 2 3\nExpected Output:\n6\n" * 20,
]


def make_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """A tokenizer of some 600 tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = template
    return tokenizer
