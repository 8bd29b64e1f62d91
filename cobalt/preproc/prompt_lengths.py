"""Token counts of the prompts of many contexts, each message tokenized once.

The contract is the plain count, ``len(tokenizer.apply_chat_template(messages, add_generation_prompt=True,
tokenize=True, return_dict=False))``. Contexts of one trajectory are prefixes of each other, so their rendered texts
are cut into pieces and the counts of the pieces are added up. That gives the same number under two conditions, both
checked and never assumed:

1. the texts concatenate: the longer text starts with the shorter one without its generation prompt (each text);
2. each piece after the first starts with an added token that the tokenizer splits off before anything else: not
   normalized, no stripping of neighbouring space, and no other added token can touch its beginning (each tokenizer).

A trajectory whose texts fail is tokenized context by context, a tokenizer without a Rust backend through
``apply_chat_template`` itself.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records.identity import refuse_missing_model

Messages = Sequence[Any]

FINGERPRINT_LENGTH = 12
_SIGN = re.compile(r"[^\w\s]")

_PROBE = (
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
)


def load_tokenizer(model_name: str) -> Any:
    """The tokenizer of a model directory or hub name; ``InputError`` if there is none or it has no chat template."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers import AutoTokenizer

    if not Path(model_name).is_dir():
        refuse_missing_model(model_name, "--model_name ")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--model_name {model_name}: no tokenizer can be loaded ({reason})") from None
    if not tokenizer.chat_template:
        raise InputError(f"--model_name {model_name}: its tokenizer has no chat template")
    return tokenizer


class PromptCounter:
    """Counts prompt tokens for one tokenizer."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.no_truncation()
            self._backend.no_padding()
            self._boundaries = tuple(_safe_boundaries(tokenizer.added_tokens_decoder.values()))
            self._generation_prompt = self._find_generation_prompt()

    @property
    def fingerprint(self) -> str:
        """Names the tokenizer by its vocabulary and chat template, wherever it lies."""
        parts = [self._tokenizer.get_vocab(), self._tokenizer.chat_template]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:FINGERPRINT_LENGTH]

    def count(self, contexts_NC: Sequence[Sequence[Messages]]) -> list[list[int]]:
        """Tokens of each prompt; ``contexts_NC[m]`` are prompts of one trajectory, each a prefix of the next."""
        if self._backend is None:
            return [[self._count_plainly(messages) for messages in contexts_C] for contexts_C in contexts_NC]
        texts_NC = self._render(contexts_NC)
        plans = [self._pieces(texts_C) for texts_C in texts_NC]
        lengths = self._token_lengths(piece for plan in plans for pieces in plan for piece in pieces)
        return [[sum(lengths[piece] for piece in pieces) for pieces in plan] for plan in plans]

    def _count_plainly(self, messages: Messages) -> int:
        ids = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return len(ids)

    def _render(self, contexts_NC: Sequence[Sequence[Messages]]) -> list[list[str]]:
        flat = [list(messages) for contexts_C in contexts_NC for messages in contexts_C]
        if not flat:
            return [[] for _ in contexts_NC]
        texts = iter(self._tokenizer.apply_chat_template(flat, add_generation_prompt=True, tokenize=False))
        return [[next(texts) for _ in contexts_C] for contexts_C in contexts_NC]

    def _pieces(self, texts_C: Sequence[str]) -> list[list[str]]:
        """Per text, the pieces whose token counts add up to that of the text (the text itself if none are safe)."""
        whole = [[text] for text in texts_C]
        if not self._is_safe(self._generation_prompt):
            return whole
        plan, shared, body = [], [], ""
        for text in texts_C:
            longer = text.removesuffix(self._generation_prompt)
            delta = longer[len(body) :]
            if longer == text or not longer.startswith(body) or (body and not self._is_safe(delta)):
                return whole
            shared, body = [*shared, delta], longer
            plan.append([*shared, self._generation_prompt])
        return plan

    def _is_safe(self, piece: str) -> bool:
        return piece.startswith(self._boundaries)

    def _find_generation_prompt(self) -> str:
        """What ``add_generation_prompt`` adds; texts that do not end with it are not cut."""
        probe = list(_PROBE)
        bare = self._tokenizer.apply_chat_template(probe, add_generation_prompt=False, tokenize=False)
        full = self._tokenizer.apply_chat_template(probe, add_generation_prompt=True, tokenize=False)
        return full.removeprefix(bare)

    def _token_lengths(self, pieces: Iterable[str]) -> dict[str, int]:
        """Tokens of each distinct piece, in parallel over the cores."""
        distinct = list(dict.fromkeys(pieces))
        encodings = self._backend.encode_batch_fast(distinct, add_special_tokens=False)
        return {piece: len(encoding) for piece, encoding in zip(distinct, encodings, strict=True)}


def _safe_boundaries(added_tokens: Iterable[Any]) -> Iterable[str]:
    """Added tokens at whose beginning a text may be cut without changing its tokens.

    They begin with a sign: space would be taken by a token before it that strips, a letter would join its word.
    """
    tokens = list(added_tokens)
    for token in tokens:
        if token.normalized or token.lstrip or token.rstrip or token.single_word:
            continue
        if _SIGN.match(token.content) and not any(_overlaps(other.content, token.content) for other in tokens):
            yield token.content


def _overlaps(other: str, token: str) -> bool:
    """True if an occurrence of ``other`` that starts before ``token`` can reach into it."""
    tails = (other[i:] for i in range(1, len(other)))
    return any(tail.startswith(token) or token.startswith(tail) for tail in tails)
