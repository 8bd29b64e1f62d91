"""Prompts are counted as engines read them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers_for_tests import TEMPLATES, make_tokenizer

from cobalt.errors import InputError
from cobalt.preproc.bandit_prompts import PromptCounter, load_tokenizer

TOKENIZERS = {name: make_tokenizer(template) for name, template in TEMPLATES.items()}
texts = st.text(alphabet="abdef <|im_start|>/hk\n1é你", max_size=30)


def prefixes(contents: list[str]) -> list[list[dict[str, str]]]:
    """The contexts of one trajectory."""
    roles = ["system", "user"] + ["assistant", "user"] * 3
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    return [messages[:length] for length in (2, 4, 6, 8)]


def assert_same_as_from_scratch(tokenizer: Any, contents: list[str]) -> None:
    prompts = prefixes(contents)
    flags = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    expected = [len(tokenizer.apply_chat_template(prompt, **flags)) for prompt in prompts]
    counter = PromptCounter(tokenizer)
    assert counter.count([*prompts, *prompts[-1:]]) == [*expected, *expected[-1:]]
    assert counter.longer_than(expected[2], prompts) == sum(tokens > expected[2] for tokens in expected)


@pytest.mark.parametrize("name", list(TOKENIZERS))
@given(contents=st.lists(texts, min_size=8, max_size=8))
@settings(max_examples=10, deadline=None)
def test_same_counts_as_from_scratch(name: str, contents: list[str]) -> None:
    assert_same_as_from_scratch(TOKENIZERS[name], contents)


def test_arguments_of_the_chat_template_count() -> None:
    tokenizer, prompts = make_tokenizer(), prefixes(["text"] * 8)
    other = make_tokenizer(TEMPLATES["plain"])
    assert PromptCounter(tokenizer, chat_template=other.chat_template).count(prompts) == PromptCounter(other).count(
        prompts
    )


def test_a_model_without_a_tokenizer_or_a_chat_template_is_an_input_error(tmp_path) -> None:
    with pytest.raises(InputError, match="--model_name"):
        load_tokenizer(str(tmp_path / "nothing"))
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="chat template"):
        load_tokenizer(str(tmp_path))
