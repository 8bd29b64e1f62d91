"""How fast and how small the bandit builder is: this project's command against the plain way, on the same file.

The plain way holds the whole file in memory and tokenizes every prefix of every selected trajectory from scratch, in
one process. Both must write the same bytes. Full size (writes some 5 GB, which it deletes, and takes about half an hour
on two free cores; ``--plain_problems`` bounds the plain way's share of that):

    python benchmarks/bench_bandit.py --problems 20000

Prints and writes (``--output``) wall and processor seconds, peak resident memory and the ratios.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STATEMENT_LINES, PROGRAM_LINES, THINKING_LINES, FEEDBACK_LINES = 30, 24, 10, 9
NUM_TESTS, NUM_PUBLIC = 20, 4
SEED = 42


@dataclass(frozen=True)
class Config:
    """Compare the streaming builder with tokenizing every prefix from scratch."""

    problems: int = 20_000
    """Problems in the synthetic file."""
    trajectories: int = 16
    """Trajectories per problem."""
    turns: int = 3
    """Programs per trajectory."""
    plain_problems: int | None = None
    """Compare on the first so many problems only; the streaming builder also runs on all of them."""
    work_dir: str | None = None
    """Where the files go; a temporary directory by default. Removed at the end."""
    output: str | None = None
    """Also write the figures to this JSON file."""


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


def make_problem(rng: random.Random, index: int, lines: list[str], config: Config) -> dict[str, Any]:
    """One evaluated problem with rates that wander upwards."""
    from cobalt.prompts import ALL_PASSED, feedback_message, first_messages

    def text(count: int) -> str:
        return "\n".join(rng.choices(lines, k=count))

    tests = {"inputs": [str(i) for i in range(NUM_TESTS)], "outputs": [str(i) for i in range(NUM_TESTS)]}
    public = {name: values[:NUM_PUBLIC] for name, values in tests.items()}
    opening = first_messages(f"Problem {index}\n{text(STATEMENT_LINES)}")
    conversations, raw_NT, rates_NT = [], [], []
    for _ in range(config.trajectories):
        messages, raw_T, rates_T = list(opening), [], []
        for _ in range(config.turns):
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


def write_problems(path: Path, lines: list[str], config: Config) -> None:
    """The synthetic evaluation file."""
    rng = random.Random(SEED)
    with open(path, "w") as file:
        for index in range(config.problems):
            file.write(json.dumps(make_problem(rng, index, lines, config)) + "\n")


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
            tokens_C = [
                len(
                    tokenizer.apply_chat_template(
                        context.conversation, add_generation_prompt=True, tokenize=True, return_dict=False
                    )
                )
                for context in contexts_C
            ]
            kept = cut_overlong(contexts_C, tokens_C, settings.max_prompt_tokens)
            records += [context.to_record() for context in kept]
    order = output_order(len(records), 0, 0.0, SEED)
    write_jsonl(output_file, (records[i] for i in order))


def measured(command: list[str]) -> dict[str, float]:
    """Run a command; wall seconds and peak resident memory in MiB."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[1]} failed with status {status}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"wall_s": time.perf_counter() - start, "cpu_s": cpu, "peak_mib": usage.ru_maxrss / 1024}


def run_ours(source: Path, output: Path, tokenizer: Path) -> dict[str, float]:
    """This project's command."""
    entry = str(ROOT / "preproc/process_multi_turn_taco.py")
    flags = ["--input_file", str(source), "--output_file", str(output), "--model_name", str(tokenizer)]
    return measured([sys.executable, entry, *flags])


def compare(config: Config, work: Path) -> dict[str, Any]:
    """Make the file, run both, check that the outputs are equal."""
    from cobalt.records.manifest import file_sha256

    source, tokenizer, ours, plain = (work / name for name in ("in.jsonl", "tokenizer", "ours.jsonl", "plain.jsonl"))
    lines = code_lines(random.Random(SEED), 4000)
    make_tokenizer(tokenizer, lines)
    write_problems(source, lines, config)
    figures: dict[str, Any] = {"problems": config.problems, "input_gb": source.stat().st_size / 1e9}
    figures["ours"] = run_ours(source, ours, tokenizer)
    if config.plain_problems is not None:
        source = first_lines(source, config.plain_problems)
        ours = work / "ours_part.jsonl"
        figures |= {"compared_on": config.plain_problems, "ours_part": run_ours(source, ours, tokenizer)}
    figures["plain"] = measured([sys.executable, __file__, "--plain", str(source), str(plain), str(tokenizer)])
    figures["same_output"] = file_sha256(ours) == file_sha256(plain)
    compared = figures.get("ours_part", figures["ours"])
    for unit in ("wall_s", "cpu_s"):
        figures[f"speedup_{unit}"] = figures["plain"][unit] / compared[unit]
    return figures


def first_lines(path: Path, count: int) -> Path:
    """A file with the first ``count`` lines of ``path``."""
    part = path.with_name("part.jsonl")
    with open(path) as file, open(part, "w") as out:
        out.writelines(itertools.islice(file, count))
    return part


def main(config: Config) -> None:
    """Run the comparison and print the figures."""
    work = Path(tempfile.mkdtemp(prefix="bench_bandit_", dir=config.work_dir))
    try:
        figures = compare(config, work)
    finally:
        shutil.rmtree(work)
    text = json.dumps(figures, indent=2)
    print(text)
    if config.output is not None:
        Path(config.output).write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        plain_way(*sys.argv[2:])
    else:
        from cobalt.cli.entry import run

        run(Config, main)
