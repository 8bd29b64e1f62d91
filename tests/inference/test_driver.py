"""The driver: records, turns, seeds, concurrency."""

import asyncio
import gc
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from scripted import MultiplyingService, ScriptedEngine, make_plan, problem_rows, read_rows, run_plan, write_problems

from cobalt.cli import console
from cobalt.cli.tasks import for_each
from cobalt.completion import Completion, request_seed
from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.inference import run as run_module
from cobalt.inference.conversation import history_text
from cobalt.prompts import (
    ALL_PASSED,
    COBALT,
    FEEDBACK_MARKER,
    described,
    feedback_of_message,
    feedback_to_policy,
    with_feedback,
)
from cobalt.records import TestCases, write_jsonl


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return write_problems(tmp_path / "problems.jsonl", 5)


def manifest_of(output: Path) -> dict:
    return json.loads(Path(f"{output}.manifest.json").read_text())


async def test_multi_turn_record_and_seeds(problems: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine()
    for record in await run_plan(make_plan(problems, tmp_path / "out.jsonl"), engine):
        for name in ("raw_responses", "public_pass_rates", "public_exec_results", "usage"):
            assert [len(turn) for turn in record[name]] == [3, 3, 3]
        for sample, messages in enumerate(record["conversations"]):
            assert [message["role"] for message in messages] == ["system", "user"] + ["assistant", "user"] * 3
            assert [m["content"] for m in messages[2::2]] == [turn[sample] for turn in record["raw_responses"]]
            for turn in range(3):
                result = record["public_exec_results"][turn][sample]
                shown = zip(result["feedback"], result["passing"], strict=True)
                failed = [text for text, passed in shown if not passed]
                assert feedback_of_message(messages[3 + 2 * turn]["content"]) == (failed or [ALL_PASSED])[0]
                assert record["public_pass_rates"][turn][sample] == sum(result["passing"]) / 4
    seeds = {request_seed(1, id_, sample, turn) for id_ in range(5) for sample in range(3) for turn in range(3)}
    assert {seed for _, _, seed in engine.requests} == seeds
    assert len(engine.requests) == len(seeds) == 5 * 3 * 3, "each request has a seed of its own"
    assert len({request_seed(1, id_, 0, 0) for id_ in (0, "0", "", None, [0])}) == 5


async def test_history_without_thinking(problems: Path, tmp_path: Path) -> None:
    class Thinker(ScriptedEngine):
        async def generate(self, messages, sampling, seed):
            await super().generate(messages, sampling, seed)
            return Completion("<think>```python\nk=9\n```</think> a </think>" + "x" * 7000, 1, 1, "stop")

    engine, service = Thinker(), MultiplyingService()
    plan = make_plan(problems, tmp_path / "out.jsonl", enable_thinking=True, extraction="released")
    for record in await run_plan(plan, engine, service):
        assert all(m["content"] == "x" * 6000 for m in record["conversations"][0] if m["role"] == "assistant")
        assert record["raw_responses"][0][0].startswith("<think>") and record["extraction"] == "released"
    assert {code for code, _ in service.runs} == {"k=9"}, "public tests run on the raw response"
    counts = manifest_of(plan.output_file)["counts"]
    assert (counts["history_changes_program"], counts["cost_usd"]) == (45, None), "the engine has no price"
    assert counts["extraction_differs"] == 45
    # It is stripped before it is cut.
    assert history_text("<think>a</think>\n\n Answer \n", enable_thinking=True) == "Answer"
    assert history_text("</think>" + " " * 100 + "x" * 7000, enable_thinking=True) == "x" * 6000
    assert history_text("<think>a</think>\n\nAnswer\n", enable_thinking=False) == "<think>a</think>\n\nAnswer\n"


@pytest.mark.parametrize("start", ["<think>\n", ""])  # some chat templates begin the thinking in the prompt
async def test_a_response_that_was_cut_inside_its_thinking_leaves_nothing(
    problems: Path, tmp_path: Path, start: str
) -> None:
    class Thinker(ScriptedEngine):
        async def generate(self, messages, sampling, seed):
            await super().generate(messages, sampling, seed)
            return Completion(f"{start}Perhaps\n```python\nk=1\n```\nWait", 1, 1, "length")

    service = MultiplyingService()
    plan = make_plan(problems, tmp_path / "out.jsonl", enable_thinking=True)
    for record in await run_plan(plan, Thinker(), service):
        assert all(m["content"] == "" for m in record["conversations"][0] if m["role"] == "assistant")
    assert {code for code, _ in service.runs} == {None}


async def test_single_turn_records_and_the_first_turn_from_their_file(problems: Path, tmp_path: Path) -> None:
    single = tmp_path / "single.jsonl"
    plan = make_plan(problems, single, num_turns=None, num_completions=4)
    firsts = await run_plan(plan)
    assert [first["id"] for first in firsts] == [0, 1, 2, 3, 4]
    for first, row in zip(firsts, problem_rows(5), strict=True):
        assert first.items() >= row.items()
        assert len(first["responses"]) == len(first["exec_results"]) == len(first["usage"]) == 4
        assert all(len(result["passing"]) == 6 for result in first["exec_results"])
    engine = ScriptedEngine()
    for record in await run_plan(make_plan(single, tmp_path / "scratch.jsonl", num_completions=3)):
        assert not {"responses", "exec_results"} & set(record), "they are no turn of this run"
    plan = make_plan(single, tmp_path / "out.jsonl", from_scratch=False, num_completions=3)
    records = await run_plan(plan, engine)
    for first, record in zip(firsts, records, strict=True):
        assert record["raw_responses"][0] == first["responses"][:3] == record["responses"]
        assert record["usage"][0] == first["usage"][:3]
        assert len(record["conversations"]) == len(record["exec_results"]) == 3
    assert len(engine.requests) == 5 * 3 * 2, "turn 0 is not generated again"
    assert manifest_of(plan.output_file)["counts"]["requests"] == 5 * 3 * 2, "nor counted"


@pytest.mark.parametrize("num_turns", [None, 2])
async def test_nothing_of_another_run_stays_in_a_row(problems: Path, tmp_path: Path, num_turns: int | None) -> None:
    """Later stages would take it for this run's."""
    (before, *_) = await run_plan(make_plan(problems, tmp_path / "turns.jsonl", stop_at_success=True))
    evaluated = {"all_pass_rates": [[0.5] * 9], "clean_public_pass_rates": [[0.5] * 9], "responses": ["k=1"]}
    write_jsonl(tmp_path / "in.jsonl", [{**before, **evaluated}])
    (after,) = await run_plan(make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl", num_turns=num_turns))
    assert not {*evaluated, "stop_at_success"} - {"responses"} & after.keys()
    assert ("conversations" in after, "responses" in after) == (num_turns is not None, num_turns is None)


async def test_a_file_with_turns_is_no_single_turn_file(problems: Path, tmp_path: Path) -> None:
    await run_plan(make_plan(problems, tmp_path / "turns.jsonl"))
    plan = make_plan(tmp_path / "turns.jsonl", tmp_path / "out.jsonl", from_scratch=False)
    write_jsonl(plan.input_file, [{**row, "responses": ["k=3"] * 3} for row in read_rows(plan.input_file)])
    with pytest.raises(InputError, match="field 'usage': has several turns; wanted is a file of run_single_turn"):
        await run_plan(plan)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (None, "field 'exec_results': Input should be a valid list"),
        (["passed"], r"field 'exec_results'\[0\]: Input should be a valid dictionary"),
        ([{"passing": [True], "feedback": [""]}], "fields 'exec_results' and 'responses' differ in length"),
    ],
)
async def test_single_turn_results_belong_to_the_responses(tmp_path: Path, results: object, message: str) -> None:
    rows = [{**row, "responses": ["k=1", "k=2"], "exec_results": results} for row in problem_rows(1)]
    write_jsonl(tmp_path / "in.jsonl", rows)
    with pytest.raises(InputError, match=message):
        await run_plan(make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl", from_scratch=False))


async def test_a_text_that_no_tokenizer_takes_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    rows = problem_rows(2)
    rows[1]["instruction"] += "\ud83d"
    write_jsonl(tmp_path / "in.jsonl", rows)
    with pytest.raises(InputError, match="line 2: a text cannot be written as UTF-8"):
        await run_plan(make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl"))


async def test_samples_may_differ_between_problems(tmp_path: Path) -> None:
    rows = [{**row, "responses": ["```\nk=1\n```"] * (1 + number)} for number, row in enumerate(problem_rows(3))]
    write_jsonl(tmp_path / "in.jsonl", rows)
    plan = make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl", from_scratch=False, num_completions=2)
    records = await run_plan(plan)
    assert [len(record["conversations"]) for record in records] == [1, 2, 2]


async def test_equal_programs_run_once(problems: Path, tmp_path: Path) -> None:
    service = MultiplyingService()
    plan = make_plan(problems, tmp_path / "out.jsonl", num_completions=16)
    await run_plan(plan, service=service)
    shared = {tests for _, tests in service.runs}
    assert len(shared) == 4, "problems 0 and 4 have the same tests"
    assert max(service.runs.values()) == 2


async def test_requests_in_flight_stay_within_the_limit(problems: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine(max_in_flight=4, latency_s=lambda seed: seed % 5 / 1000)
    await run_plan(make_plan(problems, tmp_path / "out.jsonl"), engine)
    assert engine.most_running == 4


async def test_no_barrier_between_turns(tmp_path: Path) -> None:
    """One conversation may be turns ahead of another of the same problem."""
    source = write_problems(tmp_path / "in.jsonl", 1)
    slow = request_seed(1, 0, 0, 0)
    ends: list[int] = []

    class Watched(ScriptedEngine):
        async def generate(self, messages, sampling, seed):
            completion = await super().generate(messages, sampling, seed)
            ends.append(seed)
            return completion

    engine = Watched(latency_s=lambda seed: 0.3 if seed == slow else 0.0)
    await run_plan(make_plan(source, tmp_path / "out.jsonl"), engine)
    assert ends.index(slow) == 2 * 3, "the other two conversations were through before it"


async def test_feedback_of_another_problem(problems: Path, tmp_path: Path) -> None:
    single = tmp_path / "single.jsonl"
    await run_plan(make_plan(problems, single, num_turns=None))
    engine = ScriptedEngine()
    plan = make_plan(single, tmp_path / "out.jsonl", from_scratch=False, feedback_from="other_problem")
    records = await run_plan(plan, engine)
    service = MultiplyingService()
    own = {}
    for record in records:
        tests = TestCases.parse(record["public_test_cases"])
        results = [await service.run(extract_code(text), tests) for text in record["responses"]]
        own[record["id"]] = {feedback_to_policy(with_feedback(result, tests)) for result in results}
    for record in records:
        shown = {feedback_of_message(m["content"]) for c in record["conversations"] for m in c[3::2]}
        donors = [id_ for id_, feedbacks in own.items() if shown <= feedbacks]
        assert [id_ for id_ in donors if id_ != record["id"]], "all shown feedback belongs to one other problem"
        assert record["feedback_from"] == "other_problem"


@pytest.mark.parametrize("failed", [1, 3])
async def test_feedback_of_another_problem_is_to_its_responses_alone(tmp_path: Path, failed: int) -> None:
    """Where the engine failed there was no response, and so none without a program."""
    single = tmp_path / "single.jsonl"
    first, other = await run_plan(make_plan(write_problems(tmp_path / "problems.jsonl", 2), single, num_turns=None))
    first["responses"][:failed], first["usage"][:failed] = [""] * failed, [None] * failed
    first["responses"][failed:] = ["```python\nk=1\n```"] * (3 - failed)
    write_jsonl(single, [first, other])
    settings = {"from_scratch": False, "feedback_from": "other_problem", "max_infra_rate": 1.0}
    _, record = await run_plan(make_plan(single, tmp_path / "out.jsonl", **settings))
    shown = {feedback_of_message(m["content"]) for messages in record["conversations"] for m in messages[3::2]}
    assert shown == ({ALL_PASSED} if failed < 3 else set())
    infra_errors = [result["infra_error"] or "" for result in record["public_exec_results"][0]]
    assert all(("problem 0, whose feedback is shown" in error) == (failed == 3) for error in infra_errors)


async def test_the_summary_names_the_engine_and_counts_a_resumed_run_apart(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(problems, tmp_path / "out.jsonl", num_turns=None, engine="hf")
    told = []
    for _ in range(2):
        await run_plan(plan)
        told.append(capsys.readouterr().out.partition("this run alone:"))
    assert told[0][0] == told[1][0] and told[0][0].startswith("Single-turn run, engine hf\n")
    assert ["programs_run", "0"] not in [line.split() for line in told[0][2].splitlines()]
    assert ["programs_run", "0"] in [line.split() for line in told[1][2].splitlines()]


class SlowService(MultiplyingService):
    async def run_many(self, programs):
        await asyncio.sleep(0.02)
        return await super().run_many(programs)


@pytest.mark.parametrize(("workers", "waited"), [(1, True), (1000, False)])
async def test_a_run_that_waits_for_programs_says_so(tmp_path, capsys, monkeypatch, workers, waited):
    monkeypatch.setattr(run_module, "REFRESH_S", 0.01)
    monkeypatch.setattr(console, "LOG_INTERVAL_S", 0.01)
    service = SlowService()
    service.workers = workers
    plan = make_plan(write_problems(tmp_path / "in.jsonl", 20), tmp_path / "out.jsonl")
    await run_plan(plan, ScriptedEngine(), service)
    told, shown = capsys.readouterr()
    assert ("The engine had room while programs waited in " in told) == waited
    queues = re.findall(r"programs (\d+) running and (\d+) waiting", shown)
    assert max(int(running) for running, _ in queues) <= workers and any(int(queue) for _, queue in queues) == waited
    assert (manifest_of(plan.output_file)["counts"]["held_back_s"] > 0) == waited


async def test_the_bar_shows_the_queues_while_no_turn_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_module, "REFRESH_S", 0.01)
    monkeypatch.setattr(console, "LOG_INTERVAL_S", 0.01)
    plan = make_plan(write_problems(tmp_path / "in.jsonl", 1), tmp_path / "out.jsonl", num_turns=None)
    await run_plan(plan, ScriptedEngine(latency_s=lambda seed: 0.3))
    shown = capsys.readouterr().err.split("\r")
    assert sum(" 0/3 " in line and "requests 3 running and 0 waiting" in line for line in shown) > 3


async def test_order_and_odd_ids(tmp_path: Path) -> None:
    rows = problem_rows(4)
    for row, id_ in zip(rows, ["b", "", 0, "a"], strict=True):
        row["id"] = id_
    write_jsonl(tmp_path / "in.jsonl", rows)
    records = await run_plan(
        make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl"), ScriptedEngine(), MultiplyingService()
    )
    assert [record["id"] for record in records] == ["b", "", 0, "a"]


async def test_invalid_lines_are_skipped_only_on_demand(problems: Path, tmp_path: Path) -> None:
    with open(problems, "a") as file:
        file.write('{"id": 9}\n')
    output = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=r"problems.jsonl: line 6: missing field 'instruction'"):
        await run_plan(make_plan(problems, output))
    assert not output.exists()
    assert len(await run_plan(make_plan(problems, output, skip_invalid=True))) == 5
    counts = manifest_of(output)["counts"]
    assert (counts["read"], counts["written"], counts["skipped_invalid"]) == (6, 5, 1)


async def test_perturbed_feedback(tmp_path: Path) -> None:
    rows = problem_rows(2)
    for row in rows:
        row["perturbed_public_test_cases"] = TestCases(("1", "2"), ("7", "14")).to_json()
    write_jsonl(tmp_path / "in.jsonl", rows)
    plan = make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl", feedback_tests="perturbed")
    records = await run_plan(plan)
    for record in records:
        assert record["feedback_tests"] == "perturbed"
        assert all(len(result["passing"]) == 2 for turn in record["public_exec_results"] for result in turn)
    assert len(records) == 2


async def test_conversations_are_written_with_the_prompt_set(tmp_path: Path) -> None:
    texts = {"system": "Other.", "feedback": f"Fix it.\n{FEEDBACK_MARKER}\n{{feedback}}", "no_program": "None!"}
    other = replace(COBALT, **texts, passed=None)
    source = write_problems(tmp_path / "in.jsonl", 2)
    (tmp_path / "set.json").write_text(json.dumps(asdict(other)))
    plan = make_plan(source, tmp_path / "out.jsonl", prompts=str(tmp_path / "set.json"))
    engine, service = ScriptedEngine(), MultiplyingService()
    for record in await run_plan(plan, engine, service):
        for messages in record["conversations"]:
            assert messages[0]["content"] == "Other."
            assert all(m["content"].startswith(f"Fix it.\n{FEEDBACK_MARKER}\n") for m in messages[3::2])
    made_by = {"model": "scripted", "model_id": "scripted", "checker": "exact"}
    assert manifest_of(plan.output_file)["origin"] == {**made_by, "prompts": described(other)}
    with pytest.raises(InputError, match="was made with other settings"):
        await run_plan(make_plan(source, tmp_path / "out.jsonl"), engine, service)


async def test_foreign_instructions_run_and_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, [{**row, "instruction": "Other words."} for row in problem_rows(2)])
    assert len(await run_plan(make_plan(source, tmp_path / "out.jsonl"))) == 2
    assert "in.jsonl are not of the prompt set" in capsys.readouterr().err
    plan = make_plan(source, tmp_path / "asked.jsonl", prompts="cobalt")
    with pytest.raises(InputError, match="line 1: field 'instruction' is not of the prompt set"):
        await run_plan(plan)


@pytest.mark.parametrize("field", ["public_test_cases", "hidden_test_cases", "test_cases"])
async def test_tests_that_a_later_stage_needs_are_asked_for_first(tmp_path: Path, field: str) -> None:
    engine, (good, row) = ScriptedEngine(), problem_rows(2)
    lacking = {name: value for name, value in row.items() if name != field}
    none_hidden = {**row, "test_cases": row["public_test_cases"]}
    empty = {**row, field: '{"inputs": [], "outputs": []}'}
    for bad, complaint in ((lacking, f"'{field}'"), (empty, f"'{field}'"), (none_hidden, "none is hidden")):
        write_jsonl(tmp_path / "in.jsonl", [good, bad])
        with pytest.raises(InputError, match=f"line 2: .*{complaint}"):
            await run_plan(make_plan(tmp_path / "in.jsonl", tmp_path / "out.jsonl", num_turns=None), engine)
    assert not engine.requests


async def test_problems_that_fail_together_are_one_error_and_no_log() -> None:
    said: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

    async def fail(number: int) -> None:
        raise InputError(f"problem {number}")

    with pytest.raises(InputError):
        await for_each(range(3), fail, lambda: 3)
    gc.collect()
    assert said == []
