"""Token counts for the format part: by the policy's own tokenizer, or by ``o200k_base`` (the paper's)."""

from collections.abc import Callable
from typing import Any

from cobalt.errors import SetupError

CountTokens = Callable[[str], int]


def tokenizer_counter(tokenizer: Any) -> CountTokens:
    """Count with a Hugging Face tokenizer, without BOS/EOS; text that looks like a special token is only text."""
    return lambda text: len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def o200k_counter() -> CountTokens:
    """Count with tiktoken's ``o200k_base``, which is downloaded on first use: so only when asked for.

    Raises ``SetupError`` where it can be neither downloaded nor found in ``TIKTOKEN_CACHE_DIR``.
    """
    import tiktoken

    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except (OSError, ValueError) as error:  # of requests, or of a file that is not the encoding
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        raise SetupError(
            "reward.reward_kwargs.lengths=o200k_base (the presets paper-*) needs tiktoken's encoding, and it "
            f"cannot be downloaded ({reason}): set TIKTOKEN_CACHE_DIR to a folder that holds it, or lengths=policy"
        ) from None
    return lambda text: len(encoding.encode(text, disallowed_special=()))
