"""What a training will take: as measured, and as ``cobalt plan`` adds it up."""

import json

import pytest

from cobalt.errors import InputError
from cobalt.records.jsonl import read_json, write_jsonl
from cobalt.training.cost_model import PlanConfig, main, predict_step, with_lengths
from research.benchmarks import scale_model


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_measured_phase_is_predicted(capsys):
    scale_model.main(scale_model.ScaleConfig(check=True))
    checked = capsys.readouterr().out.strip()
    found = {}
    for where, *row in cells(checked):
        found[where] = [int(cell.split(", ")[1].rstrip("%")) for cell in row if cell != "–"]
    assert len(found) == 34
    asynchronous = {where: found[where].pop(0) for where in found if where.endswith("-async")}  # rows wait for no other
    assert all(-37 < off < 25 for off in asynchronous.values()), asynchronous
    (real,) = [row for where, row in found.items() if where.startswith("qwen2.5-coder")]
    assert len(real) == 3 and all(abs(off) <= 10 for off in real), real
    assert all(abs(off) < 39 for row in found.values() for off in row), found


def test_one_update_takes_no_pass_for_old_log_probs():
    once, twice = (predict_step(PlanConfig(updates=updates)).seconds for updates in (1, 2))
    assert once["old log-probs"] == 0 < twice["old log-probs"]


def test_a_last_program_is_waited_for_while_nothing_else_runs():
    short, long = (predict_step(PlanConfig(suite_limit=limit)).seconds for limit in (27, 270))
    beside = short["old log-probs"] + short["reference"]
    assert short["judging"] == 0 < long["judging"] <= 270 - beside
    many = predict_step(PlanConfig(gpus=64)).seconds  # any of all engines' programs may be the last
    assert many["judging"] == pytest.approx(27 - many["old log-probs"] - many["reference"], rel=0.05)


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
    assert "train 936 steps of 650 s" in stages and trained[0] == round(936 * step.step / 3600, 1)
    assert in_all == [pytest.approx(sum(column), abs=0.2) for column in zip(collected, judged, trained, strict=True)]
    assert trained[1] == pytest.approx(4 * trained[0], abs=0.3) and judged[1] == 0
    assert (needs["cores for programs"], needs["GB on disk: 4 checkpoints of 98 GB"]) == (8, 393)
    twice, more = planned(capsys, problems=20_000)
    name = "GB on disk: trajectories and contexts"
    assert twice["collect trajectories"][0] == pytest.approx(2 * collected[0], abs=0.2)
    assert more[name] == pytest.approx(2 * needs[name], abs=1)


def test_an_online_recipe_collects_nothing_and_passes_over_problems(capsys):
    stages, needs = planned(capsys, problems=10_000, turns=2.2)
    step = predict_step(PlanConfig(turns=2.2)).step
    assert [*stages] == [f"train 312 steps of {step:,.0f} s", "in all"]
    assert "GB on disk: problems" in needs
    assert next(iter(planned(capsys, problems=10_000, turns=2.2, epochs=1)[0])).startswith("train 78 steps")
    with pytest.raises(InputError, match=r"--turns 2.2 is an online recipe, which has no --contexts"):
        main(PlanConfig(turns=2.2, contexts=5))


def test_no_more_trajectories_run_than_there_are():
    """As those do that are all as long as the mean."""
    equal, shorter = (predict_step(PlanConfig(gpus=64, turns=3, longest=longest)) for longest in (9000, 3000))
    assert shorter.seconds["generation"] == equal.seconds["generation"]


def test_lengths_are_those_of_trajectories(tmp_path):
    def used(*answers):
        return [{"prompt_tokens": 100, "completion_tokens": tokens} for tokens in answers]

    first, turns = tmp_path / "turn0.jsonl", tmp_path / "turns.jsonl"
    first.write_text(json.dumps({"id": 1, "usage": [*used(30, 40), None]}))
    turns.write_text(json.dumps({"id": 1, "usage": [used(30, 40), [*used(500), None]]}))
    assert with_lengths(PlanConfig(lengths=first)) == PlanConfig(prompt=100, response=35, longest=40)
    assert with_lengths(PlanConfig(lengths=turns)) == PlanConfig(prompt=100, response=190, longest=500)
    for uncounted in ([None], used(0)):
        turns.write_text(json.dumps({"id": 1, "usage": [uncounted]}))
        with pytest.raises(InputError, match=r"turns.jsonl: no usage"):
            with_lengths(PlanConfig(lengths=turns))
    with pytest.raises(InputError, match="--lengths and --prompt exclude each other"):
        with_lengths(PlanConfig(lengths=first, prompt=100))


@pytest.mark.parametrize(
    ("usage", "field"),
    [
        (None, "'usage'"),
        (5, "'usage'"),
        ([5], r"'usage'\[0\]"),
        ([[None, {"completion_tokens": 5}]], r"'usage'\[0\]\[1\]\['prompt_tokens'\]"),
        ([{"prompt_tokens": 5, "completion_tokens": -5}], r"'usage'\[0\]\[0\]\['completion_tokens'\]"),
        ([{"prompt_tokens": 5, "completion_tokens": None}], r"'usage'\[0\]\[0\]\['completion_tokens'\]"),
    ],
)
def test_usage_that_tells_no_lengths_is_named(usage, field, tmp_path):
    write_jsonl(source := tmp_path / "in.jsonl", [{"id": 1, "usage": [None]}, {"id": 2, "usage": usage}])
    with pytest.raises(InputError, match=rf"in.jsonl: line 2: field {field}"):
        with_lengths(PlanConfig(lengths=source))


def test_an_h100_waits_for_its_memory_where_caches_are_large():
    for shape, slower in (("qwen3-8b", 1.2), ("qwen2.5-coder-1.5b", 1.0)):
        short = {} if slower > 1 else {"prompt": 500, "response": 150, "longest": 600, "prompts": 32, "gpus": 1}
        newer, older = (predict_step(PlanConfig(shape=shape, gpu=gpu, **short)).seconds for gpu in ("h200", "h100"))
        assert older["generation"] >= slower * newer["generation"]
        assert older["update"] == newer["update"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"shape": "qwen3-32b"}, "--gpus 4: training qwen3-32b needs the memory of at least 8 H200s"),
        ({"gpu": "h100", "gpus": 2}, "--gpus 2: training qwen3-8b needs the memory of at least 4 H100s"),
        ({"problems": 21}, "--problems 21: 126 contexts are no step of 128 prompts"),
    ],
)
def test_what_cannot_be_trained_is_refused(flags, told):
    with pytest.raises(InputError, match=told):
        main(PlanConfig(**flags))
