"""MiniCoder's tokenizer: a small byte-level BPE, a chat template, and the fixed sentences as single tokens.

Every fixed text of ``wording`` (system prompt, instructions, labels of the feedback) and of MiniCode's
statements is one added token, so that a prompt costs little more than its problem. ``<think>``, ``</think>`` and the
fence are added tokens too, and ordinary ones: decoding with ``skip_special_tokens=True`` keeps them. Special are only
the padding and the two turn marks. Numbers are split into digits.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cobalt.prompts import feedback_message, problem_instruction, render_test_feedback
from cobalt.records import Verdict
from research.minicode.problems import FIXED_SENTENCES
from research.minicode.programs import FN_NAME
from research.minicode.wording import prompts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ANSWER_MARKS = ("<think>", "</think>", "```python")
PIECES = r"\n {4,}|\n| ?\d| ?[^\s\d]+|\s"
"""Pre-tokenization: a line's indentation, digits one by one, words with the space before them."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_BLANK = "\x00"


def fixed_texts() -> list[str]:
    """The fixed parts of prompts, found by rendering them around a blank, and the fixed sentences of statements."""
    with_blanks = [
        problem_instruction(_BLANK, prompts=prompts()),
        problem_instruction(_BLANK, FN_NAME, prompts=prompts()),
        feedback_message(_BLANK, prompts())["content"],
        render_test_feedback(Verdict.WRONG_ANSWER, _BLANK, _BLANK, _BLANK),
        render_test_feedback(Verdict.RUNTIME_ERROR, _BLANK, _BLANK, _BLANK, stderr=_BLANK),
    ]
    own = prompts()
    parts = [part for text in with_blanks for part in text.split(_BLANK) if part]
    return list(dict.fromkeys([own.system, *parts, own.all_passed, own.no_program, *FIXED_SENTENCES]))


def render_prompt(messages: Iterable[dict[str, str]]) -> str:
    """The chat template with a generation prompt, as plain Python (the corpus renders a million prompts)."""
    turns = "".join(f"{TURN_START}{m['role']}\n{m['content']}{TURN_END}\n" for m in messages)
    return f"{turns}{TURN_START}assistant\n"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> "PreTrainedTokenizerFast":
    """Learn the merges from ``texts``; ``vocab_size`` counts bytes, merges and special tokens, not the added ones."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = [pre_tokenizers.Split(Regex(PIECES), "isolated"), byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pieces)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    added = [*ANSWER_MARKS, *fixed_texts()]

    def without_fixed(text: str) -> str:
        for part in (TURN_START, TURN_END, *added):
            text = text.replace(part, "\n")
        return text

    tokenizer.train_from_iterator(map(without_fixed, texts), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in added])
    marks = {"eos_token": TURN_END, "pad_token": PAD, "padding_side": "left"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **marks)
    fast.chat_template = CHAT_TEMPLATE
    return fast
