"""Rows of veRL's batches: which of them answer the same prompt, and values of tokens back at their places."""

from collections.abc import Mapping

from torch import Tensor

from cobalt.training.patches.shared_batches import Group


def groups_of(batch: Mapping[str, Tensor]) -> list[Group]:
    """Rows with equal prompts, in order of appearance.

    ``batch`` has ``input_ids`` and ``attention_mask`` (B, prompt + response), ``responses`` (B, response).
    """
    width = batch["responses"].shape[1]
    valid = batch["attention_mask"].bool().cpu()
    prompt_ids, prompt_valid = batch["input_ids"].cpu()[:, :-width], valid[:, :-width]
    rows: dict[bytes, list[int]] = {}
    for row, (ids, keep) in enumerate(zip(prompt_ids, prompt_valid, strict=True)):
        rows.setdefault(ids[keep].numpy().tobytes(), []).append(row)
    prompts, responses = prompt_valid.sum(1).tolist(), valid[:, -width:].sum(1).tolist()
    return [Group(tuple(group), prompts[group[0]], tuple(responses[row] for row in group)) for group in rows.values()]


def spread(values_R: Tensor, targets_R: Tensor, responses: Tensor) -> Tensor:
    """Values of response tokens at their places in (B, response), 0 elsewhere."""
    return values_R.new_zeros(responses.numel()).index_put((targets_R,), values_R).view(responses.shape)
