"""Resuming: infrastructure failures are retried and only they; kill -9 loses and doubles nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from scripted import MultiplyingService, ScriptedEngine, make_plan, problem_rows, read_rows, run_plan, write_problems

from cobalt.errors import InputError, SetupError
from cobalt.inference import run
from cobalt.inference.driver import MAX_FAILURES_IN_A_ROW, unfinished
from cobalt.records import RecordFile, write_jsonl
from cobalt.records.manifest import journal_path

SEEDED_RUNS = Path(__file__).with_name("scripted.py")


def by_id(rows: list[dict[str, Any]]) -> dict[str, str]:
    assert len({json.dumps(row["id"]) for row in rows}) == len(rows)
    return {json.dumps(row["id"]): json.dumps(row, sort_keys=True) for row in rows}


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return write_problems(tmp_path / "problems.jsonl", 5)


async def undisturbed(problems: Path, tmp_path: Path, **changes: Any) -> dict[str, str]:
    plan = make_plan(problems, tmp_path / "undisturbed.jsonl", **changes)
    return by_id(await run_plan(plan))


async def test_engine_failures_are_marked_and_retried_alone(problems: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine()
    engine.failing = lambda messages, seed: len(messages) == 4 and seed % 3 == 0
    plan = make_plan(problems, tmp_path / "out.jsonl")
    with pytest.raises(SetupError, match="of 15 conversations met an infrastructure failure"):
        await run_plan(plan, engine)
    records = read_rows(plan.output_file)
    failed = 0
    for record in records:
        for sample in range(3):
            first, second, third = (record["public_pass_rates"][turn][sample] for turn in range(3))
            assert first is not None and (second is None) == (third is None)
            if second is None:
                failed += 1
                assert "scripted failure" in record["public_exec_results"][1][sample]["infra_error"]
                assert record["usage"][1][sample] is None
                assert len(record["conversations"][sample]) == 4
    assert 0 < failed < 15
    again = ScriptedEngine()
    assert by_id(await run_plan(plan, again)) == await undisturbed(problems, tmp_path)
    assert len(again.requests) == 2 * failed, "turns 1 and 2 of the failed conversations"


async def test_sandbox_failures_keep_the_response(problems: Path, tmp_path: Path) -> None:
    service = MultiplyingService()
    service.failing = lambda code: code == "k=2"
    plan = make_plan(problems, tmp_path / "out.jsonl", num_turns=0)
    with pytest.raises(SetupError):
        await run_plan(plan, service=service)
    again = ScriptedEngine()
    records = by_id(await run_plan(plan, again))
    assert records == await undisturbed(problems, tmp_path, num_turns=0)
    assert again.requests == []


async def test_a_run_that_stops_keeps_responses_whose_programs_could_not_run(problems: Path, tmp_path: Path) -> None:
    engine, service = ScriptedEngine(max_in_flight=1), MultiplyingService()
    service.failing = lambda code: True
    plan = make_plan(problems, tmp_path / "out.jsonl", num_turns=0, num_completions=20)
    await run_interrupted(plan, engine, requests=10, service=service)
    again = ScriptedEngine()
    assert by_id(await run_plan(plan, again)) == await undisturbed(problems, tmp_path, num_turns=0, num_completions=20)
    assert len(engine.requests) + len(again.requests) <= 5 * 20 + 2, "only what was in flight is generated again"


async def test_a_finished_run_is_not_run_again_and_keeps_its_settings(problems: Path, tmp_path: Path) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    before = await run_plan(plan)
    engine, service = ScriptedEngine(), MultiplyingService()
    assert await run_plan(plan, engine, service) == before
    assert not engine.requests and not service.runs
    assert not list(tmp_path.glob("*.journal"))
    for change, told in (({"num_turns": 3}, "num_turns: 2 -> 3"), ({"extraction": "released"}, "extraction")):
        with pytest.raises(InputError, match=told):
            await run_plan(make_plan(problems, plan.output_file, **change))
    engine.model_id = "other"
    with pytest.raises(InputError, match="model_id: 'scripted' -> 'other'"):
        await run_plan(plan, engine)
    service.checker = "lcb"
    with pytest.raises(InputError, match=r"execution: .*'exact'.* -> .*'lcb'"):
        await run_plan(plan, service=service)
    assert read_rows(plan.output_file) == before


async def test_an_input_that_grew_or_changed(problems: Path, tmp_path: Path) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    before = await run_plan(plan)
    rows = problem_rows(7)
    rows[2]["instruction"] += " Now with another text."
    write_jsonl(problems, rows)
    engine = ScriptedEngine()
    after = await run_plan(plan, engine)
    assert [row["id"] for row in after] == list(range(7))
    assert [old == new for old, new in zip(before, after, strict=False)] == [True, True, False, True, True]
    assert len(engine.requests) == 3 * 9


async def test_results_of_another_single_turn_file_are_not_replaced(problems: Path, tmp_path: Path) -> None:
    first, other = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for seed, output in enumerate((first, other)):
        await run_plan(make_plan(problems, output, num_turns=None, seed=seed))
    output = tmp_path / "out.jsonl"
    before = await run_plan(make_plan(first, output, from_scratch=False))
    with pytest.raises(InputError, match=r"out\.jsonl: 5 of its 5 records were made from other rows"):
        await run_plan(make_plan(other, output, from_scratch=False))
    assert read_rows(output) == before


async def test_a_completed_single_turn_file_completes_what_was_made_from_it(problems: Path, tmp_path: Path) -> None:
    single, output = tmp_path / "single.jsonl", tmp_path / "out.jsonl"
    engine = ScriptedEngine()
    engine.failing = lambda messages, seed: seed % 2 == 0
    for failing in (engine, None):
        for plan in (
            make_plan(problems, single, num_turns=None, max_infra_rate=1.0),
            make_plan(single, output, from_scratch=False, max_infra_rate=1.0),
        ):
            rows = await run_plan(plan, failing)
    assert not any(None in rates for row in rows for rates in row["public_pass_rates"])


async def run_interrupted(plan: Any, engine: ScriptedEngine, requests: int, service: Any = None) -> None:
    """Run ``plan`` until the engine has had so many requests, then break it off."""

    def interrupt(messages: Any, seed: int) -> bool:
        if len(engine.requests) == requests:
            raise RuntimeError("interrupted")
        return False

    engine.failing = interrupt
    with pytest.raises(RuntimeError, match="interrupted"):
        await run_plan(plan, engine, service)


async def test_the_journal_holds_turns_of_unfinished_problems_only(
    problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, each of which takes some 300 bytes: 9 turns of each problem, of which two are open at a time."""
    held = []

    class Watched(RecordFile):
        def append(self, row: Any) -> None:
            super().append(row)
            if self.path.suffix == ".journal":
                held.append(len(self))

    monkeypatch.setattr(run, "RecordFile", Watched)
    plan = make_plan(problems, tmp_path / "out.jsonl")
    await run_interrupted(plan, ScriptedEngine(max_in_flight=1), requests=30)
    journal = journal_path(plan.output_file)
    with RecordFile(plan.output_file) as output, RecordFile(journal, needed=unfinished(output, True)) as opened:
        assert len(output) >= 1
        assert len(opened) == len(read_rows(journal)) - 9 * len(output)
    await run_plan(plan, ScriptedEngine(max_in_flight=1))
    assert len(held) == 45 and max(held) <= 2 * 9


