"""What a training will take: as measured, and as ``cobalt plan`` adds it up."""

import pytest

from cobalt.errors import InputError
from cobalt.records.jsonl import read_json
from cobalt.training.cost_model import PlanConfig, main, predict_step
from research.benchmarks import scale_model


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_measured_phase_is_predicted(capsys):
    scale_model.main(scale_model.ScaleConfig(check=True))
    checked = capsys.readouterr().out.strip()
    found = {where: [int(cell.split(", ")[1].rstrip("%")) for cell in row] for where, *row in cells(checked)}
    assert len(found) == 29
    known = "qwen3-1.7b, 1000 tokens, grpo-mt-async"
    waits = {where: found[where].pop(0) for where in found if where.endswith("-async")}  # the model leaves them out
    assert all((-35 < off <= -10) if "1000" in where else (-9 < off <= 0) for where, off in waits.items()), waits
    later = {where for where in found if where.endswith(("-async", "verpo-mt"))} - {known}  # the constants are older
    assert all(abs(off) <= 20 for where in found.keys() - later for off in found[where]), found
    assert all(abs(off) <= 26 for where in later for off in found[where]), found


def test_the_lengths_that_are_drawn_are_those_of_the_measured_steps():
    cells = read_json(scale_model.RESULTS / "price/result.json.gz")
    for cell, found in cells.items():
        method = cell.split()[-1]
        if method in scale_model.METHODS and not method.endswith("-async"):  # those learn from other cells' too
            steps = [scale_model.Step(method, int(cell.split()[1]), number) for number in range(scale_model.STEPS)]
            made = [[sum(path) for path in scale_model.played(step)] for step in steps]
            assert [sum(tokens) for tokens in made] == [step["tokens"] for step in found["steps"]], cell


def planned(capsys, **flags):
    """The stages' hours and GPU-hours, and what is needed."""
    main(PlanConfig(**flags))
    stages, needs = capsys.readouterr().out.strip().split("\n\n")
    numbers = {name: [float(value.replace(",", "")) for value in values] for name, *values in cells(stages)}
    return numbers, {name: float(value.replace(",", "")) for name, value in cells(needs)}


def test_a_plan_adds_up_and_grows_with_the_problems(capsys):
    stages, needs = planned(capsys, shape="qwen3-8b", gpus=4, problems=10_000)
    collected, judged, trained, in_all = stages.values()
    step = predict_step(PlanConfig(gpus=4))
    assert "train 936 steps of 581 s" in stages and trained[0] == round(936 * step.step / 3600, 1)
    assert in_all == [pytest.approx(sum(column), abs=0.2) for column in zip(collected, judged, trained, strict=True)]
    assert trained[1] == pytest.approx(4 * trained[0], abs=0.2) and judged[1] == 0
    assert (needs["cores for programs"], needs["GB on disk: 4 checkpoints of 98 GB"]) == (9, 393)
    twice, more = planned(capsys, problems=20_000)
    name = "GB on disk: trajectories and contexts"
    assert twice["collect trajectories"][0] == pytest.approx(2 * collected[0], abs=0.2)
    assert more[name] == pytest.approx(2 * needs[name], abs=1)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"shape": "qwen3-32b"}, "--gpus 4: training qwen3-32b needs the memory of at least 8 GPUs"),
        ({"problems": 21}, "--problems 21: 126 contexts are no step of 128 prompts"),
    ],
)
def test_what_cannot_be_trained_is_refused(flags, told):
    with pytest.raises(InputError, match=told):
        main(PlanConfig(**flags))
