"""Rollouts of a training step in vLLM's engine, timed with different settings of it.

    python -m benchmarks.bench_rollout --model MODEL --train_file contexts/train.parquet

Each contender is an engine in a process of its own, as veRL sets it up. All start together, then they take turns: the
same prompts, ``samples`` requests each, all at once. Shown are medians and ranges of the seconds until all responses,
and 90 % of them, are there, and how many times as fast as ``verl`` each is (the median of the rounds' ratios).

``verl``: every token of every response is turned to text and handed over. ``ids``: the ids of a whole response.
``ngram-K``: that, with drafts of K tokens, from what followed the last tokens before (``ngram_gpu``). ``v2``: ``ids``
with vLLM's second model runner. ``group``: ``ids`` with prompts read once (examples/group_attention).
"""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import pandas as pd
from transformers import AutoTokenizer

from benchmarks.harness import ROOT, interleaved, median_ratio, report
from cobalt.cli.entry import run
from cobalt.errors import InputError, SetupError
from cobalt.prompts import prompt_tokens
from cobalt.records.manifest import check_paths
from cobalt.records.parquet import parquet_errors

BASE = "verl"
CONTENDER = re.compile(rf"{BASE}|ids|ngram-[1-9]\d*|v2|group")
ENGINE = "COBALT_BENCH_ENGINE"
"""Environment variable of a contender's process: its name, and the settings of all."""
SECONDS = {"all": 1.0, "90 %": 0.9}
"""Figure: share of the responses that are there."""


@dataclass(frozen=True)
class RolloutBenchConfig:
    """Seconds of a step's rollouts, with different settings of vLLM."""

    model: Path
    train_file: Path
    """Parquet file of a training; its first prompts are taken, others in each round."""
    prompts: int = 32
    """Of a round."""
    samples: int = 16
    """Responses to each."""
    max_tokens: int = 768
    """Of a response."""
    max_prompt: int = 4096
    """Tokens; longer ones are left out."""
    kv_gib: int = 10
    """Of each engine's cache."""
    rounds: int = 5
    """After one that does not count."""
    contenders: tuple[str, ...] = (BASE, "ids", "ngram-3", "ngram-5")
    output: Path | None = None
    """A JSON file for all figures."""


def main(config: RolloutBenchConfig) -> None:
    """Start an engine for each contender, ask them in turn, and print."""
    outputs = [] if config.output is None else [config.output]
    check_paths([config.model / "config.json", config.train_file], outputs)
    for name in config.contenders:
        if not CONTENDER.fullmatch(name):
            raise InputError(f"--contenders {name}: choose among {BASE}, ids, ngram-K, v2 and group")
    prompts_R = rounds_of(config)
    engines = {name: Engine(name, config, prompts_R) for name in config.contenders}
    try:
        for engine in engines.values():
            engine.answer()  # it has started
        samples = interleaved({name: engine.ask for name, engine in engines.items()}, config.rounds)
    finally:
        for engine in engines.values():
            engine.stop()
    pairs = samples.items() if BASE in samples else ()
    report(config, samples, {name: median_ratio(samples[BASE], taken, "seconds, all") for name, taken in pairs})


class Engine:
    """A contender's process."""

    def __init__(self, name: str, config: RolloutBenchConfig, prompts_R: Sequence[list[list[int]]]) -> None:
        self.name, self._rounds = name, iter(prompts_R)
        environment = {**os.environ, ENGINE: json.dumps([name, asdict(config)], default=str)}
        if name == "v2":
            environment["VLLM_USE_V2_MODEL_RUNNER"] = "1"
        words = [sys.executable, "-m", "benchmarks.bench_rollout"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(words, cwd=ROOT, env=environment, start_new_session=True, **pipes)

    def ask(self) -> dict[str, float]:
        """The next round."""
        print(json.dumps(next(self._rounds)), file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, float]:
        """What the process says next. Raises ``SetupError`` if it has ended."""
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise SetupError(f"the engine of '{self.name}' ended; its log is above")

    def stop(self) -> None:
        """End the process, and those that vLLM has started in its session, which outlive it and hold their memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()


async def serve(name: str, config: RolloutBenchConfig, answers: TextIO) -> None:
    """Answer each line of prompts, until there are no more."""
    from vllm import AsyncEngineArgs, SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    more: dict[str, Any] = {}
    if name.startswith("ngram-"):
        drafts = {"method": "ngram_gpu", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
        more["speculative_config"] = {**drafts, "num_speculative_tokens": int(name.removeprefix("ngram-"))}
    if name == "group":
        more["attention_backend"] = "CUSTOM"
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(config.model),
            max_model_len=config.max_prompt + config.max_tokens,
            max_num_seqs=config.prompts * config.samples,
            max_num_batched_tokens=16384,
            kv_cache_memory_bytes=config.kv_gib << 30,
            gpu_memory_utilization=0.05,
            distributed_executor_backend="uni",
            compilation_config={"cudagraph_mode": "FULL_AND_PIECEWISE"},
            disable_log_stats=True,
            **more,
        )
    )
    ids_alone = {} if name == BASE else {"output_kind": RequestOutputKind.FINAL_ONLY, "detokenize": False}
    sampling = SamplingParams(max_tokens=config.max_tokens, temperature=1.0, **ids_alone)

    async def ask(prompt: list[int], place: str) -> tuple[float, int]:
        tokens = 0
        async for output in engine.generate(TokensPrompt(prompt_token_ids=prompt), sampling, request_id=place):
            tokens = len(output.outputs[0].token_ids)
        return time.perf_counter(), tokens

    print("{}", file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        prompts = json.loads(line)
        await engine.reset_prefix_cache()
        begin = time.perf_counter()
        asked = (ask(prompt, uuid4().hex) for prompt in prompts for _ in range(config.samples))
        ended, tokens = zip(*await asyncio.gather(*asked), strict=True)
        seconds = sorted(end - begin for end in ended)
        figures = {f"seconds, {share}": seconds[round(len(seconds) * part) - 1] for share, part in SECONDS.items()}
        figures = {**figures, "tokens": statistics.mean(tokens), "longest": max(tokens)}
        print(json.dumps(figures), file=answers, flush=True)


def rounds_of(config: RolloutBenchConfig) -> Sequence[list[list[int]]]:
    """The prompts of each round, as token ids."""
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    needed = config.prompts * (config.rounds + 1)
    found: list[list[int]] = []
    with parquet_errors(config.train_file):
        rows = pd.read_parquet(config.train_file, columns=["prompt"])
    for messages in rows["prompt"]:
        if len(ids := prompt_tokens(tokenizer, [dict(message) for message in messages])) <= config.max_prompt:
            found.append(ids)
        if len(found) == needed:
            return [found[start : start + config.prompts] for start in range(0, needed, config.prompts)]
    raise InputError.at(config.train_file, None, f"{len(found)} prompts of at most {config.max_prompt} tokens")


if __name__ == "__main__":
    if ENGINE in os.environ:
        contender, given = json.loads(os.environ[ENGINE])
        with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where vLLM logs
            asyncio.run(serve(contender, RolloutBenchConfig(**given), answers))
    else:
        run(RolloutBenchConfig, main)
