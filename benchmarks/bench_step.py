"""The training phases of a step, timed: veRL's own passes with the release's settings, and each prompt computed once.

    python -m benchmarks.bench_step --shape 8b --layers 8 --lengths 4096x2048 10240x2048
    torchrun --nproc_per_node 2 benchmarks/bench_step.py --shape 8b --lengths 4096x4096
    python -m benchmarks.bench_step --shape 4b --lengths 1024x1024 --turns 4 --online

Drives veRL's own workers (``ActorRolloutRefWorker``: FSDP, gradient checkpointing, the configuration of
``verl/config``) with random weights of a Qwen3 shape and responses of a forced length: old log-probabilities and
entropies (``compute_log_prob``), the reference's (``compute_log_prob``) and one mini-batch of the update
(``update_policy``, at a learning rate of 0, so that every round computes the same). Offloading between phases, rollouts
and rewards are left out. After one round to warm up, the paths take turns within each phase; medians are shown.

verl      veRL's own, micro-batches of 2 rows, 16 for log-probabilities
shared    each prompt once, Liger's kernels, micro-batches of up to ``max_tokens`` shared tokens
tree      the same, and once what prompts have in common; with ``--turns``

Tokens/s per GPU count every token of every row, for each path alike. MFU is FLOPs that the phase needs, the same for
each path, over time and the peak (989 TFLOP/s: dense bf16 of an H100 or H200). A forward pass over a prompt of P tokens
and n responses of R needs 2·W·(P + n·R) for the W weights of the layers' matrices, 4·L·H·D·(P² / 2 + n·R·(P + R / 2))
for the attention of L layers with H heads of D channels, and 2·V·C·n·R for the output layer (V words, C channels); the
update needs three times as much (recomputation is not counted). With turns, what prompts have in common counts once.
``MFU, veRL's`` is what veRL logs as
``perf/mfu/actor``: every row whole, the embedding counted as a matrix product, attention without the causal half.

On a CPU it runs the shape ``tiny`` in fp32, and veRL's own path is the padded one: a check that it works.
"""

import contextlib
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from benchmarks.harness import ROOT, interleaved
from cobalt.cli.entry import run
from cobalt.cli.flags import Positive
from cobalt.errors import InputError, SetupError
from cobalt.serving.ports import free_port
from cobalt.tables import markdown_table
from cobalt.training.cost_model import PEAK_FLOPS, SHAPES, Shape, forward_flops
from cobalt.training.preflight import refuse_missing_cross_entropy, refuse_missing_liger
from cobalt.training.settings import CPU_BACKEND, TrainingConfig

GB = 1024**3
TEMPERATURE = 1.0
POLICY = "actor_rollout_ref"
PHASES = ("old log-probs", "reference", "update")
TINY = Shape(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, vocab_size=1024, tie_word_embeddings=False, max_position_embeddings=1024,
)  # fmt: skip
PATHS = ("verl", "shared", "tree")


@dataclass(frozen=True)
class BenchConfig:
    """Seconds, tokens/s, MFU and peak memory of a step's training phases, for veRL's own passes and shared prompts."""

    shape: Literal["0.6b", "1.7b", "4b", "8b", "tiny"] = "8b"
    """Which Qwen3."""
    layers: int | None = None
    """Fewer layers than the shape has."""
    lengths: tuple[str, ...] = ("4096x2048",)
    """Tokens of a prompt and of each response, as in 4096x2048. Each GPU has one prompt."""
    samples: Positive = 16
    """Responses to a prompt (n)."""
    turns: Positive = 1
    """So many contexts of a trajectory, which begins with the prompt and grows by as many tokens in each turn."""
    online: bool = False
    """With turns: n trajectories of one problem with a response in each turn, not n responses to each context."""
    max_tokens: int = 53248
    """Of a micro-batch with shared prompts."""
    rounds: int = 3
    output_file: Path | None = None
    """All figures, as JSON."""


