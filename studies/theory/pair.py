"""A policy beside its reference: responses of the one, and how far the other is from them.

Everything is in fp32 and at one temperature without nucleus: the policy that is scored is the one that samples, and
every response has a probability under both. Responses are sequences of tokens, end token included, as they were drawn:
no text is tokenised again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cobalt.cli.tasks import batched
from cobalt.completion import Message
from cobalt.errors import InputError
from cobalt.inference.huggingface import end_tokens, load_network
from cobalt.records.identity import model_identity
from cobalt.sampler.sampling import Row, sample_batch
from studies.theory.scoring import Scored, response_log_probs, scoring_batches

NO_NUCLEUS = 1.0


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


@dataclass(frozen=True)
class PairConfig:
    """``policy`` and ``reference``: directories or hub names."""

    policy: str
    reference: str
    temperature: float
    max_tokens: int
    batch_size: int


class PolicyPair:
    """Both networks, loaded. Raises ``InputError`` if they do not write the same tokens."""

    def __init__(self, config: PairConfig):
        self._config = config
        self._policy, self._tokenizer = load_network(config.policy, "--policy", torch.float32)
        self._reference = self._policy
        if model_identity(config.policy) != model_identity(config.reference):
            self._reference, tokenizer = load_network(config.reference, "--reference", torch.float32)
            self._refuse_other_tokens(tokenizer)
        networks = (self._policy, self._reference)
        self._context = min(network.config.max_position_embeddings for network in networks)
        self._end_tokens = end_tokens(self._policy, self._tokenizer)

    def _refuse_other_tokens(self, tokenizer: Any) -> None:
        ours = self._tokenizer
        if (ours.get_vocab(), ours.chat_template) != (tokenizer.get_vocab(), tokenizer.chat_template):
            raise InputError(
                f"--reference {self._config.reference}: tokens or chat template are not those of "
                f"{self._config.policy}, so their log-probabilities cannot be compared"
            )

    def respond(self, conversations: Sequence[Sequence[Message]], seeds: Sequence[int]) -> list[Response]:
        """One response of the policy to each conversation; empty where the context has no room for one."""
        prompts = [self._prompt(messages) for messages in conversations]
        answers = self._sample(prompts, seeds)
        log_ratios, kls = self._compare(list(zip(prompts, answers, strict=True)))
        texts = [self._tokenizer.decode(answer, skip_special_tokens=True) for answer in answers]
        return [Response(*parts) for parts in zip(texts, map(len, answers), log_ratios, kls, strict=True)]

    def _prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        tokens = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return tuple(tokens)

    def _sample(self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> list[list[int]]:
        """Tokens of the responses, in batches of similar prompt length."""
        answers: list[list[int]] = [[] for _ in prompts]
        room = [min(self._config.max_tokens, self._context - len(prompt)) for prompt in prompts]
        asked = sorted((i for i in range(len(prompts)) if room[i] >= 1), key=lambda index: len(prompts[index]))
        for batch in batched(asked, self._config.batch_size):
            rows = [Row(prompts[i], room[i], self._config.temperature, NO_NUCLEUS, seeds[i]) for i in batch]

            def finished(place: int, tokens: list[int], end_token: int | None, batch: list[int] = batch) -> None:
                answers[batch[place]] = tokens if end_token is None else [*tokens, end_token]

            sample_batch(self._policy, rows, self._end_tokens, finished)
        return answers

    def _compare(self, rows: Sequence[Scored]) -> tuple[list[float], list[float]]:
        """``log_ratio`` and ``kl`` of each row; 0 of an empty response."""
        log_ratios, kls = [0.0] * len(rows), [0.0] * len(rows)
        answered = [index for index, (_, answer) in enumerate(rows) if answer]
        chosen = [rows[index] for index in answered]
        for batch in scoring_batches(chosen, self._policy.device.type, self._policy.config.vocab_size):
            compared = self._compare_batch([chosen[place] for place in batch])
            for place, (log_ratio, kl) in zip(batch, compared, strict=True):
                log_ratios[answered[place]], kls[answered[place]] = log_ratio, kl
        return log_ratios, kls

    def _compare_batch(self, rows: Sequence[Scored]) -> list[tuple[float, float]]:
        ours, theirs = (
            response_log_probs(network, rows, self._config.temperature) for network in (self._policy, self._reference)
        )
        longest = ours.shape[1]
        padded = [[*answer, *[0] * (longest - len(answer))] for _, answer in rows]
        lengths = torch.tensor([len(answer) for _, answer in rows], device=ours.device)
        written = torch.arange(longest, device=ours.device) < lengths[:, None]
        difference = ours - theirs
        drawn = difference.gather(-1, torch.tensor(padded, device=ours.device)[..., None])[..., 0]
        kl = (ours.exp() * difference).sum(-1)
        sums = [(values * written).sum(-1, dtype=torch.float64).tolist() for values in (drawn, kl)]
        return list(zip(*sums, strict=True))
