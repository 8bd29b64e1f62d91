"""Plain ``LLM.generate`` on the prompts of a finished multi-turn run: what the engine does without any driver.

    python -m research.benchmarks.bench_vllm --model assets/minicoder --input_file runs/vllm/turns.jsonl

Takes the sampling settings from the run's manifest and prints tokens/s of both and their ratio. All prompts are handed
over at once, as tokens, which a multi-turn run cannot do: a turn's prompt needs the feedback to the turn before, and
then becomes tokens. Run it in ``.venv-gpu``, with nothing else on the GPU.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.cli.entry import run
from cobalt.completion import request_seed
from cobalt.records import read_jsonl
from cobalt.records.manifest import manifest_path


@dataclass(frozen=True)
class BenchConfig:
    """Tokens per second of ``LLM.generate`` against a finished run."""

    model: str
    input_file: Path
    """Output of run_multi_turn_vllm.py, with its manifest."""
    engine_options: str = "{}"
    """JSON: arguments of ``vllm.LLM``, the same as the app was given."""


def main(config: BenchConfig) -> None:
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    manifest: dict[str, Any] = json.loads(manifest_path(config.input_file).read_text())
    content, counts = manifest["content"], manifest["counts"]
    llm = LLM(model=config.model, **json.loads(config.engine_options))
    first_turn = int(content["first_turn_from_file"])
    found = [  # messages and seed of every request of the run
        (messages[: 2 + 2 * turn], request_seed(content["seed"], record["id"], sample, turn))
        for record in read_jsonl(config.input_file)
        for sample, messages in enumerate(record["conversations"])
        for turn in range(first_turn, len(messages) // 2 - 1)
    ]
    parameters = [SamplingParams(**content["sampling"], seed=seed) for _, seed in found]
    tokenizer = llm.get_tokenizer()
    started = time.perf_counter()
    prompts = [
        {"prompt_token_ids": tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)}
        for messages, _ in found
    ]
    prompts_s = time.perf_counter() - started
    outputs = llm.generate(prompts, parameters)
    generate_s = time.perf_counter() - started - prompts_s
    plain = sum(len(output.outputs[0].token_ids) for output in outputs) / generate_s
    driven = counts["completion_tokens"] / manifest["wall_time_s"]
    result = {
        "requests": len(found),
        "requests_of_the_run": counts["requests"],
        "prompts_to_tokens_s": round(prompts_s, 1),
        "generate_s": round(generate_s, 1),
        "plain_tokens_per_s": round(plain),
        "run_tokens_per_s": round(driven),
        "ratio": round(driven / plain, 3),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    run(BenchConfig, main)
