"""``HFRollout`` of veRL 0.5.0, made right and faster.

Right: veRL repeats each prompt ``rollout.n`` times and ``HFRollout`` samples each of them n times again; here once.
Faster: prompts are generated in micro-batches of similar length, each without the padding that all its rows share.
Sampling is seeded, so that a run can be repeated.
"""

import copy
import os
from types import ModuleType
from typing import Any

from cobalt.training.backends import SEED_VARIABLE


def patch(module: ModuleType) -> None:
    """Replace the constructor and the batching of ``verl.workers.rollout.hf_rollout.HFRollout``."""
    import torch

    rollout = module.HFRollout
    init, generate = rollout.__init__, rollout._generate_minibatch

    def init_once(self: Any, module: Any, config: Any) -> None:
        config = copy.deepcopy(config)
        config.n = 1
        init(self, module, config)
        torch.manual_seed(int(os.environ.get(SEED_VARIABLE, "0")) + int(os.environ.get("RANK", "0")))

    def generate_by_length(self: Any, prompts: Any) -> Any:
        lengths = prompts.batch["attention_mask"].sum(-1)
        order = torch.argsort(lengths, stable=True)
        size = self.config.get("micro_batch_size", len(prompts))
        outputs = [_trimmed(self, generate, prompts[rows.numpy()]) for rows in order.cpu().split(size)]
        output = module.DataProto.concat(outputs)
        output.reorder(torch.argsort(order).cpu())
        return output

    rollout.__init__ = init_once
    rollout.generate_sequences = generate_by_length


def _trimmed(rollout: Any, generate: Any, prompts: Any) -> Any:
    """Generate without the left padding that all rows share, and put it back."""
    from torch.nn.functional import pad

    width = prompts.batch["input_ids"].shape[1]
    padding = width - int(prompts.batch["attention_mask"].sum(-1).max())
    for name in ("input_ids", "attention_mask", "position_ids"):
        prompts.batch[name] = prompts.batch[name][:, padding:]
    output = generate(rollout, prompts)
    pad_id = prompts.meta_info["pad_token_id"]
    for name, value in {"attention_mask": 0, "position_ids": 0, "prompts": pad_id, "input_ids": pad_id}.items():
        output.batch[name] = pad(output.batch[name], (padding, 0), value=value)
    return output