def main(config: BenchConfig) -> None:
    """Measure and print."""
    lengths = []
    for text in config.lengths:
        if not (found := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)):
            raise InputError(f"--lengths {text}: tokens of a prompt and of a response are wanted, such as 4096x2048")
        lengths.append((int(found[1]), int(found[2])))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        refuse_missing_cross_entropy(is_papers=True)
        refuse_missing_liger()
    elif config.shape != "tiny":
        raise SetupError(f"--shape {config.shape} needs a GPU; without one there is --shape tiny")
    # what torchrun would have set, for a single process
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", **address}.items():
        os.environ.setdefault(name, value)
    bench = Bench(config)
    results = []
    for prompt, response in lengths:
        results.append(bench.measure(prompt, response))
        if torch.distributed.get_rank() == 0:
            show(results[-1])
            if config.output_file:
                config.output_file.write_text(json.dumps(results, indent=1))
    torch.distributed.destroy_process_group()


class Bench:
    """veRL's actor and reference with random weights, and the ways of using them."""

    def __init__(self, config: BenchConfig):
        from hydra import compose, initialize_config_module
        from omegaconf import open_dict
        from verl.workers.actor import dp_actor

        from cobalt.training.shared_prompts import common_tokens
        from cobalt.training.workers import CobaltWorker

        self._common_tokens = common_tokens
        self.config, self.on_gpu = config, torch.cuda.is_available()
        self._module, self._own_batches = dp_actor, dp_actor.prepare_dynamic_batch
        shape = TINY if config.shape == "tiny" else SHAPES[f"qwen3-{config.shape}"]
        shape = replace(shape, num_hidden_layers=config.layers or shape.num_hidden_layers)
        self.model_config = Qwen3Config(**asdict(shape), rope_theta=1e6, architectures=["Qwen3ForCausalLM"])
        with tempfile.TemporaryDirectory() as folder, random_weights():
            self.model_config.save_pretrained(folder)
            AutoTokenizer.from_pretrained(ROOT / "assets/minicoder").save_pretrained(folder)  # veRL wants to see one
            # actor_rollout_ref of the release's recipe; the update is one mini-batch that changes nothing
            overrides = [
                f"hydra.searchpath=[file://{ROOT / 'verl/config'}]",
                "+recipe=multi_turn",
                f"+preset={'paper-qwen3' if self.on_gpu else 'cpu'}",
                f"{POLICY}.model.path={folder}",
                f"{POLICY}.rollout.n={config.samples}",
                f"{POLICY}.actor.ppo_mini_batch_size={int(os.environ['WORLD_SIZE']) * config.turns}",
                f"{POLICY}.actor.ppo_max_token_len_per_gpu={config.max_tokens}",
                f"{POLICY}.actor.optim.lr=0",
                f"{POLICY}.model.use_liger=false",
                f"{POLICY}.actor.fsdp_config.param_offload=false",
                f"{POLICY}.actor.fsdp_config.optimizer_offload=false",
            ]
            if not self.on_gpu:
                overrides.append(f"{POLICY}.actor.ppo_micro_batch_size_per_gpu=2")
            with initialize_config_module("verl.trainer.config", version_base=None):
                self._settings = compose("ppo_trainer", overrides).actor_rollout_ref
            own = TrainingConfig(backend="verl" if self.on_gpu else CPU_BACKEND, share_prompts=True)
            with open_dict(self._settings):
                self._settings.cobalt = asdict(own)
            actor, reference = (CobaltWorker(self._settings, role=role) for role in ("actor", "ref"))
            actor.init_model()
            reference.init_model()
        self.actor, self.reference = actor.actor, reference.ref_policy

    def measure(self, prompt: int, response: int) -> dict[str, Any]:
        """All figures for one pair of lengths."""
        from tensordict import TensorDict
        from verl import DataProto
        from verl.utils.flops_counter import FlopsCounter

        # a batch as the trainer hands it to the workers, with random tokens and advantages; prompts padded on the left
        turns, samples, device = self.config.turns, self.config.samples, "cuda" if self.on_gpu else "cpu"
        rows, longest, words = samples * turns, prompt * turns, self.model_config.vocab_size
        generator = torch.Generator().manual_seed(torch.distributed.get_rank())
        trajectories = torch.randint(words, (samples if self.config.online else 1, longest), generator=generator)
        trajectories[:, :prompt] = trajectories[0, :prompt]
        responses = torch.randint(words, (rows, response), generator=generator)
        mask = torch.ones(rows, longest + response, dtype=torch.long)
        contexts = torch.zeros(rows, longest, dtype=torch.long)
        for row in range(rows):
            length = prompt * (row // samples + 1)
            contexts[row, longest - length :] = trajectories[row % len(trajectories), :length]
            mask[row, : longest - length] = 0
        batch = {
            "input_ids": torch.cat([contexts, responses], 1),
            "responses": responses,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
            "response_mask": mask[:, longest:],
            "advantages": torch.randn(rows, 1, generator=generator).expand(rows, response).contiguous(),
        }
        lengths, paths = mask.sum(1).tolist(), PATHS if turns > 1 else PATHS[:2]
        tensors = TensorDict(batch, batch_size=rows).to(device)
        data = DataProto(batch=tensors, meta_info={"temperature": TEMPERATURE})

        outputs: dict[Any, Any] = {}

        def take(phase: str, path: str) -> dict[str, float]:
            """Seconds, and the most memory allocated meanwhile."""
            with self._path(path):
                if self.on_gpu:
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                self._wait()
                start = time.perf_counter()
                outputs[phase, path] = self._compute(phase, data)
                self._wait()
                seconds = time.perf_counter() - start
            if path == paths[-1] and phase != "update":  # each path is handed the first one's
                data.batch["old_log_probs" if phase == PHASES[0] else "ref_log_prob"] = outputs[phase, PATHS[0]][0]
            return {"seconds": seconds, "gb": torch.cuda.max_memory_allocated() / GB if self.on_gpu else 0.0}

        contenders = {(phase, path): partial(take, phase, path) for phase in PHASES for path in paths}
        taken_of = interleaved(contenders, self.config.rounds)
        medians = {key: statistics.median(one["seconds"] for one in taken) for key, taken in taken_of.items()}
        memory = {key: max(one["gb"] for one in taken) for key, taken in taken_of.items()}

        phases = []
        estimate = FlopsCounter(self.model_config).estimate_func[self.model_config.model_type]
        for (phase, path), seconds in medians.items():
            forwards = 3 if phase == "update" else 1
            needed = forwards * self._needed_flops(prompt, response)
            counted = estimate(sum(lengths), lengths, seconds)
            phases.append(
                {
                    "phase": phase,
                    "path": path,
                    "seconds": seconds,
                    "tokens_per_s_per_gpu": sum(lengths) / seconds,
                    "mfu": needed / seconds / PEAK_FLOPS,
                    "mfu_verl": counted * 1e12 * forwards / 3 / PEAK_FLOPS,
                    "peak_memory_gb": memory[phase, path],
                    "times_faster": medians[phase, PATHS[0]] / seconds,
                }
            )
        totals = {path: sum(medians[phase, path] for phase in PHASES) for path in paths}
        steps = [
            {
                "path": path,
                "seconds": totals[path],
                "peak_memory_gb": max(memory[phase, path] for phase in PHASES),
                "times_faster": totals[PATHS[0]] / totals[path],
            }
            for path in paths
        ]
        return {
            "prompt": prompt,
            "response": response,
            "layers": self.model_config.num_hidden_layers,
            "shape": self.config.shape,
            "gpus": torch.distributed.get_world_size(),
            "rows_per_gpu": len(data),
            "phases": phases,
            "steps": steps,
            "turns": turns,
            "rounds_s": {", ".join(key): [one["seconds"] for one in taken] for key, taken in taken_of.items()},
            "differences": differences(outputs, paths),
        }

    def _needed_flops(self, prompt: int, response: int) -> float:
        """Of a forward pass in which every token counts once that several prompts have at their beginning."""
        flops, turns, samples = partial(forward_flops, self.model_config), self.config.turns, self.config.samples
        first, whole = flops(prompt, 0, 0), flops(prompt * turns, 0, 0)
        contexts = first + (samples if self.config.online else 1) * (whole - first)
        ends = [prompt * (turn + 1) for turn in range(turns)]
        return contexts + sum(flops(end, response, samples) - flops(end, 0, 0) for end in ends)

    @contextlib.contextmanager
    def _path(self, path: str) -> Iterator[None]:
        """Meanwhile actor and reference compute by this path."""
        from cobalt.training import shared_prompts

        is_shared = path != "verl"
        self._module.prepare_dynamic_batch = shared_prompts.prepare_dynamic_batch if is_shared else self._own_batches
        shared_prompts.common_tokens = self._common_tokens if path == "tree" else tokens_of_equal
        for actor in (self.actor, self.reference):
            actor.use_remove_padding = self.on_gpu
            actor.settings.share_prompts = is_shared
        self._dynamic = self.actor.config.use_dynamic_bsz = is_shared
        models = [actor.actor_module for actor in (self.actor, self.reference)]
        with liger_kernels(models) if is_shared and self.on_gpu else contextlib.nullcontext():
            yield

    def _compute(self, phase: str, data: Any) -> Any:
        """What the phase returns."""
        if phase == "update":
            return self.actor.update_policy(data)
        is_policy = phase == PHASES[0]
        actor, sizes = (self.actor, self._settings.rollout) if is_policy else (self.reference, self._settings.ref)
        data.meta_info["micro_batch_size"] = sizes.log_prob_micro_batch_size_per_gpu
        data.meta_info["use_dynamic_bsz"], data.meta_info["max_token_len"] = self._dynamic, self.config.max_tokens
        return actor.compute_log_prob(data, calculate_entropy=is_policy)

    def _wait(self) -> None:
        torch.distributed.barrier()
        if self.on_gpu:
            torch.cuda.synchronize()


def tokens_of_equal(one: torch.Tensor, other: torch.Tensor) -> int:
    """What prompts have in common, if only equal ones may share."""
    return len(one) if one.equal(other) else 0


@contextlib.contextmanager
def random_weights() -> Iterator[None]:
    """Meanwhile loading a causal language model makes one, each time with the same random weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    load = AutoModelForCausalLM.from_pretrained

    def make(*_args: Any, config: Any, torch_dtype: Any, **_kwargs: Any) -> Any:
        torch.manual_seed(0)
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32).to(torch_dtype)

    AutoModelForCausalLM.from_pretrained = make  # pyright: ignore[reportAttributeAccessIssue] - a bound method
    try:
        yield
    finally:
        AutoModelForCausalLM.from_pretrained = load


@contextlib.contextmanager
def liger_kernels(models: Iterable[Any]) -> Iterator[None]:
    """Meanwhile these models (in FSDP) compute as with ``model.use_liger``."""
    from liger_kernel.transformers.monkey_patch import (  # pyright: ignore[reportMissingImports]
        _apply_liger_kernel_to_instance,
    )
    from transformers.models.qwen3 import modeling_qwen3

    names = dict(vars(modeling_qwen3))
    inner = [model.module for model in models]
    for model in inner:
        _apply_liger_kernel_to_instance(model=model)
    try:
        yield
    finally:
        vars(modeling_qwen3).update(names)
        for module in (module for model in inner for module in model.modules()):
            vars(module).pop("forward", None)


def differences(outputs: Any, paths: Sequence[str]) -> dict[str, Any]:
    """How far the paths' results are from the first's, and policy and reference, which hold the same weights."""
    (log_probs, reference, update), (own, *others) = PHASES, paths

    def difference(one: Any, other: Any) -> dict[str, float]:
        one, other = one.float(), other.float()
        apart = (one - other).abs()
        return {"mean": apart.mean().item(), "most": apart.max().item(), "of values about": one.abs().mean().item()}

    found: dict[str, Any] = {}
    named = (("old log-probs", log_probs, 0), ("entropies", log_probs, 1), ("reference", reference, 0))
    for path, (name, phase, index) in product(others, named):
        found[f"{name}, {path}"] = difference(outputs[phase, own][index], outputs[phase, path][index])
    for path in paths:
        found[f"policy and reference, {path}"] = difference(outputs[log_probs, path][0], outputs[reference, path][0])
        found[f"gradient norm, {path}"] = outputs[update, path]["actor/grad_norm"][0]
    return found


def show(result: dict[str, Any]) -> None:
    """Print all figures but the rounds."""
    print(", ".join(f"{name} {value}" for name, value in result.items() if isinstance(value, int | str)))
    rows = [{"phase": "all", **row} if "phase" not in row else row for row in (*result["phases"], *result["steps"])]
    columns = list(rows[0])
    cells = [
        [f"{cell:.4g}" if isinstance(cell := row.get(name, ""), float) else cell for name in columns] for row in rows
    ]
    print(markdown_table(columns, cells))
    for name, values in result["differences"].items():
        print(f"{name}: {values}", flush=True)


if __name__ == "__main__":
    run(BenchConfig, main)
