"""What scoring costs beside running the programs.

    python benchmarks/bench_rewards.py --what repetition   the repetition check against the plain regular expression
    python benchmarks/bench_rewards.py --what manager      a batch through the reward manager against the executor alone
    python benchmarks/bench_rewards.py --what manager --interrupt_s 5   ... with the evaluator killed for 5 s midway

Times are in seconds; `manager` alternates the two, so that both see the same machine, and reports the median ratio.
With `--interrupt_s` it starts a Ray cluster of its own with the evaluator app, kills the replica (SIGKILL) in the
middle of a batch, and stops the replacement that Serve starts (SIGSTOP) until the time is over.
"""

import asyncio
import contextlib
import random
import re
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from cobalt.cli.console import print_summary
from cobalt.cli.entry import run
from cobalt.records import TestCases
from cobalt.rewards.repetition import has_repetition
from cobalt.sandbox.executor import Executor

REGEX = re.compile(r"(.{32,}?)\1{7}", re.DOTALL)
PROMPT_WIDTH = 8
POLL_S = 0.01
WORDS = ["so", "read", "the", "numbers", "then", "count", "each", "and", "print", "sum", "but", "wait", "list", "empty"]


@dataclass(frozen=True)
class BenchConfig:
    """Benchmarks of the reward."""

    what: Literal["repetition", "manager"]
    responses: int = 2048
    """Responses in the batch, each with a program of its own."""
    tests: int = 20
    """Tests per program."""
    words: int = 300
    """Words of thinking per response."""
    workers: int = 2
    """Sandboxes."""
    rounds: int = 3
    """Times that executor and manager are measured."""
    interrupt_s: float = 0
    """Kill the evaluator in the middle of the batch, and keep it away for this long."""


