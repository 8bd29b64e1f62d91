"""The kernels of ``cobalt.training.shared_attention`` as plain tensor operations, for machines without a GPU."""

import torch

from cobalt.training import shared_attention, shared_prompts

OWN = {name: getattr(shared_attention, name) for name in ("varlen_forward", "varlen_backward")}


def install(monkeypatch):
    """In their place, for a test."""
    monkeypatch.setattr(shared_attention, "varlen_forward", forward)
    monkeypatch.setattr(shared_attention, "varlen_backward", backward)


def install_newer(monkeypatch, kernels):
    """As if these were FlashAttention-4's."""
    for name, function in OWN.items():
        monkeypatch.setattr(shared_attention, name, function)
    for room in (shared_attention, shared_prompts):
        monkeypatch.setattr(room, "newer_kernels", lambda: kernels)


class NewerKernels:
    """FlashAttention-4's two functions, with the arguments and results that they have in vLLM 0.24."""

    def _flash_attn_fwd(self, query, key, value, *, softmax_scale, causal, return_lse, **starts):
        assert return_lse
        out, lse, _ = forward(query, key, value, spans_of(**starts), causal, softmax_scale)
        return out, lse.masked_fill(lse == torch.inf, -torch.inf)

    def _flash_attn_bwd(self, query, key, value, out, grad, lse, *, softmax_scale, causal, dq, dk, dv, **starts):
        found = backward(grad, query, key, value, out, lse, None, spans_of(**starts), causal, softmax_scale)
        return tuple(target.copy_(gradient) for target, gradient in zip((dq, dk, dv), found, strict=True))


def spans_of(*, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
    lengths_q, lengths_k = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
    made = shared_attention.spans(lengths_q, lengths_k, "cpu")
    assert (max_seqlen_q, max_seqlen_k) == (made.longest_query, made.longest_key)
    return made


def scores(query, key, spans, causal, scale):
    """(H, Q, X), minus infinity where a query does not see a key."""
    lengths_q, lengths_k = spans.query_starts.diff(), spans.key_starts.diff()
    sequences_q, sequences_x = torch.repeat_interleave(lengths_q), torch.repeat_interleave(lengths_k)
    places_x = torch.arange(len(sequences_x)) - spans.key_starts[sequences_x]
    seen = sequences_q[:, None] == sequences_x
    if causal:
        offsets_q = torch.arange(len(sequences_q)) - spans.query_starts[sequences_q]
        places_q = offsets_q + (lengths_k - lengths_q)[sequences_q]
        seen = seen & (places_x <= places_q[:, None])
    repeated = key.float().repeat_interleave(query.shape[1] // key.shape[1], 1)
    return (torch.einsum("qhd,khd->hqk", query.float(), repeated) * scale).masked_fill(~seen, -torch.inf)


def forward(query, key, value, spans, causal, scale):
    all_scores = scores(query, key, spans, causal, scale)
    lse = all_scores.logsumexp(-1)
    lse = lse.masked_fill(lse == -torch.inf, torch.inf)  # as the kernels say it of a query without keys
    repeated = value.float().repeat_interleave(query.shape[1] // key.shape[1], 1)
    out = torch.einsum("hqk,khd->qhd", (all_scores - lse[..., None]).exp(), repeated)
    return out.to(query.dtype), lse, None


def backward(grad, query, key, value, out, lse, _state, spans, causal, scale):
    """By the given log-sum-exp, which may be that of a softmax over other keys too."""
    repeats = query.shape[1] // key.shape[1]
    grad_out, query_f, out_f = grad.float(), query.float(), out.float()
    key_f, value_f = (states.float().repeat_interleave(repeats, 1) for states in (key, value))
    probabilities = (scores(query, key, spans, causal, scale) - lse[..., None]).exp()
    grad_value = torch.einsum("hqk,qhd->khd", probabilities, grad_out)
    expected = (grad_out * out_f).sum(-1).t()
    grad_scores = probabilities * (torch.einsum("qhd,khd->hqk", grad_out, value_f) - expected[..., None]) * scale
    grad_query, grad_key = (
        torch.einsum("hqk,khd->qhd", grad_scores, key_f),
        torch.einsum("hqk,qhd->khd", grad_scores, query_f),
    )
    by_key_head = (states.unflatten(1, (-1, repeats)).sum(2) for states in (grad_key, grad_value))
    return tuple(states.to(query.dtype) for states in (grad_query, *by_key_head))
