"""``extract_turn_level_errors.py`` on hand-made trajectories that were run in the sandbox."""

import json
from contextlib import asynccontextmanager
from dataclasses import asdict, replace

import pytest
from hacking_fixture import PROBLEMS, expected_cases

from cobalt.errors import InputError, SetupError
from cobalt.hacking.cases import Category
from cobalt.hacking.extract_cases import ExtractionConfig, extract
from cobalt.hacking.signal import StaticCheck
from cobalt.records import read_jsonl, write_jsonl
from cobalt.sandbox import ExecutionResult, Limits


def key(case: dict) -> tuple[str, int, int]:
    return case["id"], case["trajectory"], case["turn"]


@pytest.fixture
def config(hacking_files, tmp_path) -> ExtractionConfig:
    return ExtractionConfig(
        data_file=hacking_files.data,
        input_file=hacking_files.results,
        output_file=tmp_path / "cases.jsonl",
    )


def cases_of(config: ExtractionConfig) -> list[dict]:
    return list(read_jsonl(config.output_file, unique=None))


def test_exactly_the_known_hacks_are_found_and_counted(config):
    extract(config)
    assert sorted(map(key, cases_of(config))) == sorted(expected_cases())
    summary = json.loads(config.summary_file.read_text())
    assert summary["cases"] == len(expected_cases()) <= summary["opportunities"] <= summary["turns"]
    assert summary["trajectories"] == sum(len(problem.trajectories) for problem in PROBLEMS)
    problems = list(read_jsonl(config.problems_file))
    rates = [len(problem["cases"]) / problem["opportunities"] for problem in problems]
    assert summary["rates"]["cases_per_opportunity"]["value"] == pytest.approx(sum(rates) / len(rates))


def test_problems_with_a_hidden_rule_are_left_out(config, tmp_path):
    rows = list(read_jsonl(config.data_file))
    rows[0]["fully_specified"] = False
    data = tmp_path / "data.jsonl"
    write_jsonl(data, rows)
    extract(replace(config, data_file=data))
    assert rows[0]["id"] not in {case["id"] for case in cases_of(config)}
    assert json.loads(config.summary_file.read_text())["not_fully_specified"] == 1
    write_jsonl(data, [{**row, "fully_specified": False} for row in rows])
    with pytest.raises(InputError, match=f"{data}: says fully_specified: false of every problem"):
        extract(replace(config, data_file=data, output_file=tmp_path / "none.jsonl"))


def test_the_order_depends_on_the_seed_alone_and_a_rerun_computes_nothing_again(config, tmp_path, monkeypatch):
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        extract(replace(config, seed=seed, output_file=tmp_path / f"{number}.jsonl"))
        orders.append((tmp_path / f"{number}.jsonl").read_bytes())
    assert orders[0] == orders[1] != orders[2]
    monkeypatch.setattr("cobalt.hacking.extract_cases.signal_of", None)
    extract(replace(config, seed=1, output_file=tmp_path / "0.jsonl"))
    assert (tmp_path / "0.jsonl").read_bytes() == orders[0]


def test_a_changed_row_is_done_again(config, tmp_path):
    extract(config)
    rows = list(read_jsonl(config.input_file))
    rows[0]["raw_responses"] = [["no program"] * len(turn) for turn in rows[0]["raw_responses"]]
    changed = tmp_path / "changed.jsonl"
    write_jsonl(changed, rows)
    extract(replace(config, input_file=changed))
    assert {case["id"] for case in cases_of(config)} == {name for name, *_ in expected_cases()} - {rows[0]["id"]}


def test_a_smaller_input_and_other_settings_are_refused_and_delete_nothing(config, tmp_path):
    extract(config)
    before = {path: path.read_bytes() for path in tmp_path.glob("cases.jsonl*")}
    smaller = tmp_path / "smaller.jsonl"
    write_jsonl(smaller, list(read_jsonl(config.input_file))[:2])
    with pytest.raises(InputError, match="have ids that the input lacks"):
        extract(replace(config, input_file=smaller))
    with pytest.raises(InputError, match="other settings"):
        extract(replace(config, seed=7))
    assert {path: path.read_bytes() for path in tmp_path.glob("cases.jsonl*")} == before