async def test_an_interrupted_run_goes_on_from_its_journal_with_the_same_settings(
    problems: Path, tmp_path: Path
) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    await run_interrupted(plan, ScriptedEngine(max_in_flight=1), requests=4)
    assert plan.output_file.read_bytes() == b"" and (tmp_path / "out.jsonl.journal").stat().st_size
    before = (tmp_path / "out.jsonl.manifest.json").read_bytes()
    with pytest.raises(InputError, match="num_turns: 2 -> 3"):
        await run_plan(make_plan(problems, plan.output_file, num_turns=3))
    assert (tmp_path / "out.jsonl.manifest.json").read_bytes() == before
    await run_interrupted(plan, ScriptedEngine(max_in_flight=2), requests=20)
    again = ScriptedEngine()
    assert by_id(await run_plan(plan, again)) == await undisturbed(problems, tmp_path)
    assert len(again.requests) <= 45 - 20 + 2, "only what was in flight is generated again"


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_refused_run_keeps_its_finished_turns_and_goes_on(
    problems: Path, tmp_path: Path, is_known: bool
) -> None:
    class Breaking(ScriptedEngine):
        async def generate(self, messages, sampling, seed):
            if len(self.requests) == 3:
                raise InputError("gave no Completion")
            return await super().generate(messages, sampling, seed)

    plan = make_plan(problems, tmp_path / "out.jsonl")
    if is_known:  # a finished run whose input has changed
        await run_plan(make_plan(write_problems(problems, 1), plan.output_file))
        write_problems(problems, 5)
    with pytest.raises(InputError, match="gave no Completion"):
        await run_plan(plan, Breaking(max_in_flight=1))
    assert json.loads((tmp_path / "out.jsonl.manifest.json").read_text())["status"] == "running"
    again = ScriptedEngine()
    assert by_id(await run_plan(plan, again)) == await undisturbed(problems, tmp_path)
    assert len(again.requests) <= 45 - 9 * is_known - 2


@pytest.mark.parametrize("turns", [None, 2])
async def test_a_damaged_record_of_an_earlier_run_is_named(problems: Path, tmp_path: Path, turns: int | None) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl", num_turns=turns)
    rows = await run_plan(plan)
    texts, results = ("responses", "exec_results") if turns is None else ("raw_responses", "public_exec_results")
    for change, told in (
        ({texts: None}, "TypeError"),
        ({results: "x"}, "delete"),
        ({results: [["x"] * 3] * 3}, "TypeError"),
        ({}, f"KeyError: '{texts}'"),
    ):
        damaged = {**rows[3], **change}
        if not change:
            del damaged[texts]
        write_jsonl(plan.output_file, [*rows[:3], damaged, rows[4]])
        with pytest.raises(InputError, match=rf"out\.jsonl: line 4: .*{told}.* this line"):
            await run_plan(plan)
    write_jsonl(plan.output_file, [*rows[:3], rows[4]])
    assert await run_plan(plan) == rows


