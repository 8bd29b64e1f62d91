"""The training phases of a step, timed: veRL's own passes with the release's settings, and each prompt computed once.

    python benchmarks/bench_step.py --shape 8b --layers 8 --lengths 4096x2048 10240x2048
    torchrun --nproc_per_node 2 benchmarks/bench_step.py --shape 8b --lengths 4096x4096

Drives veRL's own workers (``ActorRolloutRefWorker``: FSDP, gradient checkpointing, the configuration of
``verl/config``) with random weights of a Qwen3 shape and responses of a forced length: old log-probabilities and
entropies (``compute_log_prob``), the reference's (``compute_log_prob``) and one mini-batch of the update
(``update_policy``, at a learning rate of 0, so that every round computes the same). Offloading between phases, rollouts
and rewards are left out. After one round to warm up, the paths take turns within each phase; medians are shown.

| path | |
|---|---|
| ``verl`` | veRL's own, micro-batches of 2 rows, 16 for log-probabilities |
| ``verl_dynamic`` | veRL's own, micro-batches of up to ``max_tokens`` tokens |
| ``shared`` | each prompt once, Liger's kernels, micro-batches of up to ``max_tokens`` shared tokens |

Tokens/s per GPU count every token of every row, for each path alike. MFU is FLOPs that the phase needs, the same for
each path, over time and the peak (989 TFLOP/s: dense bf16 of an H100 or H200). A forward pass over a prompt of P tokens
and n responses of R needs 2·W·(P + n·R) for the W weights of the layers' matrices, 4·L·H·D·(P² / 2 + n·R·(P + R / 2))
for the attention of L layers with H heads of D channels, and 2·V·C·n·R for the output layer (V words, C channels); the
update needs three times as much (recomputation is not counted). ``MFU, veRL's`` is what veRL logs as
``perf/mfu/actor``: every row whole, the embedding counted as a matrix product, attention without the causal half.

On a CPU it runs the shape ``tiny`` in fp32, and veRL's own path is the padded one: a check that it works.
"""

import contextlib
import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from step_costs import PEAK_FLOPS, forward_flops
from verl_workers import liger_kernels, make_actors, rendezvous

from cobalt.cli.entry import run
from cobalt.errors import InputError, SetupError
from cobalt.training.preflight import refuse_missing_cross_entropy, refuse_missing_liger

GB = 1024**3
TEMPERATURE = 1.0
PHASES = ("old log-probs", "reference", "update")
PathName = Literal["verl", "verl_dynamic", "shared"]


@dataclass(frozen=True)
class BenchConfig:
    """Seconds, tokens/s, MFU and peak memory of a step's training phases, for veRL's own passes and shared prompts."""

    shape: Literal["0.6b", "1.7b", "4b", "8b", "tiny"] = "8b"
    """Which Qwen3."""
    layers: int | None = None
    """Fewer layers than the shape has."""
    lengths: tuple[str, ...] = ("4096x2048",)
    """Tokens of a prompt and of each response, as in 4096x2048."""
    samples: int = 16
    """Responses to a prompt (n)."""
    prompts: int = 1
    """Prompts per GPU and step."""
    paths: tuple[PathName, ...] = ("verl", "shared")
    max_tokens: int = 53248
    """Of a micro-batch; not for veRL's own with the release's settings."""
    rounds: int = 3
    output_file: Path | None = None
    """All figures, as JSON."""


def main(config: BenchConfig) -> None:
    """Measure and print."""
    lengths = [_prompt_and_response(text) for text in config.lengths]
    if torch.cuda.is_available():
        _refuse_missing_kernels(config.paths)
    elif config.shape != "tiny":
        raise SetupError(f"--shape {config.shape} needs a GPU; without one there is --shape tiny")
    rendezvous()
    bench = Bench(config)
    results = []
    for prompt, response in lengths:
        results.append(bench.measure(prompt, response))
        if bench.rank == 0:
            _show(results[-1])
            if config.output_file:
                config.output_file.write_text(json.dumps(results, indent=1))
    torch.distributed.destroy_process_group()


def _refuse_missing_kernels(paths: Iterable[PathName]) -> None:
    for path in paths:
        if path == "shared":
            refuse_missing_liger()
        else:
            refuse_missing_cross_entropy()


def _prompt_and_response(text: str) -> tuple[int, int]:
    if found := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text):
        return int(found[1]), int(found[2])
    raise InputError(f"--lengths {text}: tokens of a prompt and of a response are wanted, such as 4096x2048")


