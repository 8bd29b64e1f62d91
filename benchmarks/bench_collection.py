"""Collection of conversations from vLLM's server, against ``LLM.generate`` on the same requests.

    python -m benchmarks.bench_collection --model MODEL --input_file problems.jsonl --api_base http://127.0.0.1:8000/v1

The server has been started with MODEL and with the limits given here. An engine in this process has the same, and both
take turns: a run of ``run_multi_turn_vllm.py``, as a user starts it, then its requests, as tokens, in one call of
``LLM.generate``. Collection cannot have that: a turn's prompt needs the feedback to the program before. Shown are
medians and ranges of new tokens per second, and the median of the rounds' ratios. Nothing else should be on the GPU.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Sample, interleaved, median_ratio, report
from cobalt.cli.entry import run
from cobalt.completion import request_seed
from cobalt.errors import SetupError
from cobalt.prompts import prompt_tokens
from cobalt.records import read_jsonl
from cobalt.records.manifest import check_paths, manifest_path, read_manifest

ENGINE, RATE = "LLM.generate", "tokens/s"


@dataclass(frozen=True)
class CollectionBenchConfig:
    """Tokens per second of collection, and of ``LLM.generate`` on the same requests."""

    model: Path
    """A folder; the server's model."""
    input_file: Path
    """Problems (JSONL)."""
    api_base: str
    """Address of vLLM's server, or of the app."""
    samples: int = 8
    """Conversations about each problem."""
    num_turns: int = 2
    """Turns after the first program."""
    max_tokens: int = 768
    """Of a response."""
    max_model_len: int = 16384
    """The server's ``--max-model-len``."""
    max_num_seqs: int = 512
    """The server's ``--max-num-seqs``."""
    kv_gib: int = 20
    """Of the engine's cache; the server's ``--kv-cache-memory-bytes`` in GiB."""
    rounds: int = 3
    """After one that does not count."""
    output: Path | None = None
    """A JSON file for all figures."""


def main(config: CollectionBenchConfig) -> None:
    """Collect and generate in turn, and print."""
    outputs = [] if config.output is None else [config.output]
    check_paths([config.model / "config.json", config.input_file], outputs)
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found] - imports for half a minute

    @cache
    def engine() -> Any:  # it starts when the server has answered
        return LLM(
            model=str(config.model),
            generation_config="vllm",
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            kv_cache_memory_bytes=config.kv_gib << 30,
            gpu_memory_utilization=0.05,
        )

    with tempfile.TemporaryDirectory() as folder:
        runs: list[Path] = []

        def collect() -> Sample:
            runs.append(Path(folder, f"{len(runs)}.jsonl"))
            return collected(config, runs[-1], seed=len(runs))

        def generate() -> Sample:
            requests, settings = requests_of(runs[-1], engine().get_tokenizer())
            prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
            sampling = [SamplingParams(**settings, seed=seed) for _, seed in requests]
            engine().reset_prefix_cache()
            begin = time.perf_counter()
            outputs = engine().generate(prompts, sampling)
            return figures(sum(len(output.outputs[0].token_ids) for output in outputs), time.perf_counter() - begin)

        samples = interleaved({"collection": collect, ENGINE: generate}, config.rounds)
    report(config, samples, {name: median_ratio(taken, samples[ENGINE], RATE) for name, taken in samples.items()})


def collected(config: CollectionBenchConfig, output: Path, seed: int) -> Sample:
    """Run ``run_multi_turn_vllm.py``. Raises ``SetupError`` if it fails."""
    words = ["run_multi_turn_vllm.py", "--from_scratch", "--executor", "local", "--api_base", config.api_base]
    words += ["-i", config.input_file, "-o", output, "-n", config.samples, "--num_turns", config.num_turns]
    words += ["--max_tokens", config.max_tokens, "--seed", seed]
    if code := subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=False).returncode:
        raise SetupError(f"the collection ended with {code}; its output is above")
    manifest = read_manifest(manifest_path(output))
    return figures(manifest["counts"]["completion_tokens"], manifest["wall_time_s"])


def requests_of(run: Path, tokenizer: Any) -> tuple[list[tuple[list[int], int]], dict[str, Any]]:
    """Prompt, in tokens, and seed of each request of a finished run, and the sampling of all."""
    content = read_manifest(manifest_path(run))["content"]
    found = [
        (prompt_tokens(tokenizer, messages[:end]), request_seed(content["seed"], record["id"], sample, turn))
        for record in read_jsonl(run)
        for sample, messages in enumerate(record["conversations"])
        for turn, end in enumerate(answer for answer, message in enumerate(messages) if message["role"] == "assistant")
    ]
    return found, content["sampling"]


def figures(tokens: int, seconds: float) -> Sample:
    return {"tokens": tokens, "seconds": seconds, RATE: tokens / seconds}


if __name__ == "__main__":
    run(CollectionBenchConfig, main)