async def test_a_damaged_journal_is_named(problems: Path, tmp_path: Path) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    await run_interrupted(plan, ScriptedEngine(max_in_flight=1), requests=4)
    journal = journal_path(plan.output_file)
    row = read_rows(journal)[0]
    for damaged, told in (({**row, "result": "x"}, "line 1: TypeError"), ({"id": row["id"]}, "line 1: KeyError")):
        write_jsonl(journal, [damaged])
        with pytest.raises(InputError, match=rf"journal: {told}"):
            await run_plan(plan)


async def test_a_run_that_is_refused_at_once_leaves_no_file(problems: Path, tmp_path: Path) -> None:
    class Useless(ScriptedEngine):
        async def generate(self, messages, sampling, seed):
            raise InputError("gave no Completion")

    with pytest.raises(InputError, match="gave no Completion"):
        await run_plan(make_plan(problems, tmp_path / "out.jsonl"), Useless())
    assert not list(tmp_path.glob("out.jsonl*"))


async def test_a_journal_without_a_manifest_is_named(problems: Path, tmp_path: Path) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    await run_interrupted(plan, ScriptedEngine(max_in_flight=1), requests=4)
    (tmp_path / "out.jsonl.manifest.json").unlink()
    with pytest.raises(InputError, match=r"out\.jsonl\.journal: exists but has no manifest"):
        await run_plan(plan)


async def test_a_second_run_on_the_same_output_is_refused(problems: Path, tmp_path: Path) -> None:
    class Twice(ScriptedEngine):
        refused = 0

        async def generate(self, messages, sampling, seed):
            if len(self.requests) == 10:
                with pytest.raises(InputError, match="another process is writing it"):
                    await run_plan(plan)
                self.refused += 1
            return await super().generate(messages, sampling, seed)

    engine, plan = Twice(), make_plan(problems, tmp_path / "out.jsonl")
    assert by_id(await run_plan(plan, engine)) == await undisturbed(problems, tmp_path)
    assert engine.refused == 1 and not list(tmp_path.glob("*.journal"))


async def test_a_smaller_input_deletes_nothing(problems: Path, tmp_path: Path) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl")
    await run_plan(plan)
    before = {path: path.read_bytes() for path in tmp_path.glob("out.jsonl*")}
    write_problems(problems, 2)
    with pytest.raises(InputError, match="3 of its 5 records have ids that the input lacks"):
        await run_plan(plan)
    assert {path: path.read_bytes() for path in tmp_path.glob("out.jsonl*")} == before


def counts(output: Path) -> dict[str, Any]:
    found = json.loads(Path(f"{output}.manifest.json").read_text())["counts"]
    return {name: found[name] for name in ("requests", "prompt_tokens", "completion_tokens", "cost_usd")}


async def test_the_manifest_counts_what_earlier_runs_used(problems: Path, tmp_path: Path) -> None:
    first = write_problems(tmp_path / "first.jsonl", 2)
    output = tmp_path / "out.jsonl"
    await run_plan(make_plan(first, output))
    await run_plan(make_plan(problems, output))
    await undisturbed(problems, tmp_path)
    assert counts(output) == counts(tmp_path / "undisturbed.jsonl")
    assert counts(output)["cost_usd"] == 0.25 * 45


async def test_a_dead_engine_stops_the_run(tmp_path: Path) -> None:
    problems = write_problems(tmp_path / "problems.jsonl", 200)
    engine = ScriptedEngine()
    engine.failing = lambda messages, seed: True
    with pytest.raises(SetupError, match=f"failed {MAX_FAILURES_IN_A_ROW} times in a row"):
        await run_plan(make_plan(problems, tmp_path / "out.jsonl"), engine)
    assert len(engine.requests) < 3 * MAX_FAILURES_IN_A_ROW


def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    """A run is killed eight times, each time after a random part of what it writes, and then comes to its end."""
    source = write_problems(tmp_path / "problems.jsonl", 30)
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    journal = journal_path(killed)

    def written() -> int:
        return sum(path.stat().st_size for path in (killed, journal) if path.exists())

    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    moments, codes = random.Random(0), []
    with subprocess.Popen([sys.executable, SEEDED_RUNS], **pipes) as runs:

        def start(output: Path) -> int:
            print(source, output, file=runs.stdin, flush=True)
            return int(runs.stdout.readline())

        for _ in range(8):
            wanted = written() + moments.randrange(1, 30_000)
            process = start(killed)
            while Path(f"/proc/{process}").exists() and written() < wanted:
                time.sleep(0.002)
            time.sleep(moments.random() * 0.02)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            codes.append(int(runs.stdout.readline()))
        for output in (killed, whole):
            start(output)
            codes.append(int(runs.stdout.readline()))
        runs.stdin.close()
    assert codes[-2:] == [0, 0] and -signal.SIGKILL in codes
    assert by_id(read_rows(killed)) == by_id(read_rows(whole))
    assert not journal.exists()