class Bench:
    """veRL's actor and reference, and the ways of using them."""

    def __init__(self, config: BenchConfig):
        self.config, self.on_gpu = config, torch.cuda.is_available()
        from verl.workers.actor import dp_actor

        self._module, self._own_batches = dp_actor, dp_actor.prepare_dynamic_batch
        sizes = config.shape, config.layers, config.prompts, config.samples, config.max_tokens
        self.actor, self.reference, self.model_config, self._settings = make_actors(*sizes)
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def measure(self, prompt: int, response: int) -> dict[str, Any]:
        """All figures for one pair of lengths."""
        data, paths = self._batch(prompt, response), self.config.paths
        seconds: dict[Any, list[float]] = {(phase, path): [] for phase in PHASES for path in paths}
        memory: dict[Any, float] = {}
        outputs: dict[Any, Any] = {}
        for _ in range(self.config.rounds + 1):
            for phase in PHASES:
                for path in paths:
                    with self._path(path):
                        outputs[phase, path], taken, peak = self._timed(phase, data)
                    seconds[phase, path].append(taken)
                    memory[phase, path] = max(peak, memory.get((phase, path), 0.0))
                if phase != "update":  # each path is handed the same
                    key = "old_log_probs" if phase == PHASES[0] else "ref_log_prob"
                    data.batch[key] = outputs[phase, paths[0]][0]
        medians = {key: statistics.median(values[1:]) for key, values in seconds.items()}
        return {
            "prompt": prompt,
            "response": response,
            "layers": self.model_config.num_hidden_layers,
            "shape": self.config.shape,
            "gpus": self.ranks,
            "rows_per_gpu": len(data),
            "phases": [self._figures(phase, path, medians, memory, prompt, response) for phase, path in medians],
            "steps": [_step(path, medians, memory, paths[0]) for path in paths],
            "rounds_s": {f"{phase}, {path}": values for (phase, path), values in seconds.items()},
            "differences": _differences(outputs, paths),
        }

    def _batch(self, prompt: int, response: int) -> Any:
        """As the trainer hands it to the workers, with random tokens and advantages."""
        from tensordict import TensorDict
        from verl import DataProto

        rows, device = self.config.prompts * self.config.samples, "cuda" if self.on_gpu else "cpu"
        generator = torch.Generator().manual_seed(torch.distributed.get_rank())
        prompts = torch.randint(self.model_config.vocab_size, (self.config.prompts, prompt), generator=generator)
        responses = torch.randint(self.model_config.vocab_size, (rows, response), generator=generator)
        mask = torch.ones(rows, prompt + response, dtype=torch.long)
        batch = {
            "input_ids": torch.cat([prompts.repeat_interleave(self.config.samples, 0), responses], 1),
            "responses": responses,
            "attention_mask": mask,
            "position_ids": mask.cumsum(1) - 1,
            "response_mask": mask[:, prompt:],
            "advantages": torch.randn(rows, 1, generator=generator).expand(rows, response).contiguous(),
        }
        return DataProto(batch=TensorDict(batch, batch_size=rows).to(device), meta_info={"temperature": TEMPERATURE})

    @contextlib.contextmanager
    def _path(self, path: PathName) -> Iterator[None]:
        """Meanwhile actor and reference compute by this path."""
        from cobalt.training.shared_prompts import prepare_dynamic_batch

        is_shared = path == "shared"
        self._module.prepare_dynamic_batch = prepare_dynamic_batch if is_shared else self._own_batches
        for actor in (self.actor, self.reference):
            actor.use_remove_padding = self.on_gpu
            actor.settings.share_prompts = is_shared
        self._dynamic = self.actor.config.use_dynamic_bsz = path != "verl"
        models = [actor.actor_module for actor in (self.actor, self.reference)]
        with liger_kernels(models) if path == "shared" and self.on_gpu else contextlib.nullcontext():
            yield

    def _timed(self, phase: str, data: Any) -> tuple[Any, float, float]:
        """What the phase returns, its seconds, and the most memory allocated during it, in bytes."""
        calls: dict[str, Callable[[], Any]] = {
            PHASES[0]: lambda: self._log_probs(self.actor, data, True),
            PHASES[1]: lambda: self._log_probs(self.reference, data, False),
            PHASES[2]: lambda: self.actor.update_policy(data),
        }
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self._wait()
        start = time.perf_counter()
        output = calls[phase]()
        self._wait()
        return output, time.perf_counter() - start, torch.cuda.max_memory_allocated() if self.on_gpu else 0

    def _wait(self) -> None:
        torch.distributed.barrier()
        if self.on_gpu:
            torch.cuda.synchronize()

    def _log_probs(self, actor: Any, data: Any, with_entropy: bool) -> Any:
        sizes = self._settings.rollout if actor is self.actor else self._settings.ref
        data.meta_info["micro_batch_size"] = sizes.log_prob_micro_batch_size_per_gpu
        data.meta_info["use_dynamic_bsz"], data.meta_info["max_token_len"] = self._dynamic, self.config.max_tokens
        return actor.compute_log_prob(data, calculate_entropy=with_entropy)

    def _figures(self, phase: str, path: str, medians: Any, memory: Any, prompt: int, response: int) -> dict[str, Any]:
        from verl.utils.flops_counter import FlopsCounter

        seconds, forwards = medians[phase, path], 3 if phase == "update" else 1
        rows = self.config.prompts * self.config.samples
        needed = (
            self.config.prompts * forwards * forward_flops(self.model_config, prompt, response, self.config.samples)
        )
        counter = FlopsCounter(self.model_config)
        counted = counter.estimate_func[self.model_config.model_type](
            rows * (prompt + response), [prompt + response] * rows, seconds
        )
        return {
            "phase": phase,
            "path": path,
            "seconds": seconds,
            "tokens_per_s_per_gpu": rows * (prompt + response) / seconds,
            "mfu": needed / seconds / PEAK_FLOPS,
            "mfu_verl": counted * 1e12 * forwards / 3 / PEAK_FLOPS,
            "peak_memory_gb": memory[phase, path] / GB,
            "times_faster": medians[phase, self.config.paths[0]] / seconds,
        }


