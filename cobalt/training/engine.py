"""veRL's FSDP engine, with exact rotary frequencies, a reference that stays on its GPU, and shared beginnings.

The rows of a mini-batch form trees by how their prompts begin (``shared_prompts``). Every token of a tree goes through
the model once (``shared_attention``), and only response tokens are scored (``token_scores``). Log-probabilities,
entropies and gradients are veRL's up to rounding; loss and optimizer are veRL's own.
"""

import os
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.utils import postprocess_batch_func
from verl.workers.utils.padding import response_from_nested

from cobalt.training.config import OWN_OLD, PLAIN_ENGINE, SHARED_ENGINE, WEIGHTS_VARIABLE
from cobalt.training.reshard import load_other_ranks
from cobalt.training.resume import saved_ranks
from cobalt.training.settings import RELEASE
from cobalt.training.shared_prompts import SHARED, Rows, lay_out, micro_batches, prepare, rows_by_prefix, score_tokens

FSDPEngineWithLMHead: Any = transformer_impl.FSDPEngineWithLMHead

# With torch 2.11 on H100 and H200 cuDNN's attention has gradients of NaN if a mask is given and the length is 64 more
# than a multiple of 128 (pytorch issue 196678). torch's other kernels have not.
torch.backends.cuda.enable_cudnn_sdp(False)


def rows_of(data: Any) -> Rows:
    """``Rows`` of jagged ``prompts`` and ``responses``. Data with the column ``SHARED`` are in order already."""
    prompts, responses = data["prompts"], data["responses"].offsets().diff().tolist()
    if SHARED not in data:
        return rows_by_prefix([prompt.cpu() for prompt in prompts.unbind()], responses)
    lengths, shared = prompts.offsets().diff().tolist(), data[SHARED].tolist()
    return Rows(tuple(range(len(shared))), tuple(lengths), tuple(responses), tuple(shared))


@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=["cuda", "cpu"], vendor=PLAIN_ENGINE)
class CobaltEngine(FSDPEngineWithLMHead):
    """veRL's, whose cast of a model to bf16 takes the rotary frequencies along, which must stay in fp32.

    That is the reference. A frequency would keep 8 of its 24 bits, and the angle at position p be wrong by up to
    p / 512 radians per radian: another model from a few hundred tokens on. With equal random weights of 36 layers
    ``kl_loss`` (mse) was 0.37 at 4,000 tokens, and 0.002 with frequencies in fp32 (measured on veRL 0.5.0).
    """

    def _build_module(self) -> Any:
        module = super()._build_module()
        restore_frequencies(module)
        return module

    def _build_fsdp_module(self, module: Any) -> Any:
        """veRL's. It keeps a reference in the host's memory, whatever its ``param_offload`` says. Here it is obeyed.

        Each pass would fetch all weights for each micro-batch, and the first one pins them: 20 s at 1.5B.
        """
        config = self.engine_config
        is_reference = config.forward_only
        config.forward_only = is_reference and config.param_offload and get_device_name() != "cpu"
        try:
            return super()._build_fsdp_module(module)
        finally:
            config.forward_only = is_reference

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """veRL's, which also loads what another number of ranks has saved."""
        if saved_ranks(Path(local_path))[0] != torch.distributed.get_world_size():
            parts = self.module, self.optimizer, self.lr_scheduler
            self.checkpoint_manager.load_checkpoint = lambda local_path, **_: load_other_ranks(Path(local_path), *parts)
        super().load_checkpoint(local_path, *args, **kwargs)


def restore_frequencies(model: torch.nn.Module) -> None:
    """Give each rotary embedding the frequencies that it is made with."""
    module: Any
    for module in model.modules():
        for name in {"inv_freq", "original_inv_freq"} & module._buffers.keys():
            exact = getattr(type(module)(module.config), name)
            setattr(module, name, exact.to(getattr(module, name).device))


PlainEngine: Any = CobaltEngine  # what veRL's decorator gives has lost its type


