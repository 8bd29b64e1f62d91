"""Token counts for the format part: by the policy's own tokenizer, or by ``o200k_base`` (the paper's)."""

from collections.abc import Callable
from typing import Any

CountTokens = Callable[[str], int]


def tokenizer_counter(tokenizer: Any) -> CountTokens:
    """Count with a Hugging Face tokenizer, without BOS/EOS; text that looks like a special token is only text."""

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    return count


def o200k_counter() -> CountTokens:
    """Count with tiktoken's ``o200k_base``, which is downloaded on first use: so only when asked for."""
    import tiktoken

    encoding = tiktoken.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode(text, disallowed_special=()))

    return count
