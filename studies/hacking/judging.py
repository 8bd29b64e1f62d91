"""``run_llm_judge.py``: a model sorts hacking cases into four categories.

Votes are stored case by case; a rerun asks only for what is missing, votes that failed for infrastructure reasons
included.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, progress_bar
from cobalt.cli.flags import InputFile, ModelName, NumCompletions, OutputFile, Positive, ReadConfig, Share
from cobalt.completion import Sampling
from cobalt.errors import InputError
from cobalt.inference.endpoints import open_litellm_engine
from cobalt.inference.engines import Engine
from cobalt.inference.flags import LitellmConfig, ReasoningEffort
from cobalt.prompts import JUDGE_FIELDS, OWN_NAME, JudgeTexts, load_judge
from cobalt.records import RecordFile, id_key, read_jsonl, row_hash
from cobalt.records.jsonl import InvalidLines
from cobalt.records.manifest import recorded_run, refuse_infra_rate
from studies.hacking.judge_prompt import OWN, judge_content
from studies.hacking.votes import Judge, Vote, cast_vote, judged_record, stored_votes

CASE_FIELDS = ("id", *JUDGE_FIELDS)


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(LitellmConfig, ReadConfig):
    """Sort hacking cases into four categories by a model's votes."""

    input_file: InputFile
    """Cases from extract_turn_level_errors.py."""
    output_file: OutputFile
    """Judged cases (JSONL); an unfinished or partly failed file is resumed."""
    model_name: ModelName = "gpt-5-2025-08-07"
    """Model as LiteLLM names it: OpenAI, `bedrock/...`, or `openai/NAME` with --api_base for any compatible server."""
    reasoning_effort: ReasoningEffort = "low"
    """Passed to models that take one."""
    num_completions: NumCompletions = 1
    """Votes per case."""
    attempts: Positive = 3
    """How often a vote is asked for until a category can be read from the answer."""
    seed: int = 42
    """Seed of the run, for models that take one per request."""
    max_in_flight: Positive | None = None
    """Most requests in flight; default: what the engine reports."""
    max_infra_rate: Share = 0.01
    """Exit with 3 if a larger share of votes could not be had."""
    prompts: str = OWN_NAME
    """What the judge is asked: `cobalt`, or the texts under `judge` in a prompt set's file (docs/formats.md)."""

    def texts(self) -> JudgeTexts:
        """What the judge is asked. Raises ``InputError`` for a file that does not say it."""
        return load_judge(self.prompts, OWN)


def judge(config: JudgeConfig) -> None:
    """Run the command."""
    config.texts()
    invalid = InvalidLines(config.skip_invalid)
    cases = read_cases(config.input_file, invalid)
    counts, causes = asyncio.run(_judge_with_engine(config, cases, invalid.count))
    print_summary("Judge", _shown(counts))
    refuse_infra_rate(counts["infra_errors"], counts["votes"], "votes", config.max_infra_rate, causes)


async def _judge_with_engine(
    config: JudgeConfig, cases: Sequence[dict[str, Any]], skipped: int
) -> tuple[dict[str, Any], Counter[str]]:
    """Open the engine, judge, keep the manifest; returns the counts, and the causes of failures."""
    async with open_litellm_engine(config, config.max_in_flight) as engine:
        contents = {config.output_file: _content(config, engine)}
        with recorded_run("run_llm_judge", asdict(config), [config.input_file], contents) as run:
            records = await judge_cases(config, engine, cases)
            run.counts = {**summarise_votes(records), "invalid_lines_skipped": skipped}
    return run.counts, Counter(record["infra_error"] for record in records if record["infra_error"] is not None)


def _content(config: JudgeConfig, engine: Engine) -> dict[str, Any]:
    names = ("num_completions", "reasoning_effort", "temperature", "top_p", "max_tokens", "attempts", "seed")
    settings = {name: getattr(config, name) for name in names}
    return {**judge_content(config.texts()), "model": engine.model_id, **settings}


