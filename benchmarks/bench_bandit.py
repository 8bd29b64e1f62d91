"""How fast and how small the bandit builder is: this project's command against the plain way, on the same file.

The plain way holds the whole file in memory and tokenizes every prefix of every selected trajectory from scratch, in
one process. Both must write the same bytes. Full size (writes some 5 GB, which it deletes, and takes about an hour
on two shared cores; ``--plain_problems`` bounds the plain way's share of that):

    python -m benchmarks.bench_bandit --problems 20000 --plain_problems 2000

Prints wall and processor seconds, peak resident memory and the ratios as JSON.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT

STATEMENT_LINES, PROGRAM_LINES, THINKING_LINES, FEEDBACK_LINES = 30, 24, 10, 9
TRAJECTORIES, PROGRAMS, NUM_TESTS, NUM_PUBLIC = 16, 3, 20, 4
"""``TRAJECTORIES`` per problem, ``PROGRAMS`` per trajectory."""
SEED = 42


@dataclass(frozen=True)
class Config:
    """Compare the streaming builder with tokenizing every prefix from scratch."""

    problems: int = 20_000
    """Problems in the synthetic file."""
    plain_problems: int = 2_000
    """Problems that both are compared on, the first ones; the streaming builder also runs on all of them."""


def code_lines(rng: random.Random, count: int) -> list[str]:
    """Lines that look like code and numbers."""
    names = [f"{a}{b}" for a in ("value", "count", "left", "best", "node", "graph", "i", "total") for b in range(40)]
    forms = ("    {0} = {1} + {2}[{3}]", "for {0} in range({3}, {1}):", "if {0} <= {1} % {3}:", "{3} {4} {5}")
    return [
        rng.choice(forms).format(*rng.choices(names, k=3), *(rng.randrange(10_000) for _ in range(3)))
        for _ in range(count)
    ]


def make_tokenizer(directory: Path, lines: list[str]) -> None:
    """A byte-level BPE tokenizer with a ChatML template."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(directory)


def make_problem(rng: random.Random, index: int, lines: list[str]) -> dict[str, Any]:
    """One evaluated problem with rates that wander upwards."""
    from cobalt.prompts import ALL_PASSED, feedback_message, first_messages

    def text(count: int) -> str:
        return "\n".join(rng.choices(lines, k=count))

    tests = {"inputs": [str(i) for i in range(NUM_TESTS)], "outputs": [str(i) for i in range(NUM_TESTS)]}
    public = {name: values[:NUM_PUBLIC] for name, values in tests.items()}
    opening = first_messages(f"Problem {index}\n{text(STATEMENT_LINES)}")
    conversations, raw_NT, rates_NT = [], [], []
    for _ in range(TRAJECTORIES):
        messages, raw_T, rates_T = list(opening), [], []
        for _ in range(PROGRAMS):
            rates_T.append(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0]))
            program = f"```python\n{text(PROGRAM_LINES)}\n```"
            raw_T.append(f"<think>{text(THINKING_LINES)}</think>\n{program}")
            feedback = ALL_PASSED if rates_T[-1] == 1 else text(FEEDBACK_LINES)
            messages += [{"role": "assistant", "content": program}, feedback_message(feedback)]
        conversations.append(messages)
        raw_NT.append(raw_T)
        rates_NT.append(rates_T)
    return {
        "id": index,
        "difficulty": "MEDIUM",
        "test_cases": json.dumps(tests),
        "public_test_cases": json.dumps(public),
        "conversations": conversations,
        "raw_responses": [list(column) for column in zip(*raw_NT, strict=True)],
        "public_pass_rates": [list(column) for column in zip(*rates_NT, strict=True)],
        "all_pass_rates": rates_NT,
    }


def plain_way(input_file: str, output_file: str, tokenizer_dir: str) -> None:
    """The comparator: same rules and records, everything in memory, every prompt tokenized from scratch."""
    from transformers import AutoTokenizer

    from cobalt.bandit.builder import BanditConfig, cut_overlong, output_order, plan_problem
    from cobalt.bandit.evaluated import parse_problem
    from cobalt.records import write_jsonl

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    settings = BanditConfig()
    with open(input_file) as file:
        rows = [json.loads(line) for line in file]
    records = []
    for row in rows:
        for contexts_C in plan_problem(parse_problem(row), settings).contexts_NC:
            tokenized = partial(tokenizer.apply_chat_template, add_generation_prompt=True, return_dict=False)
            tokens_C = [len(tokenized(context.conversation)) for context in contexts_C]
            kept = cut_overlong(contexts_C, tokens_C, settings.max_prompt_tokens)
            records += [context.to_record() for context in kept]
    order = output_order(len(records), 0, 0.0, SEED)
    write_jsonl(output_file, (records[i] for i in order))


def measured(command: list[Any]) -> dict[str, float]:
    """Run a command; wall seconds and peak resident memory in MiB."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[1]} failed with status {status}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"wall_s": time.perf_counter() - start, "cpu_s": cpu, "peak_mib": usage.ru_maxrss / 1024}


def main(config: Config) -> None:
    """Make the file, run both on its beginning, check that their outputs are equal, and print the figures."""
    from cobalt.records import write_jsonl
    from cobalt.records.manifest import file_sha256

    with tempfile.TemporaryDirectory(prefix="bench_bandit_") as folder:
        work = Path(folder)
        source, part, tokenizer, plain = (
            work / name for name in ("in.jsonl", "part.jsonl", "tokenizer", "plain.jsonl")
        )
        lines, rng = code_lines(random.Random(SEED), 4000), random.Random(SEED)
        make_tokenizer(tokenizer, lines)
        write_jsonl(source, (make_problem(rng, index, lines) for index in range(config.problems)))
        with open(source) as file, open(part, "w") as out:
            out.writelines(itertools.islice(file, config.plain_problems))
        figures: dict[str, Any] = {"problems": config.problems, "input_gb": source.stat().st_size / 1e9}
        for name, given in (("ours", source), ("ours_part", part)):
            flags = ["--input_file", given, "--output_file", work / f"{name}.jsonl", "--model_name", tokenizer]
            figures[name] = measured([sys.executable, ROOT / "preproc/process_multi_turn_taco.py", *flags])
        figures["compared_on"] = config.plain_problems
        figures["plain"] = measured([sys.executable, __file__, "--plain", part, plain, tokenizer])
        figures["same_output"] = file_sha256(work / "ours_part.jsonl") == file_sha256(plain)
    for unit in ("wall_s", "cpu_s"):
        figures[f"speedup_{unit}"] = figures["plain"][unit] / figures["ours_part"][unit]
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        plain_way(*sys.argv[2:])
    else:
        from cobalt.cli.entry import run

        run(Config, main)
