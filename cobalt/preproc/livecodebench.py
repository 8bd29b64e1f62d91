"""``preproc_lcb_test6.py``: LiveCodeBench's file to problems, streaming. Its hidden tests are never uploaded."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import InputFile, OutputFile, ReadConfig
from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.errors import InputError
from cobalt.preproc.cards import NOT_REDISTRIBUTABLE, CardInfo, publish
from cobalt.preproc.livecodebench_rows import FIELDS, Functional, contest_day, is_functional, prepare
from cobalt.prompts import PromptSet, described, prompt_content
from cobalt.records import read_jsonl, write_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import recorded_run

SOURCE_LINK = "[LiveCodeBench](https://huggingface.co/datasets/livecodebench/code_generation_lite)"


@dataclass(frozen=True, kw_only=True)
class LiveCodeBenchConfig(PromptsConfig, ReadConfig):
    """Prepare LiveCodeBench problems for evaluation."""

    input_file: InputFile = Path("test6.jsonl")
    """The file downloaded from livecodebench/code_generation_lite."""
    output_file: OutputFile = Path("data/lcb_v6.jsonl")
    """Problems (JSONL). Keep them to yourself: hidden tests must not be redistributed."""
    functional: Functional = "call"
    """Problems that ask for a method: call it (official), or treat all as stdin programs (the paper's numbers)."""
    keep_examples: bool = False
    """Keep the worked examples in the statement."""
    start_date: date | None = None
    """Only contests on or after this day (YYYY-MM-DD)."""
    end_date: date | None = None
    """Only contests on or before this day (YYYY-MM-DD)."""
    push_to_hub: str | None = None
    """Always refused: LiveCodeBench's hidden tests must not be redistributed."""

    @property
    def method(self) -> dict[str, str]:
        """The settings that change the output."""
        dates = {"start_date": str(self.start_date), "end_date": str(self.end_date)}
        return {"functional": self.functional, "keep_examples": str(self.keep_examples), **dates}


def main(config: LiveCodeBenchConfig) -> None:
    """Prepare the problems in ``config.input_file``; see the command's flags."""
    if config.push_to_hub is not None:
        raise InputError(f"--push_to_hub {config.push_to_hub}: {NOT_REDISTRIBUTABLE}")
    if config.start_date and config.end_date and config.start_date > config.end_date:
        raise InputError(f"--start_date {config.start_date} lies after --end_date {config.end_date}")
    prompts = config.prompt_set()
    contents = {config.output_file: {**config.method, **prompt_content(prompts)}}
    counts: Counter[str] = Counter(read=0)
    with recorded_run("preproc_lcb_test6", asdict(config), [config.input_file], contents) as run:
        counts["written"] = write_jsonl(config.output_file, _problems(config, prompts, counts))
        run.counts, run.origin = dict(counts), {"prompts": described(prompts)}
    print_summary(f"LiveCodeBench problems: {config.output_file}", counts)
    rules = [f"{name}: {value}" for name, value in config.method.items()]
    info = CardInfo("LiveCodeBench problems: do not redistribute", rules, counts, source=SOURCE_LINK)
    publish(info, [config.output_file], [config.input_file], repo_id=None)


def _problems(config: LiveCodeBenchConfig, prompts: PromptSet, counts: Counter[str]) -> Iterator[Record]:
    invalid = InvalidLines(config.skip_invalid)
    rows = read_jsonl(
        config.input_file,
        FIELDS,
        unique="question_id",
        parse=partial(_prepare, config=config, prompts=prompts),
        on_invalid=invalid.handler,
    )
    for record in with_progress(rows, config.input_file):
        counts["read"] += 1
        if record is None:
            counts["left out: outside the dates"] += 1
            continue
        counts[f"platform {record['platform']}"] += 1
        counts["function call" if is_functional(record) else "stdin"] += 1
        yield record
    counts["invalid lines skipped"] = invalid.count


def _prepare(row: Record, config: LiveCodeBenchConfig, prompts: PromptSet) -> Record | None:
    """The problem, or None if its contest lies outside the dates. Complaints carry the problem's id."""
    try:
        day = contest_day(row)
        if (config.start_date and day < config.start_date) or (config.end_date and day > config.end_date):
            return None
        return prepare(row, config.functional, config.keep_examples, prompts)
    except ValueError as error:
        raise ValueError(f"problem {row['question_id']!r}: {error}") from None
