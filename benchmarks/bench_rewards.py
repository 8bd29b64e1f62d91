"""What scoring costs beside running the programs.

    python benchmarks/bench_rewards.py                     a batch through the reward manager, and the executor alone
    python benchmarks/bench_rewards.py --interrupt_s 5     ... with the evaluator killed for 5 s midway

Times are in seconds. The two alternate, so that both see the same machine; the ratio is a median.
With `--interrupt_s` it starts a Ray cluster of its own with the evaluator app, kills the replica (SIGKILL) in the
middle of a batch, and stops the replacement that Serve starts (SIGSTOP) until the time is over.
"""

import asyncio
import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cobalt.cli.console import print_summary
from cobalt.cli.entry import run
from cobalt.records import TestCases
from cobalt.sandbox.executor import Executor

PROMPT_WIDTH = 8
POLL_S = 0.01
WORDS = ["so", "read", "the", "numbers", "then", "count", "each", "and", "print", "sum", "but", "wait", "list", "empty"]
THINKING_WORDS = 300
WORKERS, ROUNDS = 2, 3
"""Sandboxes, and how often executor and manager are measured."""


@dataclass(frozen=True)
class BenchConfig:
    """Benchmarks of the reward."""

    responses: int = 2048
    """Responses in the batch, each with a program of its own."""
    tests: int = 20
    """Tests per program."""
    interrupt_s: float = 0
    """Kill the evaluator in the middle of the batch, and keep it away for this long."""


def main(config: BenchConfig) -> None:
    """Measure and print."""
    if config.interrupt_s:
        bench_interruption(config)
    else:
        bench_manager(config)


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def make_batch(config: BenchConfig) -> tuple[list[str], TestCases, Any, Any]:
    """Distinct programs, their tests, a tokenizer, and the batch of responses as veRL hands it to a reward manager.

    Each program passes every second test. Groups are of 16.
    """
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl import DataProto

    generator, tokenizer = random.Random(0), AutoTokenizer.from_pretrained("assets/minicoder")
    codes = [f"n = int(input())\nprint(n * 2 if n % 2 else {-1 - index})" for index in range(config.responses)]
    inputs = tuple(str(index + 1) for index in range(config.tests))
    tests = TestCases(inputs, tuple(str(int(text) * 2) for text in inputs))
    responses = [
        f"<think>\n{' '.join(generator.choices(WORDS, k=THINKING_WORDS))}\n</think>\n```python\n{code}\n```"
        for code in codes
    ]
    ids = [tokenizer(response)["input_ids"] for response in responses]
    width = max(map(len, ids)) + 1
    tokens = torch.full((len(ids), width), tokenizer.pad_token_id)
    mask = torch.zeros(len(ids), PROMPT_WIDTH + width, dtype=torch.long)
    for row, values in enumerate(ids):
        tokens[row, : len(values)] = torch.tensor(values)
        mask[row, : PROMPT_WIDTH + len(values)] = 1
    columns = {
        "data_source": ["code_taco_verified"] * len(ids),
        "reward_model": [{"ground_truth": tests.to_json()}] * len(ids),
        "extra_info": [{"prev_best_pass_rate": 0.25}] * len(ids),
        "uid": [index // 16 for index in range(len(ids))],
    }
    prompts = torch.zeros(len(ids), PROMPT_WIDTH, dtype=torch.long)
    batch = DataProto.from_dict(
        tensors={"prompts": prompts, "responses": tokens, "attention_mask": mask},
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )
    return codes, tests, tokenizer, batch


def bench_manager(config: BenchConfig) -> None:
    """The executor alone, and the manager around it, alternating."""
    from cobalt.training.manager import CobaltRewardManager
    from cobalt.training.scoring import compute_score

    codes, tests, tokenizer, batch = make_batch(config)
    manager = CobaltRewardManager(tokenizer, 0, compute_score, executor="local", workers=WORKERS)

    async def run_alone() -> None:
        async with Executor(workers=WORKERS) as executor:
            await executor.run_many([(code, tests) for code in codes])

    alone, managed = [], []
    for _ in range(ROUNDS):
        alone.append(seconds(lambda: asyncio.run(run_alone())))
        managed.append(seconds(lambda: manager(batch, return_dict=True)))
    ratio = statistics.median(after / before for before, after in zip(alone, managed, strict=True))
    rows = {
        "executor alone": f"{statistics.median(alone):.1f} s",
        "reward manager": f"{statistics.median(managed):.1f} s",
        "ratio": f"{ratio:.3f} (median of {ROUNDS})",
    }
    print_summary(f"{config.responses} responses x {config.tests} tests, {WORKERS} sandboxes", rows)


def bench_interruption(config: BenchConfig) -> None:
    """A batch during which the evaluator is killed and kept away: nothing may be lost or misjudged."""
    import ray
    from ray import serve

    from cobalt.serving.evaluator import build_app
    from cobalt.serving.evaluator_config import EvaluatorConfig
    from cobalt.training.manager import CobaltRewardManager
    from cobalt.training.scoring import compute_score

    _, _, tokenizer, batch = make_batch(config)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(proxy_location="Disabled")
    serve.run(build_app(EvaluatorConfig(workers=WORKERS, num_cpus=0)), name="evaluator", route_prefix=None)
    killed: list[int] = []
    manager = CobaltRewardManager(tokenizer, 0, compute_score, executor="serve")
    undisturbed = seconds(lambda: manager(batch))
    thread = threading.Timer(undisturbed / 3, lambda: killed.extend(kill_replicas(config.interrupt_s)))
    thread.start()
    started = time.perf_counter()
    info = manager(batch, return_dict=True)["reward_extra_info"]
    took = time.perf_counter() - started
    thread.join()
    rows = {
        "undisturbed": f"{undisturbed:.1f} s",
        f"killed and kept away for {config.interrupt_s:g} s": f"{took:.1f} s",
        "replicas killed": len(killed),
        "infra failures": int(sum(info["infra"])),
        "right pass rates": sum(rate == 0.5 for rate in info["pass_rate"]),
    }
    print_summary(f"{config.responses} responses x {config.tests} tests through Ray Serve", rows)
    serve.shutdown()
    ray.shutdown()


def kill_replicas(away_s: float) -> list[int]:
    """Kill the app's replicas and hold their replacements for ``away_s`` seconds; the processes killed."""
    import psutil

    def replicas() -> list[psutil.Process]:
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if " ".join(process.cmdline()).startswith("ray::ServeReplica:evaluator:"):
                    found.append(process)
        return found

    killed, held = replicas(), set()
    for process in killed:
        process.kill()
    until = time.monotonic() + away_s
    while time.monotonic() < until:
        for process in set(replicas()) - held - set(killed):
            process.suspend()
            held.add(process)
        time.sleep(POLL_S)
    for process in held:
        process.resume()
    return [process.pid for process in killed]


if __name__ == "__main__":
    run(BenchConfig, main)