def main(config: BenchConfig) -> None:
    """See ``BenchConfig``."""
    if config.what == "repetition":
        bench_repetition()
    elif config.interrupt_s:
        bench_interruption(config)
    else:
        bench_manager(config)


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def texts(length: int) -> dict[str, str]:
    """Prose, and the kinds of text that are worst for the check; none holds a repetition that counts."""
    generator = random.Random(0)
    symbol = lambda: chr(generator.randint(0x100, 0x3000))  # noqa: E731
    return {
        "prose": " ".join(generator.choices(WORDS, k=length))[:length],
        "95 % one letter": "".join(generator.choices("ab", weights=[95, 5], k=length)),
        "runs of 250": "".join("a" * 250 + symbol() for _ in range(length // 250))[:length],
        "runs of pairs": "".join("ab" * 120 + symbol() for _ in range(length // 240))[:length],
        "blocks seven times": "".join(
            "".join(generator.choices("ab", k=100)) * 7 + symbol() for _ in range(length // 700)
        )[:length],
    }


def bench_repetition() -> None:
    """CPU milliseconds per text; the regular expression on prose only, for it takes minutes on the worst texts."""
    rows = {}
    for length in (24_000, 60_000):
        for name, text in texts(length).items():
            rows[f"{length} characters, {name}"] = f"{_cpu_ms(lambda: has_repetition(text, 32, 8), 15):.1f} ms"  # noqa: B023
        prose = texts(length)["prose"]
        rows[f"{length} characters, prose, regular expression"] = f"{_cpu_ms(lambda: REGEX.search(prose), 1):.0f} ms"  # noqa: B023
    print_summary("repetition check (median of 15, CPU time)", rows)


def _cpu_ms(function: Callable[[], Any], times: int) -> float:
    """Median CPU milliseconds of a call."""
    taken = []
    for _ in range(times):
        started = time.process_time()
        function()
        taken.append(1e3 * (time.process_time() - started))
    return statistics.median(taken)


def make_responses(config: BenchConfig) -> tuple[list[str], list[str], str]:
    """Distinct programs, responses that hold them, and the tests (JSON), of which each passes every second."""
    generator = random.Random(0)
    codes = [f"n = int(input())\nprint(n * 2 if n % 2 else {-1 - index})" for index in range(config.responses)]
    inputs = tuple(str(index + 1) for index in range(config.tests))
    tests = TestCases(inputs, tuple(str(int(text) * 2) for text in inputs)).to_json()
    texts = [
        f"<think>\n{' '.join(generator.choices(WORDS, k=config.words))}\n</think>\n```python\n{code}\n```"
        for code in codes
    ]
    return codes, texts, tests


def make_batch(tokenizer: Any, responses: list[str], tests: str) -> Any:
    """The batch as veRL hands it to a reward manager, in groups of 16."""
    import numpy as np
    import torch
    from verl import DataProto

    ids = [tokenizer(response)["input_ids"] for response in responses]
    width = max(map(len, ids)) + 1
    tokens = torch.full((len(ids), width), tokenizer.pad_token_id)
    mask = torch.zeros(len(ids), PROMPT_WIDTH + width, dtype=torch.long)
    for row, values in enumerate(ids):
        tokens[row, : len(values)] = torch.tensor(values)
        mask[row, : PROMPT_WIDTH + len(values)] = 1
    columns = {
        "data_source": ["code_taco_verified"] * len(ids),
        "reward_model": [{"ground_truth": tests}] * len(ids),
        "extra_info": [{"prev_best_pass_rate": 0.25}] * len(ids),
        "uid": [index // 16 for index in range(len(ids))],
    }
    return DataProto.from_dict(
        tensors={
            "prompts": torch.zeros(len(ids), PROMPT_WIDTH, dtype=torch.long),
            "responses": tokens,
            "attention_mask": mask,
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in columns.items()},
    )


def load_tokenizer() -> Any:
    """MiniCoder's."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained("assets/minicoder")


def bench_manager(config: BenchConfig) -> None:
    """The executor alone, and the manager around it, alternating."""
    from cobalt.training.manager import CobaltRewardManager
    from cobalt.training.scoring import compute_score

    codes, responses, tests = make_responses(config)
    tokenizer = load_tokenizer()
    batch = make_batch(tokenizer, responses, tests)
    manager = CobaltRewardManager(tokenizer, 0, compute_score, executor="local", workers=config.workers)
    alone, managed = [], []
    for _ in range(config.rounds):
        alone.append(seconds(lambda: asyncio.run(run_alone(codes, tests, config.workers))))
        managed.append(seconds(lambda: manager(batch, return_dict=True)))
    ratio = statistics.median(after / before for before, after in zip(alone, managed, strict=True))
    rows = {
        "executor alone": f"{statistics.median(alone):.1f} s",
        "reward manager": f"{statistics.median(managed):.1f} s",
        "ratio": f"{ratio:.3f} (median of {config.rounds})",
    }
    print_summary(f"{config.responses} responses x {config.tests} tests, {config.workers} sandboxes", rows)


async def run_alone(codes: list[str], tests: str, workers: int) -> None:
    """The same programs, straight to the executor."""
    parsed = TestCases.parse(tests)
    async with Executor(workers=workers) as executor:
        await executor.run_many([(code, parsed) for code in codes])


def bench_interruption(config: BenchConfig) -> None:
    """A batch during which the evaluator is killed and kept away: nothing may be lost or misjudged."""
    import ray
    from ray import serve

    from cobalt.serving.evaluator import build_app
    from cobalt.serving.evaluator_config import EvaluatorConfig
    from cobalt.training.manager import CobaltRewardManager
    from cobalt.training.scoring import compute_score

    codes, responses, tests = make_responses(config)
    tokenizer = load_tokenizer()
    batch = make_batch(tokenizer, responses, tests)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(proxy_location="Disabled")
    serve.run(build_app(EvaluatorConfig(workers=config.workers, num_cpus=0)), name="evaluator", route_prefix=None)
    killed: list[int] = []

    def interrupt(after_s: float) -> None:
        time.sleep(after_s)
        killed.extend(kill_replicas(config.interrupt_s))

    manager = CobaltRewardManager(tokenizer, 0, compute_score, executor="serve")
    undisturbed = seconds(lambda: manager(batch))
    thread = threading.Thread(target=interrupt, args=[undisturbed / 3])
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
    print_summary(f"{len(codes)} responses x {config.tests} tests through Ray Serve", rows)
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