@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=["cuda", "cpu"], vendor=SHARED_ENGINE)
class SharedPromptEngine(PlainEngine):
    """Computes shared beginnings once. Needs micro-batches by tokens (``use_dynamic_bsz``), no sequence parallelism."""

    def _build_module(self) -> Any:
        module = super()._build_module()
        if get_device_name() != "cpu":  # the kernels of shared attention are a GPU's
            prepare(module, self.use_ulysses_sp or self.model_config.use_fused_kernels)
        self._head = module.get_output_embeddings()
        return module

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        """veRL's, on micro-batches of whole trees with at most ``max_token_len_per_gpu`` tokens."""
        group = self.get_data_parallel_group()
        tokens = data["loss_mask"].sum().to(get_device_id())
        torch.distributed.all_reduce(tokens, group=group)
        tu.assign_non_tensor(data, sp_size=1, batch_num_tokens=tokens.item(), dp_size=self.get_data_parallel_size())
        rows = rows_of(data)
        most: Any = tu.get_non_tensor_data(data, "max_token_len_per_gpu", None)
        count = torch.tensor(len(micro_batches(rows, most)), device=get_device_id())
        torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=group)
        parts = micro_batches(rows, most, at_least=int(count))
        if not forward_only and os.environ[WEIGHTS_VARIABLE] == RELEASE:
            data["row_weights"] = self._release_weights(data["loss_mask"], data)
        outputs = []
        for number, part in enumerate(parts):
            micro_batch = tu.index_select_tensor_dict(data, list(part.rows))
            micro_batch[SHARED] = torch.tensor(part.shared)
            context: Any = nullcontext()
            if not forward_only:
                context = self._gradient_sync_context(is_last_micro_batch=number == len(parts) - 1)
            with torch.no_grad() if forward_only else nullcontext(), context:
                loss, output = self.forward_step(micro_batch, loss_function, forward_only)
                if not forward_only:
                    (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # a scaler: with fp16
                    output.pop("model_output")
            outputs.append(output)
        return postprocess_batch_func(output_lst=outputs, indices=[list(part.rows) for part in parts], data=data)

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """Loss, and what veRL makes of a micro-batch: jagged ``log_probs`` and ``entropy``, 0 outside of responses."""
        micro_batch = micro_batch.to(get_device_id())
        with_entropy = tu.get_non_tensor_data(micro_batch, "calculate_entropy", False)
        input_ids = micro_batch["input_ids"]
        cells = [torch.arange(*row) for row in pairwise(input_ids.offsets().tolist())]
        layout = lay_out(rows_of(micro_batch), cells.__getitem__, input_ids.device)
        ids, positions = input_ids.values(), micro_batch["position_ids"].values()
        temperature = micro_batch["temperature"]
        temperature = float(temperature.flatten()[0] if isinstance(temperature, Tensor) else temperature)
        settings = temperature, with_entropy, self.engine_config.use_torch_compile
        with torch.autocast(get_device_name(), self._autocast_dtype):
            log_probs_R, entropies_R = score_tokens(self.module, self._head, layout, ids, positions, *settings)
            spread, scores = {}, {"log_probs": log_probs_R} | ({"entropy": entropies_R} if with_entropy else {})
            for name, values_R in scores.items():
                # veRL has the value of a token at its predecessor's place
                flat = values_R.new_zeros(len(ids)).index_put((layout.cells_R - 1,), values_R)
                if "row_weights" in micro_batch:  # the value stays, its gradient is as many times as large
                    weights = torch.repeat_interleave(micro_batch["row_weights"], input_ids.offsets().diff())
                    flat = flat.detach() + (flat - flat.detach()) * weights
                spread[name] = torch.nested.nested_tensor_from_jagged(flat, input_ids.offsets())
            loss, metrics = torch.tensor(1.0), {}
            if tu.get_non_tensor_data(micro_batch, OWN_OLD, False):
                own = response_from_nested(spread["log_probs"].detach(), micro_batch["response_mask"])
                micro_batch["old_log_probs"] = own
            if loss_function is not None:
                group = self.get_data_parallel_group()
                loss, metrics = loss_function(model_output=spread, data=micro_batch, dp_group=group)
        outputs = {name: values.detach() for name, values in spread.items()}
        return loss, {"model_output": outputs, "loss": loss.detach().item(), "metrics": metrics}

    def _release_weights(self, loss_mask: Any, data: Any) -> Tensor:
        """(B,) weights of rows' tokens, so that each ``ppo_micro_batch_size_per_gpu`` rows count the same.

        They take the place of veRL's, by which all tokens count the same. Rows with which veRL fills up a batch have no
        tokens, and do not count. Losses among the metrics are means over tokens all the same.
        """
        rows = tu.get_non_tensor_data(data, "micro_batch_size_per_gpu", None)
        tokens_B = torch.stack([mask.sum() for mask in loss_mask.unbind()]).float()
        counts_B, weights_B = tokens_B > 0, torch.zeros_like(tokens_B)
        chunks = tokens_B[counts_B].split(rows)
        total = torch.stack([chunk.any() for chunk in chunks]).sum().to(get_device_id())
        torch.distributed.all_reduce(total, group=self.get_data_parallel_group())
        tokens: Any = tu.get_non_tensor_data(data, "batch_num_tokens", None)
        weights = [(tokens / (chunk.sum() * total.item())).expand(len(chunk)) for chunk in chunks]
        weights_B[counts_B] = torch.cat(weights)
        return weights_B
