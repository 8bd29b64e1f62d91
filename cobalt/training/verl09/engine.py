"""veRL 0.9.1's FSDP engine, with each prompt computed once.

The rows of a mini-batch that answer one prompt form a group. Every token of prompt and responses goes through the
model once (``shared_attention``), and only response tokens are scored (``token_scores``). Log-probabilities,
entropies and gradients are veRL's up to rounding; loss and optimizer are veRL's own.
"""

import os
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name
from verl.utils.metric import Metric
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func

from cobalt.training.settings import RELEASE
from cobalt.training.shared_attention import SharedPrompts, attention_kept, extend_attention, spans
from cobalt.training.shared_prompts import Group, micro_batches, scoring
from cobalt.training.verl09.config import ENGINE_VENDOR, WEIGHTS_VARIABLE


def groups_of(data: Any) -> list[Group]:
    """The rows of jagged ``prompts`` and ``responses`` by equal prompts."""
    rows_of: dict[bytes, list[int]] = {}
    prompts = [prompt.cpu() for prompt in data["prompts"].unbind()]
    for row, prompt in enumerate(prompts):
        rows_of.setdefault(prompt.numpy().tobytes(), []).append(row)
    lengths = data["responses"].offsets().diff().tolist()
    return [Group(tuple(rows), len(prompts[rows[0]]), tuple(lengths[row] for row in rows)) for rows in rows_of.values()]


@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=["cuda", "cpu"], vendor=ENGINE_VENDOR)
class SharedPromptEngine(FSDPEngineWithLMHead):
    """See the module. Needs micro-batches by tokens (``use_dynamic_bsz``) and no sequence parallelism."""

    def _build_module(self) -> Any:
        if self.use_ulysses_sp or self.model_config.use_fused_kernels:
            raise NotImplementedError("cobalt.share_prompts excludes use_fused_kernels and sequence parallelism")
        module = super()._build_module()
        extend_attention(module.config)
        for part in module.modules():  # where layers are computed again for their gradients, attention is not
            if getattr(part, "gradient_checkpointing", False):
                part._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=attention_kept)
        self._head = module.get_output_embeddings()
        return module

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        """veRL's, on micro-batches of whole groups with at most ``max_token_len_per_gpu`` shared tokens."""
        group = self.get_data_parallel_group()
        tokens = data["loss_mask"].sum().to(get_device_id())
        torch.distributed.all_reduce(tokens, group=group)
        tu.assign_non_tensor(data, sp_size=1, batch_num_tokens=tokens.item(), dp_size=self.get_data_parallel_size())
        groups, most = groups_of(data), tu.get_non_tensor_data(data, "max_token_len_per_gpu", None)
        count = torch.tensor(len(micro_batches(groups, most)), device=get_device_id())
        torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=group)
        rows = micro_batches(groups, most, at_least=int(count))
        if not forward_only and os.environ[WEIGHTS_VARIABLE] == RELEASE:
            data["token_shares"] = self._release_shares(data["loss_mask"], data)
        outputs = []
        for number, chosen in enumerate(rows):
            context: Any = nullcontext()
            if not forward_only:
                context = self._gradient_sync_context(is_last_micro_batch=number == len(rows) - 1)
            with torch.no_grad() if forward_only else nullcontext(), context:
                loss, output = self.forward_step(tu.index_select_tensor_dict(data, chosen), loss_function, forward_only)
                if not forward_only:
                    loss.backward()
                    output.pop("model_output")
            outputs.append(output)
        return postprocess_batch_func(output_lst=outputs, indices=rows, data=data)

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """Loss, and what veRL makes of a micro-batch: jagged ``log_probs`` and ``entropy``, 0 outside of responses."""
        micro_batch = micro_batch.to(get_device_id())
        with_entropy = tu.get_non_tensor_data(micro_batch, "calculate_entropy", False)
        layout = Layout(micro_batch)
        input_ids, positions = micro_batch["input_ids"], micro_batch["position_ids"]
        settings = layout.targets_R, _temperature(micro_batch), with_entropy, self.engine_config.use_torch_compile
        with torch.autocast(get_device_name(), self._autocast_dtype), scoring(self._head, *settings):
            output = self.module(
                input_ids=input_ids.values()[layout.cells_L][None],
                position_ids=positions.values()[layout.cells_L][None],
                attention_mask=input_ids.values().new_ones(1, 1, 1, 1),  # else transformers makes a mask
                use_cache=False,
                logits_to_keep=layout.predictors_R,
                shared_prompts=layout.shared,
            )
            log_probs_R, entropies_R = output.logits[0].unbind(-1)
            found = {"log_probs": log_probs_R, **({"entropy": entropies_R} if with_entropy else {})}
            spread = {name: layout.spread(values, input_ids) for name, values in found.items()}
            loss, metrics = torch.tensor(1.0), {}
            if loss_function is not None:
                loss, metrics = self._loss(loss_function, spread, micro_batch)
        outputs = {name: values.detach() for name, values in spread.items()}
        return loss, {"model_output": outputs, "loss": loss.detach().item(), "metrics": metrics}

    def _release_shares(self, loss_mask: Any, data: Any) -> Tensor:
        """(B,) what a row's tokens are divided by so that each ``ppo_micro_batch_size_per_gpu`` rows count the same."""
        rows = tu.get_non_tensor_data(data, "micro_batch_size_per_gpu", None)
        tokens_B = torch.stack([mask.sum() for mask in loss_mask.unbind()]).float()
        chunks = tokens_B.split(rows)
        total = len(chunks) * self.get_data_parallel_size()
        return torch.cat([chunk.sum().clamp(min=1).expand(len(chunk)) * total for chunk in chunks])

    def _loss(self, loss_function: Any, outputs: dict[str, Tensor], micro_batch: Any) -> Any:
        """veRL's loss. With ``token_shares`` it is the sum over rows, each by its own divisor."""
        group = self.get_data_parallel_group()
        if "token_shares" not in micro_batch:
            return loss_function(model_output=outputs, data=micro_batch, dp_group=group)
        total, metrics = torch.tensor(0.0), {}
        for row, share in enumerate(micro_batch["token_shares"].tolist()):
            data = tu.index_select_tensor_dict(micro_batch, [row])
            tu.assign_non_tensor(data, batch_num_tokens=share)
            of_row = {
                name: torch.nested.as_nested_tensor([values.unbind()[row]], layout=torch.jagged)
                for name, values in outputs.items()
            }
            loss, found = loss_function(model_output=of_row, data=data, dp_group=group)
            total = total + loss
            for name, value in found.items():
                if isinstance(metrics.get(name), Metric):
                    metrics[name].extend(value)
                else:
                    metrics[name] = value
        return total, metrics


