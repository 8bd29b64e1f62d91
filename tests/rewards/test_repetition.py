"""The repetition check equals the plain definition, and is fast on the texts that are worst for it."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cobalt.rewards.repetition import has_repetition


def by_definition(text, min_chars, times):
    """For every block length: a stretch of equal characters at that distance that is long enough."""
    for length in range(min_chars, len(text) // times + 1):
        run = 0
        for index in range(len(text) - length):
            run = run + 1 if text[index] == text[index + length] else 0
            if run >= (times - 1) * length:
                return True
    return False


BLOCKS = st.lists(st.tuples(st.text("ab", min_size=1, max_size=14), st.integers(1, 9)), max_size=8)


@settings(max_examples=200)
@given(BLOCKS, st.integers(2, 6), st.integers(3, 8))
def test_equals_the_definition(blocks, min_chars, times):
    text = "".join(block * count for block, count in blocks)
    assert has_repetition(text, min_chars, times) == by_definition(text, min_chars, times)


def test_one_character_and_long_blocks_anywhere():
    assert has_repetition("é" * 256, 32, 8) and not has_repetition("é" * 255, 32, 8)
    block = "".join(random.Random(1).choices("abcdefgh", k=7000))
    assert has_repetition("start" + block * 8, 32, 8)
    assert not has_repetition("start" + block * 7 + block[:-1], 32, 8)


def slow_texts(length):
    """Texts on which windows recur often without any block repeating often enough."""
    generator = random.Random(2)
    yield "".join("a" * 250 + chr(generator.randint(98, 3000)) for _ in range(length // 250 + 1))[:length]
    yield "".join("ab" * 120 + chr(generator.randint(99, 3000)) for _ in range(length // 240 + 1))[:length]
    yield "".join(generator.choices("ab", weights=[95, 5], k=length))


@pytest.mark.parametrize("text", slow_texts(60_000), ids=["runs", "pairs", "skewed"])
def test_fast_on_the_worst_texts(text):
    def seconds():
        started = time.process_time()
        assert not has_repetition(text, 32, 8)
        return time.process_time() - started

    assert any(seconds() < 0.3 for _ in range(5))  # 0.1 on a free core
