"""Counts the prompts that are longer than ``data.max_prompt_length`` tokens, before training."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from cobalt.preproc.bandit_prompts import PromptCounter, load_tokenizer
from cobalt.records.parquet import parquet_errors

BATCH_PROMPTS = 1024
"""Prompts that are tokenized at once."""


def overlong_prompts(config: Any, paths: Sequence[str]) -> int:
    """How many prompts of these parquet files are too long, with chat template and generation prompt.

    Raises ``InputError`` for a model that has no tokenizer or no chat template, and for a damaged file.
    """
    from omegaconf import OmegaConf

    data, model = config.data, config.actor_rollout_ref.model
    setting, name, options = tokenizer_of(model, "actor_rollout_ref.model.")
    if data.get("trust_remote_code"):
        options["trust_remote_code"] = True
    template = data.get("apply_chat_template_kwargs") or {}
    template = OmegaConf.to_container(template, resolve=True) if OmegaConf.is_config(template) else template
    settings = (json.dumps(value, sort_keys=True) for value in (options, template))
    return _overlong(setting, name, *settings, tuple(paths), data.prompt_key, data.max_prompt_length)


def tokenizer_of(model: Any, section: str) -> tuple[str, str, dict[str, Any]]:
    """What veRL loads a model's tokenizer from: the setting, its value, and options of ``load_tokenizer``."""
    source = "tokenizer_path" if model.get("tokenizer_path") else "path"
    options: dict[str, Any] = {"trust_remote_code": True} if model.get("trust_remote_code") else {}
    if model.get("custom_chat_template"):
        options["chat_template"] = model.custom_chat_template
    return f"{section}{source}=", model[source], options


@cache
def _overlong(
    setting: str, model: str, options: str, template: str, paths: tuple[str, ...], column: str, most: int
) -> int:
    from pyarrow.parquet import ParquetFile

    counter = PromptCounter(load_tokenizer(model, setting, **json.loads(options)), **json.loads(template))
    count = 0
    for path in paths:
        with parquet_errors(path):
            for batch in ParquetFile(path).iter_batches(BATCH_PROMPTS, columns=[column]):
                count += counter.longer_than(most, batch.column(0).to_pylist())
    return count
