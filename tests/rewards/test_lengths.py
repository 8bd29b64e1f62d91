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


def test_policy_tokens_without_bos_and_eos_and_special_ones_are_counted_not_refused():
    count = tokenizer_counter(make_tokenizer())
    assert (count("a b a"), count("a <s> </s>")) == (3, 3)


def test_o200k_takes_special_token_strings_and_a_failed_download_is_told_with_the_setting(monkeypatch):
    """The real encoding needs a download; what matters is how it is called."""
    calls = []

    def encode(text, disallowed_special):
        calls.append(disallowed_special)
        return text.split()

    def get_encoding(name):
        if calls:
            raise ConnectionError("no route")
        return {"o200k_base": SimpleNamespace(encode=encode)}[name]

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=get_encoding))
    assert o200k_counter()("a <|endoftext|>") == 2
    assert calls == [()]
    with pytest.raises(SetupError, match=r"reward_kwargs.lengths=o200k_base .*no route.*TIKTOKEN_CACHE_DIR"):
        o200k_counter()