def _step(path: str, medians: Any, memory: Any, first: str) -> dict[str, Any]:
    """All phases together."""
    seconds = {name: sum(medians[phase, name] for phase in PHASES) for name in (path, first)}
    peak = max(memory[phase, path] for phase in PHASES) / GB
    return {
        "path": path,
        "seconds": seconds[path],
        "peak_memory_gb": peak,
        "times_faster": seconds[first] / seconds[path],
    }


def _differences(outputs: Any, paths: tuple[str, ...]) -> dict[str, Any]:
    """How far each path's results are from the first's."""
    found: dict[str, Any] = {}
    for path in paths[1:]:
        for index, name in enumerate(("old log-probs", "entropies")):
            own, ours = (outputs[PHASES[0], which][index].float() for which in (paths[0], path))
            found[f"{name}, {path}"] = _difference(own, ours)
        own, ours = (outputs[PHASES[1], which][0].float() for which in (paths[0], path))
        found[f"reference, {path}"] = _difference(own, ours)
    for path in paths:  # both hold the same weights
        both = (outputs[phase, path][0].float() for phase in PHASES[:2])
        found[f"policy and reference, {path}"] = _difference(*both)
        found[f"gradient norm, {path}"] = outputs[PHASES[2], path]["actor/grad_norm"][0]
    return found


def _difference(own: Any, ours: Any) -> dict[str, float]:
    apart = (own - ours).abs()
    return {"mean": apart.mean().item(), "most": apart.max().item(), "of values about": own.abs().mean().item()}


def _show(result: dict[str, Any]) -> None:
    model = (
        f"{result['shape']}, {result['layers']} layers, {result['gpus']} GPUs, {result['rows_per_gpu']} rows on each"
    )
    print(f"\nprompt {result['prompt']}, responses {result['response']}: {model}")
    print(f"{'phase':14}{'path':14}{'s':>9}{'tokens/s':>10}{'MFU':>7}{'MFU, veRL':>11}{'GB':>7}{'faster':>8}")
    for row in result["phases"]:
        print(
            f"{row['phase']:14}{row['path']:14}{row['seconds']:9.3f}{row['tokens_per_s_per_gpu']:10.0f}"
            f"{row['mfu']:7.3f}{row['mfu_verl']:11.3f}{row['peak_memory_gb']:7.1f}{row['times_faster']:7.2f}x"
        )
    for row in result["steps"]:
        print(
            f"{'all':14}{row['path']:14}{row['seconds']:9.3f}{row['peak_memory_gb']:35.1f}{row['times_faster']:7.2f}x"
        )
    for name, values in result["differences"].items():
        print(f"{name}: {values}", flush=True)


if __name__ == "__main__":
    run(BenchConfig, main)
