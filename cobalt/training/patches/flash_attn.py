"""``flash_attn.bert_padding`` for veRL's actor, which imports it on CUDA even where it never calls it.

It is visible during the import of veRL's actor only, and only where flash-attn is not installed: other libraries
(vLLM, transformers) decide by its presence how to compute attention.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import transformers  # noqa: F401 - looks for flash-attn when it is imported: it must have seen that there is none

NEEDED = ("index_first_axis", "pad_input", "rearrange", "unpad_input")


@contextmanager
def stand_in() -> Iterator[None]:
    """Meanwhile ``from flash_attn.bert_padding import ...`` succeeds; the functions refuse to be called."""
    if importlib.util.find_spec("flash_attn") is not None:
        yield
        return
    padding = ModuleType("flash_attn.bert_padding")
    for name in NEEDED:
        setattr(padding, name, _refusing(name))
    modules = {"flash_attn": ModuleType("flash_attn"), padding.__name__: padding}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def _refusing(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(f"flash_attn is not installed: {name} needs it; set use_remove_padding=False")

    return refuse
