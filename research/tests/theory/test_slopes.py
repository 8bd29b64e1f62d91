"""Exponents are found where they are known, from records of policies whose gap follows a power."""

import json
from pathlib import Path

import numpy as np
import pytest

from cobalt.records import write_jsonl
from cobalt.statistics import Estimate
from research.theory.bound import SIDES, read_measures
from research.theory.report import TheoryReportConfig
from research.theory.report import main as report
from research.theory.slopes import failing_P, power_law, slopes_of, trainings_of

STEPS, SEEDS, TURNS, SAMPLES = (1, 2, 5, 10), 3, 4, 4
ETAS = (0.01, 0.04, 0.16, 0.64)


def write_policy(path: Path, eta: float, gap_T: np.ndarray, problems: int = 60) -> Path:
    """Records of a policy with these gaps by turn. All policies draw with the same random numbers."""
    rng = np.random.default_rng(7)
    rows = []
    for number in range(problems):
        skill = rng.uniform(0.1, 0.5)
        draws = {name: rng.random((SAMPLES, TURNS)) for name in ("reference", "step")}
        # own conversations of the reference are its contexts
        solved = {"reference": draws["reference"] < skill, "step": draws["step"] < skill}
        solved["own"] = draws["reference"] < skill + gap_T
        distances = {side: [[eta] * TURNS] * SAMPLES for side in SIDES}
        rates = {f"{name}_pass_rates": table.astype(float).tolist() for name, table in solved.items()}
        rows.append({"id": number, **rates, "kl": distances, "log_ratio": distances})
    write_jsonl(path, rows)
    return path


def write_trainings(folder: Path, power: float, factor: float = 0.5) -> list[Path]:
    """The reference first. The gap per turn is ``factor`` times a power of η, at every turn but the first."""
    later_T = np.arange(TURNS) > 0
    files = [write_policy(folder / "base.jsonl", 0.0, 0.0 * later_T)]
    for seed in range(SEEDS):
        for step, eta in zip(STEPS, ETAS, strict=True):
            gap = factor * eta**power * TURNS / (TURNS - 1)
            files.append(write_policy(folder / f"cobalt-{seed}-step-{step}.jsonl", eta, gap * later_T))
    return files


def holds(estimate: Estimate, value: float) -> bool:
    assert estimate.low is not None and estimate.high is not None
    return estimate.low <= value <= estimate.high


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_exponents_in_eta_and_in_turns(tmp_path: Path, power: float) -> None:
    base, *policies = map(read_measures, write_trainings(tmp_path, power))
    (found,) = trainings_of(policies, base)
    assert (found.arm, found.steps, found.own_PSKT.shape) == ("cobalt", STEPS, (60, SEEDS, len(STEPS), TURNS))
    slopes = slopes_of(found)
    assert [eta.value for eta in slopes.eta_K] == pytest.approx(ETAS)
    assert slopes.in_eta and slopes.in_eta_without_last
    for slope in (slopes.in_eta, slopes.in_eta_without_last):
        assert holds(slope.exponent, power) and not holds(slope.exponent, 1.5 - power)
        assert slope.reading((0.5, 1)) == f"{power:g}"
    last = slopes.in_turns_K[-1]
    assert last and holds(last.exponent, 1) and last.reading((1, 2)) == "1"


def test_a_power_law_is_found_also_below_zero_and_weights_count() -> None:
    x = np.array([0.1, 1.0, 10.0])
    assert power_law(x, -3 * x**1.5, np.ones(3)) == (pytest.approx(1.5), pytest.approx(-3))
    bent = np.array([1.0, 1.0, 100.0])
    exponents, _ = power_law(np.stack([x, x]), np.stack([bent, bent]), np.array([[1, 1, 0.0], [0, 1, 1.0]]))
    assert exponents == pytest.approx([0, 2])


def test_failing_contexts_are_of_any_turn_after_failures_alone(tmp_path: Path) -> None:
    rows = []
    for number, (reference, step) in enumerate([([0, 0, 1, 0], [1, 1, 0, 1]), ([1, 1, 1, 1], [1, 1, 1, 1])]):
        distances = {side: [[0.0] * 4] for side in SIDES}
        rates = {"own_pass_rates": [reference], "reference_pass_rates": [reference], "step_pass_rates": [step]}
        rows.append({"id": number, **rates, "kl": distances, "log_ratio": distances})
    write_jsonl(tmp_path / "base.jsonl", rows)
    first, second = failing_P(read_measures(tmp_path / "base.jsonl"))
    assert first == pytest.approx(1 / 2) and np.isnan(second), "turns 1 and 2 of the first, none of the second"


def test_the_report_is_made_again_from_its_counts(tmp_path: Path) -> None:
    files = tuple(file for file in write_trainings(tmp_path, 0.5) if file.stem[-2:] in ("se", "-1", "10"))
    report(TheoryReportConfig(input_files=files, output_dir=tmp_path / "report"))
    counts = [tmp_path / "report" / "counts" / file.name for file in files]
    report(TheoryReportConfig(input_files=tuple(counts), output_dir=tmp_path / "again"))
    made, again = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("report", "again"))
    assert made == again
    base, *steps = made["steps"]["rows"]
    assert [base["policy"], *(row["policy"] for row in steps)] == ["base", "cobalt, step 1", "cobalt, step 10"]
    assert [row["seeds"] for row in steps] == [SEEDS] * 2
    in_eta, *in_turns = made["slopes"]["rows"]
    assert (in_eta["policies"], in_eta["reading"]) == ("cobalt, steps 1, 10", "0.5") and len(in_turns) == 2
    last = made["horizon"]["rows"][-1]
    assert (last["T"], last["difference"]["value"]) == (TURNS, pytest.approx(TURNS * steps[-1]["difference"]["value"]))
    assert (tmp_path / "report" / "slopes.png").read_bytes().startswith(b"\x89PNG")
