"""``HFRollout`` of veRL 0.5.0, made right and faster.

Right: veRL has repeated each prompt ``rollout.n`` times when ``HFRollout`` samples it n times again: here once. It
also hands its ``position_ids`` to ``generate``, which transformers 4.57 then never advances, so that all new tokens
are sampled at one position: here they are left to ``generate``, which derives the same ones from the attention mask.

Faster: micro-batches of prompts of similar length, without the padding that all rows share; each distinct prompt is
read once, not once per sample; the cache of keys and values has its final size from the start.
"""

import copy
import functools
import os
from typing import Any

from cobalt.training.backends import SEED_VARIABLE


def patch(module: Any) -> None:
    """Replace constructor and batching of ``verl.workers.rollout.hf_rollout.HFRollout``. Sampling is seeded."""
    import torch

    rollout = module.HFRollout
    init, generate_minibatch = rollout.__init__, rollout._generate_minibatch

    def init_once(self: Any, module: Any, config: Any) -> None:
        config = copy.deepcopy(config)
        config.n = 1
        init(self, module, config)
        module.generate = functools.partial(generate_from_shared_prompts, module.generate)
        torch.manual_seed(int(os.environ.get(SEED_VARIABLE, "0")) + int(os.environ.get("RANK", "0")))

    def generate_by_length(self: Any, prompts: Any) -> Any:
        order = torch.argsort(prompts.batch["attention_mask"].sum(-1), stable=True).cpu()
        size = self.config.get("micro_batch_size", len(prompts))
        outputs = [_generate_trimmed(self, generate_minibatch, prompts[rows.numpy()]) for rows in order.split(size)]
        output = module.DataProto.concat(outputs)
        output.reorder(torch.argsort(order))
        return output

    rollout.__init__ = init_once
    rollout.generate_sequences = generate_by_length


def _generate_trimmed(rollout: Any, generate_minibatch: Any, prompts: Any) -> Any:
    """Generate without the left padding that all rows share, and put it back."""
    from torch.nn.functional import pad

    width = prompts.batch["input_ids"].shape[1]
    padding = width - int(prompts.batch["attention_mask"].sum(-1).max())
    for name in ("input_ids", "attention_mask", "position_ids"):
        prompts.batch[name] = prompts.batch[name][:, padding:]
    output = generate_minibatch(rollout, prompts)
    pad_id = prompts.meta_info["pad_token_id"]
    for name, value in {"attention_mask": 0, "position_ids": 0, "prompts": pad_id, "input_ids": pad_id}.items():
        output.batch[name] = pad(output.batch[name], (padding, 0), value=value)
    return output


def generate_from_shared_prompts(
    generate: Any, input_ids: Any, attention_mask: Any, position_ids: Any = None, **kwargs: Any
) -> Any:
    """``generate`` of a transformers model for left-padded ``input_ids`` (B, P), with the prompts already read.

    In the weights' own precision: under veRL's autocast keys and values have different types on CUDA, and one cache
    cannot hold both.
    """
    import torch

    with torch.autocast(input_ids.device.type, enabled=False):
        cache = read_prompts(generate.__self__, input_ids, attention_mask, kwargs["max_new_tokens"])
        return generate(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, disable_compile=True, **kwargs
        )


def read_prompts(model: Any, input_ids: Any, attention_mask: Any, max_new_tokens: int) -> Any:
    """Keys and values of all prompt tokens but the last, which ``generate`` reads itself; equal rows computed once."""
    import torch
    from transformers import DynamicCache, StaticCache

    rows, source = torch.unique(torch.cat([input_ids, attention_mask], dim=1), dim=0, return_inverse=True)
    ids, mask = rows.chunk(2, dim=1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    read: Any = DynamicCache()
    model(
        ids[:, :-1], attention_mask=mask[:, :-1], position_ids=positions[:, :-1], past_key_values=read, logits_to_keep=1
    )
    length = ids.shape[1] - 1
    cache = StaticCache(config=model.config, max_cache_len=length + 1 + max_new_tokens)
    place = {"cache_position": torch.arange(length, device=ids.device)}
    for index, layer in enumerate(read.layers):
        cache.update(layer.keys[source], layer.values[source], index, place)
    return cache
