"""Counting each message once gives what tokenizing every prompt from scratch gives."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers_for_tests import CHATML, TEMPLATES, make_tokenizer

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
@settings(max_examples=25, deadline=None)
def test_same_counts_as_from_scratch(name: str, contents: list[str]) -> None:
    assert_same_as_from_scratch(TOKENIZERS[name], contents)


@pytest.mark.parametrize("flags", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True}])
def test_no_cut_at_tokens_that_touch_their_neighbours(flags: dict[str, bool]) -> None:
    assert_same_as_from_scratch(make_tokenizer(CHATML, **flags), [" a ", "b ", " c", "d\n ", "e", " f ", "g", "h  "])


def test_arguments_of_the_chat_template_count() -> None:
    tokenizer, prompts = make_tokenizer(), prefixes(["text"] * 8)
    other = make_tokenizer(TEMPLATES["plain"])
    assert PromptCounter(tokenizer, chat_template=other.chat_template).count(prompts) == PromptCounter(other).count(
        prompts
    )


def test_no_cut_at_a_token_that_another_one_reaches_into() -> None:
    tokenizer = make_tokenizer(CHATML.replace("<|im_end|>\n", ""))
    tokenizer.add_tokens([AddedToken("x<|im_", normalized=False)])
    assert_same_as_from_scratch(tokenizer, ["s", "ux", "a", "fx", "a", "x", "a", "x"])


def test_no_cut_at_a_letter_which_would_end_a_word_before_it() -> None:
    tokenizer = make_tokenizer(CHATML.replace("<|im_start|>", "m<m>").replace("<|im_end|>\n", ""))
    tokenizer.add_tokens(
        [AddedToken("m<m>", normalized=False), AddedToken("<|x|>", single_word=True, normalized=False)]
    )
    assert_same_as_from_scratch(tokenizer, [f"{i} <|x|>" for i in range(8)])


def test_each_message_is_tokenized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, sent = make_tokenizer(), []
    encode = type(tokenizer).__call__
    monkeypatch.setattr(
        type(tokenizer), "__call__", lambda self, text, **kw: sent.extend(text) or encode(self, text, **kw)
    )
    prompts = prefixes([f"text {i} " * 50 for i in range(8)])
    PromptCounter(tokenizer).count(prompts)
    longest = tokenizer.apply_chat_template(prompts[-1], add_generation_prompt=True, tokenize=False)
    assert sum(map(len, sent)) <= len(longest) and PromptCounter(tokenizer).count([]) == []


def test_a_model_without_a_tokenizer_or_a_chat_template_is_an_input_error(tmp_path) -> None:
    with pytest.raises(InputError, match="--model_name"):
        load_tokenizer(str(tmp_path / "nothing"))
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="chat template"):
        load_tokenizer(str(tmp_path))