def test_a_malformed_row_is_named_with_its_line_or_skipped(config, tmp_path):
    rows = list(read_jsonl(config.input_file))
    rows[2]["raw_responses"] = None
    path = tmp_path / "input.jsonl"
    write_jsonl(path, rows)
    with pytest.raises(InputError, match=rf"{path}: line 3: field 'raw_responses'"):
        extract(replace(config, input_file=path))
    extract(replace(config, input_file=path, skip_invalid=True))
    assert {case["id"] for case in cases_of(config)} == {name for name, *_ in expected_cases()} - {rows[2]["id"]}
    assert json.loads(config.summary_file.read_text())["invalid_lines_skipped"] == 1
    # a row of an unknown problem
    data = tmp_path / "data.jsonl"
    write_jsonl(data, list(read_jsonl(config.data_file))[1:])
    with pytest.raises(InputError, match="line 1: id 'sum' is not in"):
        extract(replace(config, data_file=data))
    bad = [
        {**row, "perturbed_public_test_cases": "{}"} if n == 0 else row
        for n, row in enumerate(read_jsonl(config.data_file))
    ]
    write_jsonl(data, bad)
    with pytest.raises(InputError, match=rf"{data}: line 1: "):
        extract(replace(config, data_file=data))
    output = tmp_path / "other.jsonl"
    extract(replace(config, data_file=data, output_file=output, skip_invalid=True))
    assert json.loads((tmp_path / "other.jsonl.summary.json").read_text())["invalid_lines_skipped"] == 2


@pytest.mark.parametrize("given", [{"executor": "local"}, {"checker": "lcb"}, {"executor_args": "workers=1"}])
def test_what_says_how_programs_run_is_refused_where_none_runs(config, given):
    with pytest.raises(InputError, match="without it no program runs"):
        extract(replace(config, **given))
    assert not config.problems_file.exists()


def test_precision_and_recall_of_the_judge_free_signal_which_no_infra_failure_gives(config, monkeypatch):
    """Its misses are known: a rule without effect elsewhere looks like hard coding."""

    class Broken:
        async def describe(self):
            return {"checker": "exact", **asdict(Limits())}

        async def run_many(self, programs):
            return [ExecutionResult.infra(len(tests), "no replica") for _, tests in programs]

    @asynccontextmanager
    async def broken(_config):
        yield Broken()

    config = replace(config, dynamic=True, executor="local")
    monkeypatch.setattr("cobalt.hacking.extract_cases.service_of", broken)
    with pytest.raises(SetupError, match="14 of 14 cases met an infrastructure failure"):
        extract(config)
    assert all(case["signal"]["dynamic"] is None for case in cases_of(config))
    monkeypatch.undo()
    extract(config)  # checks them again
    cases = cases_of(config)
    truth = {name for name, category in expected_cases().items() if category is Category.HARD_CODING}
    flags = {
        "static": {key(c) for c in cases if StaticCheck(**c["signal"]["static"]).hard_coded},
        "dynamic": {key(c) for c in cases if c["signal"]["dynamic"]["changed"] == 0},
        "both": {key(c) for c in cases if c["signal"]["hard_coded"]},
    }
    hits = {name: (len(flagged & truth), len(flagged), len(truth)) for name, flagged in flags.items()}
    assert hits == {"static": (7, 8, 8), "dynamic": (6, 8, 8), "both": (8, 11, 8)}
    with pytest.raises(InputError, match=r"execution: .*'exact'.* -> .*'lcb'"):
        extract(replace(config, checker="lcb"))


def test_a_killed_run_is_continued(config):
    """A record that is whole, a torn one, and no cases yet: the same files as an undisturbed run's."""
    extract(config)
    cases, problems = config.output_file.read_bytes(), config.problems_file.read_bytes()
    first, second, *_ = problems.splitlines(keepends=True)
    config.problems_file.write_bytes(second + first[:50])
    config.output_file.unlink()
    extract(config)
    assert (config.output_file.read_bytes(), config.problems_file.read_bytes()) == (cases, problems)
