"""Token counts add nothing and take any text."""

import sys
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cobalt.errors import SetupError
from cobalt.rewards import o200k_counter, tokenizer_counter


def make_tokenizer():
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "?": 4}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="?")


def test_policy_tokens_without_bos_and_eos():
    assert tokenizer_counter(make_tokenizer())("a b a") == 3


def test_special_tokens_in_the_text_are_counted_not_refused():
    assert tokenizer_counter(make_tokenizer())("a <s> </s>") == 3


def test_an_encoding_that_cannot_be_downloaded_is_told_with_the_setting(monkeypatch):
    def get_encoding(name):
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=get_encoding))
    with pytest.raises(SetupError, match=r"reward_kwargs.lengths=o200k_base .*no route.*TIKTOKEN_CACHE_DIR"):
        o200k_counter()


def test_o200k_takes_special_token_strings(monkeypatch):
    """The real encoding needs a download; what matters is how it is called."""
    calls = []

    def encode(text, disallowed_special):
        calls.append(disallowed_special)
        return text.split()

    encoding = SimpleNamespace(encode=encode)
    monkeypatch.setitem(
        sys.modules, "tiktoken", SimpleNamespace(get_encoding=lambda name: {"o200k_base": encoding}[name])
    )
    assert o200k_counter()("a <|endoftext|>") == 2
    assert calls == [()]
