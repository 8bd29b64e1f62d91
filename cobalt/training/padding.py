"""Forward passes of veRL's actor without the padding that a whole micro-batch shares.

veRL pads prompts to ``max_prompt_length`` and responses to ``max_response_length`` and, without flash-attn, computes
all of it. Columns that are padding in every row carry no gradient and no log-probability: they are cut off before the
forward pass and the outputs padded with 0, which veRL masks.
"""

from types import ModuleType
from typing import Any


def patch(module: ModuleType) -> None:
    """Wrap ``DataParallelPPOActor._forward_micro_batch`` of ``verl.workers.actor.dp_actor``."""
    from torch.nn.functional import pad

    actor = module.DataParallelPPOActor
    forward = actor._forward_micro_batch

    def forward_trimmed(self: Any, micro_batch: Any, *args: Any, **kwargs: Any) -> Any:
        if self.use_remove_padding:
            return forward(self, micro_batch, *args, **kwargs)
        trimmed, cut = trim(micro_batch)
        outputs = forward(self, trimmed, *args, **kwargs)
        return tuple(None if out is None else pad(out, (0, cut)) for out in outputs)

    actor._forward_micro_batch = forward_trimmed


def trim(micro_batch: Any) -> tuple[dict[str, Any], int]:
    """The micro-batch without shared padding, and how many response columns (at the end) were cut."""
    used = micro_batch["attention_mask"].any(0).nonzero()
    width, response_width = micro_batch["attention_mask"].shape[1], micro_batch["responses"].shape[1]
    first = min(int(used.min()), width - response_width - 1)
    cut = min(width - 1 - int(used.max()), response_width - 1)
    columns = slice(first, width - cut)
    trimmed = {name: micro_batch[name][:, columns] for name in ("input_ids", "attention_mask", "position_ids")}
    trimmed["responses"] = micro_batch["responses"][:, : response_width - cut]
    return {**micro_batch, **trimmed}, cut
