"""A policy beside its reference: responses of the one, and how far the other is from them.

Everything is in fp32 and at one temperature without nucleus: the policy that is scored is the one that samples, and
every response has a probability under both. Responses are sequences of tokens, end token included, as they were drawn:
no text is tokenised again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from cobalt.cli.tasks import batched
from cobalt.errors import InputError
from cobalt.inference.huggingface import end_tokens, load_network
from cobalt.records.identity import model_identity
from cobalt.sampler.sampling import Row, sample_batch
from studies.theory.scoring import response_log_probs, scoring_batches


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
        template = self._tokenizer.apply_chat_template
        prompts = [
            tuple(template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))
            for messages in conversations
        ]
        answers = self._sample(prompts, seeds)
        texts = [self._tokenizer.decode(answer, skip_special_tokens=True) for answer in answers]
        distances = [(0.0, 0.0)] * len(prompts)  # log-ratio and KL
        answered = [index for index, answer in enumerate(answers) if answer]
        chosen = [(prompts[index], answers[index]) for index in answered]
        for batch in scoring_batches(chosen, self._policy.device.type, self._policy.config.vocab_size):
            rows = [chosen[place] for place in batch]
            ours, theirs = (response_log_probs(of, rows, self._temperature) for of in (self._policy, self._reference))
            # Both sums are over the places that the response holds: answers are padded to the longest.
            longest = ours.shape[1]
            padded = [[*answer, *[0] * (longest - len(answer))] for _, answer in rows]
            lengths = torch.tensor([len(answer) for _, answer in rows], device=ours.device)
            written = torch.arange(longest, device=ours.device) < lengths[:, None]
            difference = ours - theirs
            drawn = difference.gather(-1, torch.tensor(padded, device=ours.device)[..., None])[..., 0]
            kl = (ours.exp() * difference).sum(-1)
            sums = [(values * written).sum(-1, dtype=torch.float64).tolist() for values in (drawn, kl)]
            for place, found in zip(batch, zip(*sums, strict=True), strict=True):
                distances[answered[place]] = found
        return [
            Response(text, len(answer), *distance)
            for text, answer, distance in zip(texts, answers, distances, strict=True)
        ]

    def _sample(self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> list[list[int]]:
        """Tokens of the responses, in batches of similar prompt length."""
        answers: list[list[int]] = [[] for _ in prompts]
        room = [min(self._max_tokens, self._context - len(prompt)) for prompt in prompts]
        asked = sorted((i for i in range(len(prompts)) if room[i] >= 1), key=lambda index: len(prompts[index]))
        for batch in batched(asked, self._batch_size):
            rows = [Row(prompts[i], room[i], self._temperature, 1.0, seeds[i]) for i in batch]

            def finished(place: int, tokens: list[int], end_token: int | None, batch: list[int] = batch) -> None:
                answers[batch[place]] = tokens if end_token is None else [*tokens, end_token]

            sample_batch(self._policy, rows, self._end_tokens, finished)
        return answers
