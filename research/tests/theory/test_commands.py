"""``python -m research theory measure`` and ``report``, end to end with MiniCoder, and what they refuse."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from test_pair import MINICODER, write_scaled

from cobalt.errors import InputError, SetupError
from cobalt.records import read_jsonl, write_jsonl
from cobalt.sandbox import ExecutionResult
from research.minicode.probe import ProbeConfig, roll_out
from research.minicode.problems import sample_problem
from research.theory.measure import MeasureConfig
from research.theory.measure import main as measure
from research.theory.report import TheoryReportConfig
from research.theory.report import main as report

PROBLEMS, SAMPLES, TURNS = 3, 2, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base.jsonl`` and ``hot.jsonl``: evaluated trajectories of MiniCoder, and of the model in ``hot``."""
    path, rng = tmp_path_factory.mktemp("theory"), random.Random(5)
    write_scaled(path / "hot", 0.8)
    problems = [sample_problem(rng, "train") for _ in range(PROBLEMS)]
    sizes = {"num_samples": SAMPLES, "num_turns": TURNS - 1, "max_tokens": 96}
    for name, policy in (("base", MINICODER), ("hot", path / "hot")):
        config = ProbeConfig(model=policy, temperature=1.0, top_p=1.0, seed=42, **sizes)
        write_jsonl(path / f"{name}.jsonl", roll_out(config, problems))
    return path


def flags(folder: Path, output: Path, own: str = "hot") -> MeasureConfig:
    return MeasureConfig(
        policy=str(folder / "hot"),
        reference=str(MINICODER),
        contexts=folder / "base.jsonl",
        own=folder / f"{own}.jsonl",
        output_file=output,
        enable_thinking=True,
        max_tokens=96,
        batch_size=4,
        executor="local",
    )


@pytest.fixture(scope="module")
def measured(folder: Path) -> Path:
    output = folder / "measured" / "hot.jsonl"
    measure(flags(folder, output))
    base = replace(flags(folder, folder / "measured" / "base.jsonl", own="base"), policy=str(MINICODER))
    measure(base)
    return output


def test_a_record_holds_every_trajectory_and_turn(folder: Path, measured: Path) -> None:
    rows = list(read_jsonl(measured))
    assert [row["id"] for row in rows] == list(range(PROBLEMS))
    tables = [row[name] for row in rows for name in ("own_pass_rates", "reference_pass_rates", "step_pass_rates")]
    tables += [row[name][side] for row in rows for name in ("kl", "log_ratio") for side in ("reference", "own")]
    assert all([len(values) for values in table] == [TURNS] * SAMPLES for table in tables)
    played = {row["id"]: row["all_pass_rates"] for row in read_jsonl(folder / "hot.jsonl")}
    assert [row["own_pass_rates"] for row in rows] == list(played.values())
    kl = [value for row in rows for side in row["kl"].values() for values in side for value in values]
    assert min(kl) > 0
    manifest = json.loads(measured.with_name("hot.jsonl.manifest.json").read_text())
    assert manifest["status"] == "done" and manifest["counts"]["programs"] == PROBLEMS * SAMPLES * TURNS
    assert manifest["content"]["policy"].startswith("hot@") and manifest["content"]["temperature"] == 1.0


def test_a_killed_run_continues_and_programs_that_were_lost_are_run_again(
    folder: Path, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(executor, code, tests):
        return ExecutionResult.infra(len(tests), "worker lost")

    lines = measured.read_bytes().splitlines(keepends=True)
    output = tmp_path / "hot.jsonl"
    output.write_bytes(lines[2] + lines[0][:50])
    manifest = measured.with_name("hot.jsonl.manifest.json")
    output.with_name(manifest.name).write_text(manifest.read_text())
    with monkeypatch.context() as broken:
        broken.setattr("cobalt.sandbox.executor.Executor.run", lost)
        with pytest.raises(SetupError, match="8 of 12 programs met an infrastructure failure"):
            measure(flags(folder, output))
    measure(flags(folder, output))
    with pytest.raises(InputError, match=r"other settings \(temperature: 1\.0 -> 0\.5\)"):
        measure(replace(flags(folder, output), temperature=0.5))
    assert output.read_bytes() == measured.read_bytes()


def test_the_report_has_its_tables_and_figures(measured: Path, tmp_path: Path) -> None:
    report(TheoryReportConfig(input_files=(measured.with_name("base.jsonl"), measured), output_dir=tmp_path))
    tables = json.loads((tmp_path / "report.json").read_text())
    base, hot = tables["gap"]["rows"]
    assert (base["policy"], base["eta (nats)"], base["constant"]) == ("base", 0, None)
    assert hot["eta (nats)"] > 0 and hot["T"] == TURNS and hot["problems"] == PROBLEMS
    assert hot["constant"] == pytest.approx(hot["gap (points)"]["value"] / 100 / hot["eta (nats)"] ** 0.5)
    assert tables["bounds"]["rows"][0]["TV, shift"]["value"] == 0
    assert len(tables["distance"]["rows"]) == 2 * 2 * TURNS and len(tables["turns"]["rows"]) == 2 * TURNS
    for key in ("gap", "distance", "failure_cost"):
        assert (tmp_path / f"{key}.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / f"{key}.svg").is_file()
    first, *_, last = (row["gap so far"]["value"] for row in tables["turns"]["rows"] if row["policy"] == "hot")
    assert (first, last) == (0, pytest.approx(TURNS * hot["gap (points)"]["value"]))
    assert [row["turn"] for row in tables["repair"]["rows"]] == 2 * list(range(1, TURNS))
