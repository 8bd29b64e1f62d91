"""The data set of fine-tuning on stored answers (``data.custom_cls`` of veRL's trainer).

veRL's own data set renders a conversation message by message. It would train on what the chat template puts behind an
end token, and on other tokens than those that are served where a template depends on the whole conversation.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import MinLen
from torch import Tensor
from torch.utils.data import Dataset

from cobalt.prompts import prompt_tokens
from cobalt.records.rows import Prompt, read_rows


class Tokens(NamedTuple):
    """Token ids of a prompt and of the response to it, end token included."""

    prompt: list[int]
    response: list[int]


class Example(Prompt):
    """A row of ``process_multi_turn_taco.py --for rft``."""

    response: Annotated[str, MinLen(1)]


def encode(tokenizer: Any, messages: Sequence[Any], response: str, **template: Any) -> Tokens:
    """A context as engines read it, and the response as they sample it. ``template``: of the chat template."""
    ids = tokenizer.encode(response, add_special_tokens=False)
    return Tokens(prompt_tokens(tokenizer, messages, **template), [*ids, tokenizer.eos_token_id])


class StoredAnswers(Dataset):
    """Rows as veRL's trainer and our engine read them. ``left_out``: how many are longer than ``data.max_length``."""

    def __init__(self, parquet_files: Any, tokenizer: Any, config: Any, **_: Any):
        """``parquet_files``: JSONL files of ``Example``. Raises ``InputError``."""
        paths = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [row for path in paths for row in read_rows(path, Example, unique=None)]
        template = config.apply_chat_template_kwargs or {}
        encoded = [encode(tokenizer, row.conversation, row.response, **template) for row in rows]
        self.tokens = [each for each in encoded if len(each.prompt) + len(each.response) <= config.max_length]
        self.left_out = len(encoded) - len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        prompt, response = map(torch.tensor, self.tokens[index])
        return {
            "input_ids": torch.cat([prompt, response]),
            "position_ids": torch.arange(len(prompt) + len(response)),
            "loss_mask": torch.cat([torch.zeros_like(prompt), torch.ones_like(response)]),
            "prompts": prompt,
            "responses": response,
        }
