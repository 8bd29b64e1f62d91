"""Drafts from n-grams, and prompts in common, on texts that can be counted by hand."""

import pytest

from research.real.repair_text import shared, tokens_a_pass


@pytest.mark.parametrize(
    ("prompt", "response", "passes"),
    [
        ([1, 2], [3, 4, 5], 3),  # nothing to draft from
        ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8], 3),  # two tokens, then five drafted and one more
        ([5, 6, 7], [5, 6, 9], 3),  # a draft that is refused costs no token
        ([1, 2, 1, 2, 1, 2], [1, 2, 1, 2], 2),  # a draft ends where the text ends
    ],
)
def test_passes_with_drafts(prompt, response, passes):
    assert tokens_a_pass(prompt, response) == (len(response), passes)


def test_prompts_in_common_count_once():
    sizes = shared([[1, 2, 3], [1, 2, 4], [1, 2, 3, 9]], 16)
    assert list(sizes.values()) == [160, 10, 5]
