"""``extract_turn_level_errors.py`` on hand-made trajectories that were run in the sandbox."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hacking_fixture import PROBLEMS, expected_cases

from cobalt.errors import InputError, SetupError
from cobalt.records import ExecutionResult, read_jsonl, write_jsonl
from studies.hacking.cases import Category
from studies.hacking.extract_cases import ExtractionConfig, extract
from studies.hacking.signal import StaticCheck

ROOT = Path(__file__).resolve().parents[3]


def key(case: dict) -> tuple[str, int, int]:
    return case["id"], case["trajectory"], case["turn"]


@pytest.fixture
def config(hacking_files, tmp_path) -> ExtractionConfig:
    return ExtractionConfig(
        data_file=hacking_files.data,
        input_file=hacking_files.results,
        output_file=tmp_path / "cases.jsonl",
        executor="local",
    )


def cases_of(config: ExtractionConfig) -> list[dict]:
    return list(read_jsonl(config.output_file, unique=None))


def test_exactly_the_known_hacks_are_found(config):
    extract(config)
    assert sorted(map(key, cases_of(config))) == sorted(expected_cases())


def test_the_summary_counts_what_the_records_hold(config):
    extract(config)
    summary = json.loads(config.summary_file.read_text())
    assert summary["cases"] == len(expected_cases())
    assert summary["trajectories"] == sum(len(problem.trajectories) for problem in PROBLEMS)
    assert summary["cases"] <= summary["opportunities"] <= summary["turns"]
    problems = list(read_jsonl(config.problems_file))
    rates = [len(problem["cases"]) / problem["opportunities"] for problem in problems]
    assert summary["rates"]["cases_per_opportunity"]["value"] == pytest.approx(sum(rates) / len(rates))


def precision_recall(flagged: set, truth: set) -> tuple[float, float]:
    hits = len(flagged & truth)
    return hits / len(flagged), hits / len(truth)


def test_precision_and_recall_of_the_judge_free_signal(config, capsys):
    """Its misses are known: a rule without effect elsewhere looks like hard coding."""
    config = replace(config, dynamic=True)
    extract(config)
    cases = cases_of(config)
    truth = {name for name, category in expected_cases().items() if category is Category.HARD_CODING}
    flags = {
        "static": {key(c) for c in cases if StaticCheck(**c["signal"]["static"]).hard_coded},
        "dynamic": {key(c) for c in cases if c["signal"]["dynamic"]["changed"] == 0},
        "both": {key(c) for c in cases if c["signal"]["hard_coded"]},
    }
    measured = {name: precision_recall(flagged, truth) for name, flagged in flags.items()}
    with capsys.disabled():
        print(f"\njudge-free signal, {len(cases)} cases, {len(truth)} hard-coded:", measured)
    assert measured["static"] == pytest.approx((9 / 10, 9 / 11))
    assert measured["dynamic"] == pytest.approx((8 / 10, 8 / 11))
    assert measured["both"] == pytest.approx((11 / 14, 11 / 11))


def test_problems_with_a_hidden_rule_are_left_out(config, tmp_path):
    rows = list(read_jsonl(config.data_file))
    rows[0]["fully_specified"] = False
    data = tmp_path / "data.jsonl"
    write_jsonl(data, rows)
    extract(replace(config, data_file=data))
    assert rows[0]["id"] not in {case["id"] for case in cases_of(config)}
    assert json.loads(config.summary_file.read_text())["not_fully_specified"] == 1


def test_the_order_depends_on_the_seed_alone(config, tmp_path):
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        extract(replace(config, seed=seed, output_file=tmp_path / f"{number}.jsonl"))
        orders.append((tmp_path / f"{number}.jsonl").read_bytes())
    assert orders[0] == orders[1] != orders[2]


def test_a_rerun_computes_nothing_again_and_gives_the_same_file(config, monkeypatch):
    extract(config)
    first = config.output_file.read_bytes()
    monkeypatch.setattr("studies.hacking.extract_cases.signal_of", None)
    extract(config)
    assert config.output_file.read_bytes() == first


def test_a_changed_row_is_done_again(config, tmp_path):
    extract(config)
    rows = list(read_jsonl(config.input_file))
    rows[0]["raw_responses"] = [["no program"] * len(turn) for turn in rows[0]["raw_responses"]]
    changed = tmp_path / "changed.jsonl"
    write_jsonl(changed, rows)
    extract(replace(config, input_file=changed))
    assert {case["id"] for case in cases_of(config)} == {name for name, *_ in expected_cases()} - {rows[0]["id"]}


def test_a_smaller_input_deletes_nothing(config, tmp_path):
    extract(config)
    before = {path: path.read_bytes() for path in tmp_path.glob("cases.jsonl*")}
    smaller = tmp_path / "smaller.jsonl"
    write_jsonl(smaller, list(read_jsonl(config.input_file))[:2])
    with pytest.raises(InputError, match="have ids that the input lacks"):
        extract(replace(config, input_file=smaller))
    assert {path: path.read_bytes() for path in tmp_path.glob("cases.jsonl*")} == before


def test_other_settings_are_refused(config):
    extract(config)
    with pytest.raises(InputError, match="other settings"):
        extract(replace(config, seed=7))


def test_a_run_of_unknown_problems_is_refused(config, tmp_path):
    data = tmp_path / "data.jsonl"
    write_jsonl(data, list(read_jsonl(config.data_file))[1:])
    with pytest.raises(InputError, match="line 1: id 'sum' is not in"):
        extract(replace(config, data_file=data))


def test_a_malformed_row_is_named_with_its_line_or_skipped(config, tmp_path):
    rows = list(read_jsonl(config.input_file))
    rows[2]["raw_responses"] = None
    path = tmp_path / "input.jsonl"
    write_jsonl(path, rows)
    with pytest.raises(InputError, match=rf"{path}: line 3: id '{rows[2]['id']}' holds no readable"):
        extract(replace(config, input_file=path))
    extract(replace(config, input_file=path, skip_invalid=True))
    assert {case["id"] for case in cases_of(config)} == {name for name, *_ in expected_cases()} - {rows[2]["id"]}
    assert json.loads(config.summary_file.read_text())["invalid_lines_skipped"] == 1


def test_an_infra_failure_is_no_signal_and_is_checked_again(config, monkeypatch):
    class Broken:
        async def run_many(self, programs):
            return [ExecutionResult.infra(len(tests), "no replica") for _, tests in programs]

    @asynccontextmanager
    async def broken(_executor, _checker):
        yield Broken()

    config = replace(config, dynamic=True)
    monkeypatch.setattr("studies.hacking.extract_cases.open_execution_service", broken)
    with pytest.raises(SetupError, match="23 of 23 cases met an infrastructure failure"):
        extract(config)
    assert all(case["signal"]["dynamic"] is None for case in cases_of(config))
    monkeypatch.undo()
    extract(config)
    assert all(case["signal"]["dynamic"] for case in cases_of(config))


def command(config: ExtractionConfig, *more: str) -> list[str]:
    return [
        *(sys.executable, str(ROOT / "extract_turn_level_errors.py"), "--data_file", str(config.data_file)),
        *("-i", str(config.input_file), "-o", str(config.output_file), "--executor", "local", *more),
    ]


@pytest.mark.parametrize("broken", ["missing", "torn", "field", "duplicate", "same"])
def test_bad_input_exits_with_2_in_one_line(config, tmp_path, broken):
    rows = list(read_jsonl(config.input_file))
    path = tmp_path / "input.jsonl"
    if broken == "field":
        del rows[2]["raw_responses"]
    if broken == "duplicate":
        rows[2] = rows[0]
    if broken != "missing":
        write_jsonl(path, rows)
    if broken == "torn":
        path.write_bytes(path.read_bytes()[:-40])
    output = path if broken == "same" else config.output_file
    before = path.read_bytes() if path.exists() else b""
    done = subprocess.run(command(replace(config, input_file=path, output_file=output)), capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert str(path) in line
    assert (path.read_bytes() if path.exists() else b"") == before


def test_no_execution_service_exits_with_3(config):
    done = subprocess.run(
        [*command(config, "--dynamic"), "--executor", "serve"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "RAY_ADDRESS": "127.0.0.1:1"},  # where no cluster listens
    )
    assert done.returncode == 3, done.stderr
    assert not config.output_file.exists()


def test_kill_9_loses_nothing(config):
    """Killed at random moments, restarted until done: the same file as an undisturbed run."""
    undisturbed = replace(config, dynamic=True, output_file=config.output_file.with_name("undisturbed.jsonl"))
    extract(undisturbed)
    generator = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(command(config, "--dynamic"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(generator.uniform(0.5, 4))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command(config, "--dynamic"), check=True, capture_output=True)
    assert config.output_file.read_bytes() == undisturbed.output_file.read_bytes()