def read_cases(path: Path, invalid: InvalidLines) -> list[dict[str, Any]]:
    """Hacking cases with their ``judge_seq_id``. Refuses two of the same.

    It is ``<id>-<trajectory>-<turn>``; in released files, which lack these two, ``<id>-<number>``: the case's place
    among those of its problem, from 0.
    """
    seen: Counter[str] = Counter()
    cases = []
    for row in read_jsonl(path, CASE_FIELDS, unique=None, on_invalid=invalid.handler, may_be_empty=True):
        place = [row[name] for name in ("trajectory", "turn") if name in row] or [seen[id_key(row["id"])]]
        seen[id_key(row["id"])] += 1
        cases.append({**row, "judge_seq_id": "-".join(map(str, (row["id"], *place)))})
    repeated = [name for name, count in Counter(case["judge_seq_id"] for case in cases).items() if count > 1]
    if repeated:
        raise InputError.at(path, None, f"two cases with id-trajectory-turn {repeated[0]}")
    return cases


async def judge_cases(config: JudgeConfig, engine: Engine, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All cases judged, in the order given; the output file is complete afterwards."""
    sampling = Sampling(config.temperature, config.top_p, config.max_tokens)
    asked = Judge(engine, sampling, config.seed, config.attempts, config.texts())
    slots = asyncio.Semaphore(engine.max_in_flight)
    names = [case["judge_seq_id"] for case in cases]
    with RecordFile(config.output_file, id_field="judge_seq_id") as stored:
        stored.refuse_loss(names)
        with progress_bar(total=len(cases), unit="case") as bar:
            await asyncio.gather(*(_judge_case(config, asked, slots, stored, case, bar) for case in cases))
        stored.finish(names)
    return list(read_jsonl(config.output_file, unique="judge_seq_id", may_be_empty=True))


async def _judge_case(
    config: JudgeConfig, asked: Judge, slots: asyncio.Semaphore, stored: RecordFile, case: dict[str, Any], bar: Any
) -> None:
    input_hash, name = row_hash(case), case["judge_seq_id"]
    old = stored.get(name, input_hash)
    votes: list[Vote | None] = [None] * config.num_completions if old is None else stored_votes(old)
    missing = [number for number, vote in enumerate(votes) if vote is None]

    async def ask(number: int) -> Vote:
        async with slots:
            return await cast_vote(asked, asked.texts.messages(case), name, number)

    for number, vote in zip(missing, await asyncio.gather(*map(ask, missing)), strict=True):
        votes[number] = vote
    if missing:
        complete = [vote for vote in votes if vote is not None]
        stored.append({**judged_record(case, complete), "input_hash": input_hash})
    bar.update(1)


def summarise_votes(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Cases by majority, mean agreement, failed votes, tokens and cost in US dollars."""
    usage = [entry for record in records for entry in record["usage"]]
    costs = [entry["cost"] for entry in usage if entry["cost"] is not None]
    agreements = [record["agreement"] for record in records if record["agreement"] is not None]
    return {
        "cases": len(records),
        "votes": len(usage),
        "unknown_votes": sum(record["classification"].count("Unknown") for record in records),
        "infra_errors": sum(record["classification"].count(None) for record in records),
        "majority": dict(sorted(Counter(r["majority"] for r in records if r["majority"] is not None).items())),
        "mean_agreement": sum(agreements) / len(agreements) if agreements else None,
        "attempts": sum(entry["attempts"] for entry in usage),
        "prompt_tokens": sum(entry["prompt_tokens"] for entry in usage),
        "completion_tokens": sum(entry["completion_tokens"] for entry in usage),
        "cost_usd": sum(costs) if costs else None,
    }


def _shown(counts: Mapping[str, Any]) -> dict[str, Any]:
    rows = {name.replace("_", " "): value for name, value in counts.items() if name != "majority"}
    return {**rows, **counts["majority"]}
