"""Scores in chunks equal those of the whole logits, gradients included."""

import pytest
import torch

from cobalt.training.patches import token_scores
from cobalt.training.patches.token_scores import TokenScores

TOKENS, CHANNELS, WORDS = 13, 8, 21


def make_inputs():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, CHANNELS, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(WORDS, CHANNELS, generator=generator, dtype=torch.float64, requires_grad=True)
    return hidden, weight, torch.randint(0, WORDS, (TOKENS,), generator=generator)


def whole(hidden, weight, targets, temperature):
    log_probs = (hidden @ weight.t() / temperature).log_softmax(-1)
    return log_probs.gather(-1, targets[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)


@pytest.mark.parametrize(
    ("rows", "with_entropy", "compiled"),
    [*((rows, with_entropy, False) for rows in (1, 4, 13, 100) for with_entropy in (False, True)), (4, True, True)],
)
def test_scores_and_gradients_equal_those_of_the_whole_logits(rows, with_entropy, compiled, monkeypatch):
    monkeypatch.setattr(token_scores, "ROWS", rows)
    results = []
    for chunked in (False, True):
        hidden, weight, targets = make_inputs()
        if chunked:
            log_probs, entropies = TokenScores.apply(hidden, weight, targets, 0.7, with_entropy, compiled)
        else:
            log_probs, entropies = whole(hidden, weight, targets, 0.7)
        slopes = torch.arange(TOKENS) / TOKENS
        entropies = entropies if with_entropy else torch.zeros(TOKENS)
        ((log_probs + 0.3 * entropies) * slopes).sum().backward()
        results.append((log_probs.float(), entropies.float(), hidden.grad.float(), weight.grad.float()))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_no_tokens_have_no_scores():
    hidden, weight, targets = make_inputs()
    log_probs, entropies = TokenScores.apply(hidden[:0], weight, targets[:0], 1.0, True, False)
    log_probs.sum().backward()
    assert log_probs.shape == entropies.shape == (0,)
    assert not weight.grad.any()


def test_logits_never_exist_for_more_than_a_chunk(monkeypatch):
    monkeypatch.setattr(token_scores, "ROWS", 4)
    seen = []
    for name in ("_scores", "_logits_gradient"):
        monkeypatch.setattr(token_scores, name, counting_rows(getattr(token_scores, name), seen))
    hidden, weight, targets = make_inputs()
    TokenScores.apply(hidden, weight, targets, 1.0, False, False)[0].sum().backward()
    assert seen == [4, 4, 4, 1] * 2


def counting_rows(function, seen):
    def counted(logits, *rest):
        seen.append(len(logits))
        return function(logits, *rest)

    return counted
