"""A policy beside its reference: responses of the one, and how far the other is from them.

Everything is in fp32 and at one temperature without nucleus: the policy that is scored is the one that samples, and
every response has a probability under both. Responses are sequences of tokens, end token included, as they were drawn:
no text is tokenised again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cobalt.cli.tasks import batched
from cobalt.errors import InputError
from cobalt.inference.huggingface import end_tokens, load_network
from cobalt.prompts import prompt_tokens
from cobalt.records.identity import model_identity
from cobalt.sampler.prompts import PREFILL_TOKENS, additive_mask
from cobalt.sampler.sampling import Row, sample_batch

LOGITS = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Held at once for one network: bounds the memory of scoring."""

Scored = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of the response to it."""


@dataclass(frozen=True)
class Response:
    """A response a to a context s: its text and length in tokens, and what tells π from π_ref there.

    ``log_ratio``: log π(a|s) − log π_ref(a|s). ``kl``: KL(π‖π_ref) of the next token, summed over the places of a; its
    mean over responses of π is that of ``log_ratio``, with less noise.
    """

    text: str
    tokens: int
    log_ratio: float
    kl: float


class PolicyPair:
    """Both networks, loaded; ``policy`` and ``reference`` are directories or hub names.

    Raises ``InputError`` if they do not write the same tokens.
    """

    def __init__(self, policy: str, reference: str, temperature: float, max_tokens: int, batch_size: int):
        self._temperature, self._max_tokens, self._batch_size = temperature, max_tokens, batch_size
        self._policy, self._tokenizer = load_network(policy, "--policy", torch.float32)
        self._reference = self._policy
        if model_identity(policy) != model_identity(reference):
            self._reference, theirs = load_network(reference, "--reference", torch.float32)
            ours = self._tokenizer
            if (ours.get_vocab(), ours.chat_template) != (theirs.get_vocab(), theirs.chat_template):
                raise InputError(
                    f"--reference {reference}: tokens or chat template are not those of "
                    f"{policy}, so their log-probabilities cannot be compared"
                )
        networks = (self._policy, self._reference)
        self._context = min(network.config.max_position_embeddings for network in networks)
        self._end_tokens = end_tokens(self._policy, self._tokenizer)

    def respond(self, conversations: Sequence[Sequence[Mapping[str, str]]], seeds: Sequence[int]) -> list[Response]:
        """One response of the policy to each conversation; empty where the context has no room for one."""
        prompts = [tuple(prompt_tokens(self._tokenizer, messages)) for messages in conversations]

        # sampled in batches of similar prompt length
        answers: list[list[int]] = [[] for _ in prompts]
        room = [min(self._max_tokens, self._context - len(prompt)) for prompt in prompts]
        asked = sorted((i for i in range(len(prompts)) if room[i] >= 1), key=lambda index: len(prompts[index]))
        for batch in batched(asked, self._batch_size):
            rows = [Row(prompts[i], room[i], self._temperature, 1.0, seeds[i]) for i in batch]

            def finished(place: int, tokens: list[int], end_token: int | None, batch: list[int] = batch) -> None:
                answers[batch[place]] = tokens if end_token is None else [*tokens, end_token]

            sample_batch(self._policy, rows, self._end_tokens, finished)

        # scored in batches of similar length
        distances = [(0.0, 0.0)] * len(prompts)  # log-ratio and KL
        answered = [index for index, answer in enumerate(answers) if answer]
        chosen = [(prompts[index], answers[index]) for index in answered]
        for batch in scoring_batches(chosen, self._policy.device.type, self._policy.config.vocab_size):
            rows = [chosen[place] for place in batch]
            ours, theirs = (response_log_probs(of, rows, self._temperature) for of in (self._policy, self._reference))
            # Both sums are over the places that the response holds: answers are padded to the longest.
            lengths = torch.tensor([len(answer) for _, answer in rows], device=ours.device)
            written = torch.arange(ours.shape[1], device=ours.device) < lengths[:, None]
            difference = ours - theirs
            drawn = difference.gather(-1, _padded([answer for _, answer in rows], ours.device)[..., None])[..., 0]
            kl = (ours.exp() * difference).sum(-1)
            sums = [(values * written).sum(-1, dtype=torch.float64).tolist() for values in (drawn, kl)]
            for place, found in zip(batch, zip(*sums, strict=True), strict=True):
                distances[answered[place]] = found
        decode = self._tokenizer.decode
        return [
            Response(decode(answer, skip_special_tokens=True), len(answer), *distance)
            for answer, distance in zip(answers, distances, strict=True)
        ]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """Rows of token ids, padded on the right."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(device)


@torch.inference_mode()
def response_log_probs(model: Any, rows: Sequence[Scored], temperature: float) -> torch.Tensor:
    """Log-probabilities of every token at each place of the responses, at ``temperature``, in fp32.

    Shape: rows, tokens of the longest response, vocabulary. Prompt and response pass together, padded on the right,
    where a causal network needs no mask against padding. Places beyond a row's response hold numbers that mean nothing.
    ``model`` must use ``network.ATTENTION``.
    """
    device = model.device
    starts = torch.tensor([len(prompt) for prompt, _ in rows], device=device)
    ids = _padded([[*prompt, *response] for prompt, response in rows], device)
    columns = torch.arange(ids.shape[1], device=device)
    first = int(starts.min()) - 1  # the prompt's last token gives the response's first
    logits = model(
        input_ids=ids,
        attention_mask=additive_mask((columns[:, None] >= columns)[None, None], model.dtype),
        use_cache=False,
        logits_to_keep=ids.shape[1] - first,
    ).logits
    longest = max(len(response) for _, response in rows)
    places = starts[:, None] - 1 - first + torch.arange(longest, device=device)
    chosen = logits[torch.arange(len(rows), device=device)[:, None], places.clamp(max=logits.shape[1] - 1)]
    return (chosen.float() / temperature).log_softmax(-1)


def scoring_batches(rows: Sequence[Scored], device: str, vocabulary: int) -> Iterator[list[int]]:
    """Indices of ``rows`` in batches of similar length, each small enough for ``device``."""
    left = sorted(range(len(rows)), key=lambda index: len(rows[index][0]) + len(rows[index][1]), reverse=True)
    while left:
        prompt, response = rows[left[0]]
        tokens = len(prompt) + len(response)
        size = max(1, min(PREFILL_TOKENS[device] // tokens, LOGITS[device] // (tokens * vocabulary)))
        yield left[:size]
        left = left[size:]
