"""``cobalt minicode3 corpus``: the pre-training corpus of MiniCode 3 as shards of tokens, and its tokenizer.

A sample is (prompt after t programs, response at turn t). Prompts are those of ``cobalt.prompts``; their history holds
what inference with ``--enable_thinking`` keeps. Only the response is trained on. OUTPUT_DIR then holds ``tokenizer/``,
shards ``clean-0000.npz``, ``noisy-0000.npz``, ..., and ``corpus.json``. A killed run continues with the missing shards.

The noisy shards come last in training. They leave a policy that reinforcement learning can improve: it often trusts
its reading without running anything, and sometimes writes another step than it planned.
"""

import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import CommandConfig, NotNegative, Positive, Share
from cobalt.errors import InputError
from cobalt.inference.conversation import history_text
from cobalt.prompts import feedback_message, first_messages
from cobalt.records.jsonl import write_whole
from cobalt.records.manifest import whole_folder
from studies.minicode.corpus import SAMPLES_PER_PROBLEM, TURN_WEIGHTS, WIDER_SHARE, TokenizedCorpus
from studies.minicode.tokenizer import TURN_END, fixed_texts, render_prompt, train_tokenizer
from studies.minicode3.problems import FIXED_SENTENCES, sample_problem
from studies.minicode3.thinking import CLEAN, Dialogue, Noise, careful_attempt, sloppy_attempt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PIECES = r"\n {4,}|\n| ?\d| ?[A-Za-z_]+| ?[^\sA-Za-z_\d]+|\s"
"""Pre-tokenization: a line's indentation, digits one by one, names and words apart from what stands around them."""
VOCABULARY = 1536
"""All tokens together: a size that GPUs like."""
TOKENIZER_PROBLEMS = 600
KEEP_SHARE = 0.15
"""Share of the conversations that may go on after their program has passed."""
LONGEST_THINKING, LONGEST_SAMPLE = 2000, 4096
"""In tokens; longer samples are dropped."""
TOKENIZER, CORPUS = "tokenizer", "corpus.json"


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(CommandConfig):
    """Make MiniCode 3's pre-training corpus. The seed alone decides every shard, whatever the number of workers."""

    output_dir: Path = Path("data/minicode3_corpus")
    seed: int = 0
    clean_shards: NotNegative = 100
    noisy_shards: NotNegative = 16
    problems_per_shard: Positive = 1200
    """With five samples each: about 5 million tokens."""
    thinking: Literal["traces", "none", "shuffled"] = "traces"
    """none, shuffled: for ablations, no thinking or that of another sample."""
    careless: Share = 0.75
    """Noisy shards: share of the responses that run nothing."""
    stubborn: Share = 0.5
    """Noisy shards: share of the careless repairs that read everything as the failed program has it."""
    misread: Share = 0.3
    """Noisy shards: share of the steps that are read as another one."""
    slip: Share = 0.05
    """Noisy shards: share of the steps that are written as another one."""
    workers: NotNegative = 0
    """Processes; 0: one per core."""


class Sample(NamedTuple):
    """One training sample as text."""

    prompt: str
    response: str
    turn: int


def sample_dialogues(rng: random.Random, noise: Noise, num_problems: int, thinking: str = "traces") -> Iterator[Sample]:
    """Samples on new problems of the splits train and wider."""
    other_trace = ""
    for _ in range(num_problems):
        split = "wider" if rng.random() < WIDER_SHARE else "train"
        problem = sample_problem(rng, split, with_hidden_tests=False)
        for _ in range(SAMPLES_PER_PROBLEM):
            dialogue = Dialogue(problem)
            turn = rng.choices(range(len(TURN_WEIGHTS)), TURN_WEIGHTS)[0]
            keep = rng.random() < KEEP_SHARE
            while len(dialogue.attempts) < turn:
                attempt = sloppy_attempt(rng, dialogue)
                if not keep and not attempt.cut and attempt.pipeline == problem.pipeline:
                    break
                dialogue.add(attempt)
            answer = careful_attempt(rng, dialogue, noise)
            messages = first_messages(problem.instruction)
            for attempt, feedback in zip(dialogue.attempts, dialogue.feedbacks, strict=True):
                messages.append({"role": "assistant", "content": history_text(attempt.response, enable_thinking=True)})
                messages.append(feedback_message(feedback))
            response = answer.response
            if thinking != "traces":
                put = other_trace if thinking == "shuffled" else ""
                other_trace, response = answer.thinking, response.replace(answer.thinking, put)
            yield Sample(render_prompt(messages), f"{response}{TURN_END}", len(dialogue.attempts))


def new_tokenizer(seed: int) -> "PreTrainedTokenizerFast":
    """A tokenizer of ``VOCABULARY`` tokens, the same for every corpus of this seed, whatever its noise."""
    samples = sample_dialogues(random.Random(f"{seed}-tokenizer"), CLEAN, TOKENIZER_PROBLEMS)
    texts = [sample.prompt + sample.response for sample in samples]
    size = VOCABULARY - len({*fixed_texts(FIXED_SENTENCES), "<think>", "</think>", "```python"})
    tokenizer = train_tokenizer(texts, size, FIXED_SENTENCES, PIECES)
    assert len(tokenizer) == VOCABULARY
    return tokenizer