class Layout:
    """Where the tokens of a micro-batch go: all prompts, then all responses. Worked out on the host, then moved."""

    def __init__(self, micro_batch: Any):
        """``micro_batch``: jagged ``prompts``, ``responses`` and ``input_ids``, which is both."""
        device = micro_batch["input_ids"].values().device
        groups = groups_of(micro_batch)
        starts = micro_batch["input_ids"].offsets().tolist()
        tokens = sum(group.prompt for group in groups)
        prompts, responses, predictors, places = [], [], [], []
        end_of_prompt = 0
        for group in groups:
            prompts.append(torch.arange(group.prompt) + starts[group.rows[0]])
            end_of_prompt += group.prompt
            for row, length in zip(group.rows, group.responses, strict=True):
                first = starts[row] + group.prompt
                responses.append(torch.arange(first, first + length))
                # a response's first token is predicted by the last of its prompt, the others by those before them
                before = torch.arange(tokens - 1, tokens + length - 1)
                before[:1] = end_of_prompt - 1
                predictors.append(before)
                places.append(torch.arange(first - 1, first + length - 1))
                tokens += length
        self.cells_L = torch.cat([*prompts, *responses]).to(device)
        self.predictors_R = torch.cat(predictors).to(device)
        self.places_R = torch.cat(places).to(device)
        self.targets_R = micro_batch["input_ids"].values()[torch.cat(responses).to(device)]
        lengths = [group.prompt for group in groups], [length for group in groups for length in group.responses]
        self.shared = SharedPrompts(
            sum(lengths[0]),
            alone=spans([*lengths[0], *lengths[1]], [*lengths[0], *lengths[1]], device),
            across=spans([sum(group.responses) for group in groups], lengths[0], device),
        )

    def spread(self, values_R: Tensor, input_ids: Tensor) -> Tensor:
        """Jagged like ``input_ids``: the value of a token at its predecessor's place, as veRL has it."""
        flat = values_R.new_zeros(input_ids.values().shape[0]).index_put((self.places_R,), values_R)
        return torch.nested.nested_tensor_from_jagged(flat, input_ids.offsets())


def _temperature(micro_batch: Any) -> float:
    found = micro_batch["temperature"]
    return float(found.flatten()[0]) if isinstance(found, Tensor) else float(found)
