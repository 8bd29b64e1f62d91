"""Counting each message once gives what tokenizing every prompt from scratch gives."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers_for_tests import CHANGING, CHATML, PLAIN, TEMPLATES, make_tokenizer

from cobalt.errors import InputError
from cobalt.preproc.prompt_lengths import PromptCounter, load_tokenizer

TOKENIZERS = {name: make_tokenizer(template) for name, template in TEMPLATES.items()}
texts = st.text(alphabet="abdef <|im_start>/hk\n1é你", max_size=30)


def messages(contents: list[str]) -> list[dict[str, str]]:
    roles = ["system", "user"] + ["assistant", "user"] * 3
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def prefixes(conversation: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    return [conversation[:length] for length in (2, 4, 6, 8)]


def from_scratch(tokenizer: Any, prompts: list[list[dict[str, str]]]) -> list[int]:
    return [
        len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False))
        for prompt in prompts
    ]


def tokens_spent(counter: PromptCounter, prompts: list[list[dict[str, str]]]) -> int:
    """Characters that the counter sends to the tokenizer."""
    spent = 0
    original = counter._token_lengths

    def spy(pieces: Any) -> dict[str, int]:
        nonlocal spent
        distinct = set(pieces)
        spent += sum(map(len, distinct))
        return original(distinct)

    counter._token_lengths = spy
    counter.count([prompts])
    return spent


@pytest.mark.parametrize("name", list(TOKENIZERS))
@given(contents=st.lists(texts, min_size=8, max_size=8))
@settings(max_examples=60)
def test_same_counts_as_from_scratch(name: str, contents: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    prompts = prefixes(messages(contents))
    expected = from_scratch(tokenizer, prompts)
    assert PromptCounter(tokenizer).count([prompts, prompts[-1:]]) == [expected, expected[-1:]]


@pytest.mark.parametrize("flags", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True}])
def test_tokens_that_touch_their_neighbours_are_no_boundary(flags: dict[str, bool]) -> None:
    tokenizer = make_tokenizer(CHATML, **flags)
    prompts = prefixes(messages([" a ", "b ", " c", "d\n ", "e", " f ", "g", "h  "]))
    assert PromptCounter(tokenizer).count([prompts]) == [from_scratch(tokenizer, prompts)]


def test_an_overlapping_added_token_is_no_boundary() -> None:
    tokenizer = make_tokenizer(CHATML.replace("<|im_end|>\n", ""))
    tokenizer.add_tokens([AddedToken("x<|im_", normalized=False)])
    prompts = prefixes(messages(["s", "ux", "a", "fx", "a", "x", "a", "x"]))
    assert PromptCounter(tokenizer).count([prompts]) == [from_scratch(tokenizer, prompts)]


def test_a_boundary_that_begins_with_a_letter_would_end_a_word_before_it() -> None:
    template = CHATML.replace("<|im_start|>", "m<m>").replace("<|im_end|>\n", "")
    tokenizer = make_tokenizer(template)
    tokenizer.add_tokens(
        [AddedToken("m<m>", normalized=False), AddedToken("<|x|>", single_word=True, normalized=False)]
    )
    prompts = prefixes(messages([f"{i} <|x|>" for i in range(8)]))
    assert PromptCounter(tokenizer).count([prompts]) == [from_scratch(tokenizer, prompts)]


def test_nothing_to_count() -> None:
    assert PromptCounter(TOKENIZERS["chatml"]).count([]) == []


def test_each_message_is_tokenized_once_where_the_template_allows() -> None:
    prompts = prefixes(messages([f"text {i} " * 50 for i in range(8)]))
    longest = len(TOKENIZERS["chatml"].apply_chat_template(prompts[-1], add_generation_prompt=True, tokenize=False))
    assert tokens_spent(PromptCounter(TOKENIZERS["chatml"]), prompts) == longest


@pytest.mark.parametrize("template", [PLAIN, CHANGING])
def test_other_templates_are_rendered_in_full(template: str) -> None:
    tokenizer = make_tokenizer(template)
    prompts = prefixes(messages([f"text {i} " * 5 for i in range(8)]))
    rendered = [tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p in prompts]
    assert tokens_spent(PromptCounter(tokenizer), prompts) == sum(map(len, rendered))


def test_a_missing_model_is_an_input_error(tmp_path) -> None:
    with pytest.raises(InputError, match="--model_name"):
        load_tokenizer(str(tmp_path / "nothing"))


def test_a_tokenizer_without_a_chat_template_is_an_input_error(tmp_path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="chat template"):
        load_tokenizer(str(tmp_path))