def tokenized(tokenizer: "PreTrainedTokenizerFast", samples: Sequence[Sample]) -> tuple[TokenizedCorpus, list[int]]:
    """The samples that are not too long, and the number of thinking tokens of each."""
    import numpy as np

    # Not encode_batch: it would wait for threads that a fork does not copy.
    encode = partial(tokenizer.backend_tokenizer.encode, add_special_tokens=False)
    end_of_thinking = tokenizer.convert_tokens_to_ids("</think>")
    rows, starts, thinking = [], [], []
    for sample in samples:
        prompt, response = encode(sample.prompt).ids, encode(sample.response).ids
        num_thinking = response.index(end_of_thinking) - 1  # without <think>
        if num_thinking <= LONGEST_THINKING and len(prompt) + len(response) <= LONGEST_SAMPLE:
            rows.append(np.array(prompt + response, np.uint16))
            starts.append(len(prompt))
            thinking.append(num_thinking)
    lengths = np.array([*map(len, rows)], np.int32)
    return TokenizedCorpus(np.concatenate(rows), lengths, np.array(starts, np.int32)), thinking


def _write_shard(
    tokenizer: "PreTrainedTokenizerFast", thinking: str, num_problems: int, shard: tuple[Path, str, Noise]
) -> dict[str, Any]:
    """Make one shard; its numbers of samples and tokens, and the processor seconds it took."""
    import numpy as np

    path, seed, noise = shard
    started = time.process_time()
    samples = [*sample_dialogues(random.Random(seed), noise, num_problems, thinking)]
    corpus, thinking_lengths = tokenized(tokenizer, samples)
    partial_path = path.with_name(f"partial-{path.name}")
    np.savez(partial_path, tokens=corpus.tokens, lengths=corpus.lengths_E, starts=corpus.starts_E)
    partial_path.replace(path)
    quantiles = np.percentile(thinking_lengths, (5, 50, 95)).round().astype(int).tolist()
    return {
        "shard": path.stem,
        "samples": len(corpus.lengths_E),
        "too_long": len(samples) - len(corpus.lengths_E),
        "tokens": len(corpus.tokens),
        "response_tokens": int((corpus.lengths_E - corpus.starts_E).sum()),
        "thinking_5_50_95": quantiles,
        "cpu_s": round(time.process_time() - started, 2),
    }


def read_shards(folder: Path, phase: str) -> TokenizedCorpus:
    """All shards of a phase, in their order."""
    import numpy as np

    files = sorted(folder.glob(f"{phase}-????.npz"))
    if not files:
        raise InputError(f"--corpus {folder}: no {phase} shards; cobalt minicode3 corpus makes them")
    shards = [np.load(file) for file in files]
    return TokenizedCorpus(
        *(np.concatenate([shard[name] for shard in shards]) for name in ("tokens", "lengths", "starts"))
    )


def save_record(file: Path, record: dict[str, Any]) -> None:
    write_whole(file, json.dumps(record, indent=1, sort_keys=True) + "\n")


def main(config: CorpusConfig) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import AutoTokenizer

    # The same settings as those that began this folder; the shards that are there are kept.
    noisy = Noise(config.misread, careless=config.careless, stubborn=config.stubborn, slip=config.slip)
    record_file, settings = config.output_dir / CORPUS, asdict(config)
    content = {name: settings[name] for name in settings if name not in ("output_dir", "workers")}
    record: dict[str, Any] = {"settings": content, "shards": {}}
    if record_file.exists():
        record = json.loads(record_file.read_text())
        numbers = ("clean_shards", "noisy_shards")  # there may be more of them later
        if any(record["settings"][name] != value for name, value in content.items() if name not in numbers):
            raise InputError(f"--output_dir {config.output_dir}: begun with other settings ({CORPUS}); choose another")
        record["settings"] = content
    save_record(record_file, record)
    if not (config.output_dir / TOKENIZER).exists():
        with whole_folder(config.output_dir / TOKENIZER) as folder:
            new_tokenizer(config.seed).save_pretrained(folder)
            settings_file = folder / "tokenizer_config.json"
            # transformers 5 names a class that version 4 does not know
            known = json.loads(settings_file.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
            settings_file.write_text(json.dumps(known, indent=2))
    tokenizer = AutoTokenizer.from_pretrained(config.output_dir / TOKENIZER)

    kinds = [("clean", i, CLEAN) for i in range(config.clean_shards)]
    kinds += [("noisy", i, noisy) for i in range(config.noisy_shards)]
    shards = [
        (config.output_dir / f"{kind}-{i:04d}.npz", f"{config.seed}-{kind}-{i}", noise)
        for kind, i, noise in kinds
        if not (config.output_dir / f"{kind}-{i:04d}.npz").exists() or f"{kind}-{i:04d}" not in record["shards"]
    ]
    make = partial(_write_shard, tokenizer, config.thinking, config.problems_per_shard)
    workers = config.workers or len(os.sched_getaffinity(0))
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        done = pool.imap_unordered(make, shards)
        for made in progress_bar(iterable=done, total=len(shards), desc="corpus", unit=" shards"):
            record["shards"][made.pop("shard")] = made
            save_record(record_file, record)
    totals = {
        name: sum(shard[name] for shard in record["shards"].values())
        for name in ("samples", "too_long", "tokens", "response_tokens")
    }
    seconds = sum(shard["cpu_s"] for shard in record["shards"].values())
    print_summary(
        f"corpus: {config.output_dir}",
        {**totals, "tokens per second of one core": round(totals["tokens"] / max(seconds, 0.01))},
    )
