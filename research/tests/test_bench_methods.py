"""The arithmetic of bench_methods.py: what is drawn, reported and predicted. Its loops: tests/verl09."""

import json
import statistics
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import api_server
import pytest

from cobalt.completion import Completion, Sampling, request_seed
from cobalt.errors import InputError, SetupError
from cobalt.evaluation.files import read_evaluation
from cobalt.records.training_run import append_metrics
from research.benchmarks import bench_methods
from research.benchmarks.bench_methods import MethodsBenchConfig, Step, collected, drawn, measured, played, waiting

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mean", [1000, 3000])
def test_lengths_follow_their_law(mean):
    lengths = [drawn(seed, mean, 0)[0] for seed in range(20_000)]
    assert statistics.fmean(lengths) == pytest.approx(mean, rel=0.02)
    assert 256 <= min(lengths) < 300 and 6000 < max(lengths) <= 6144
    share = statistics.fmean(length <= bench_methods.MEDIANS[1000] for length in lengths)
    assert (0.43 < share < 0.45) if mean == 1000 else share < 0.05


def test_a_draw_is_that_of_its_problem_sample_and_turn_alone():
    step = Step("grpo-mt", 3000, 2)
    paths = played(step)
    for index, sample in ((3, 7), (0, 15), (3, 7)):
        path = paths[index * bench_methods.SAMPLES + sample]
        found = [drawn(request_seed(0, f"2.{index}", sample, turn), 3000, turn) for turn in range(len(path))]
        assert [length for length, _ in found] == path
        assert not any(passes for _, passes in found[:-1]) and (found[-1][1] or len(path) == 3)
    first_turns = [path[:1] for path in paths]
    assert first_turns == played(step._replace(method="cobalt")) == played(step._replace(method="single-turn"))


def test_methods_of_one_start_take_turns_so_that_a_run_that_is_cut_off_has_some_of_each():
    first, second, *rounds = bench_methods.steps_of(["cobalt", "grpo-mt"], [1000, 3000])
    assert (first, second) == (Step("cobalt", 1000, -1), Step("grpo-mt", 1000, -1))
    each = [(mean, method) for mean in (1000, 3000) for method in ("cobalt", "grpo-mt")]
    assert rounds == [Step(method, mean, number) for number in range(3) for mean, method in each]
    alone = [step.number for step in bench_methods.steps_of(["grpo-mt-async"], [1000, 3000])]
    assert alone == 2 * [-1, -1, 0, 1, 2]


def test_turns_pass_as_the_stored_counts_say():
    problems = read_evaluation(ROOT / "research/results/paper-in-miniature/counts/base.clean.counts.json").problems
    solved = [0.0, *(statistics.fmean(each.solved_T[turn] / each.samples for each in problems) for turn in range(3))]
    shares = [(after - before) / (1 - before) for before, after in pairwise(solved)]
    assert pytest.approx(shares, abs=5e-4) == bench_methods.PASSES


def test_idle_is_the_time_in_which_rows_of_the_step_do_not_generate():
    # two rows: one from 0 to 4; the other from 0 to 2, its program until 3, then to 10
    found = waiting([(0, 4, 40), (0, 2, 20), (3, 10, 70)], 2)
    assert found == pytest.approx({"idle": 1 - 13 / 20, "tail_idle": 0.5, "tail_s": 6, "full_from": 0, "full_until": 4})
    together = waiting([(0, 5, 1), (0, 5, 1)], 2)
    assert (together["idle"], together["tail_idle"], together["tail_s"]) == (0, 0, 0)


def folder_of(tmp_path, step, tokens):
    """A training of a warm step and a measured one."""
    lines = [{"step": 2, "start": 0.0, "end": 10.0, "tokens": length} for path in played(step) for length in path]
    lines[0]["end"] = 30.0
    (tmp_path / bench_methods.RESPONSES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    seconds = {"gen": 30.0, "old_log_prob": 2.0, "ref": 3.0, "update_actor": 12.0, "update_weights": 1.0, "step": 50.0}
    for place in (1, 2):
        timings = {f"timing_s/{name}": value * (100 if place == 1 else 1) for name, value in seconds.items()}
        costs = {"cost/responses": 64, "cost/prompt_tokens": 70_000, "cost/response_tokens": tokens}
        append_metrics(tmp_path, place, timings | costs)
    return tmp_path


def test_a_step_is_divided_by_what_it_made_without_the_warm_one(tmp_path):
    step = Step("cobalt", 1000, 0)
    tokens = sum(map(sum, played(step)))
    steps = [Step("cobalt", 1000, -1), step]
    (cell,) = measured("qwen3-4b", steps, folder_of(tmp_path, step, tokens)).items()
    name, found = cell
    assert name == "qwen3-4b 1000 cobalt" and found["seconds"]["step"] == 50
    assert found["seconds"]["weights"] == 1 and "reward" not in found["seconds"]
    assert (found["per_example"], found["per_response"]) == (50 / 4, 50 / 64)
    assert found["per_token"] == pytest.approx(50 / tokens)
    assert (found["tail_s"], found["tail_idle"]) == (20, pytest.approx(63 / 64))
    json.dumps(found)


def test_a_training_that_was_cut_off_gives_its_finished_steps(tmp_path, capsys):
    step = Step("cobalt", 1000, 0)
    (folder := tmp_path / "qwen3-4b-grpo_online-sync").mkdir()
    folder_of(folder, step, sum(map(sum, played(step))))
    (tmp_path / "prediction.json").write_text(json.dumps({"paper": {}, "cells": {}}))
    flags = {"shapes": ("qwen3-4b",), "methods": ("cobalt",), "results": tmp_path, "output_dir": tmp_path}
    bench_methods.main(MethodsBenchConfig(read=True, models=tmp_path / "nowhere", **flags))
    assert len(json.loads((tmp_path / "result.json").read_text())["qwen3-4b 1000 cobalt"]["steps"]) == 1
    bench_methods.main(MethodsBenchConfig(methods=(), results=tmp_path))
    assert capsys.readouterr().out.count("| qwen3-4b 1000 cobalt | measured |") == 2


def test_other_responses_than_the_drawn_ones_are_no_figures(tmp_path):
    step = Step("grpo-mt", 1000, 0)
    with pytest.raises(SetupError, match="step 2 has 7 tokens, not "):
        measured("qwen3-4b", [Step("grpo-mt", 1000, -1), step], folder_of(tmp_path, step, 7))


def test_asynchronous_steps_count_in_pairs_and_only_with_problems_of_their_own_method(tmp_path):
    steps = bench_methods.steps_of(["cobalt-async", "grpo-mt-async"], [1000])
    row = {"step": 1, "start": 0.0, "end": 1.0, "tokens": 256}
    (tmp_path / bench_methods.RESPONSES_FILE).write_text(json.dumps(row))
    made = [sum(map(sum, played(step))) for step in steps]
    two_problems = bench_methods.SAMPLES * 2
    mixed = sum(map(sum, played(steps[2])[:two_problems] + played(steps[3])[two_problems:]))
    tokens = [made[0], made[1], mixed, made[3], made[4], *made[5:9], made[0]]  # the last: Cobalt's, finished early
    for place, count in enumerate(tokens, 1):
        seconds = {f"timing_s/{phase}": float(place) for phase in ("gen", "step")}
        responses = 64 if place in (1, 2, 3, 4, 5, 10) else sum(map(len, played(steps[place - 1])))
        costs = {"cost/responses": responses, "cost/prompt_tokens": 9, "cost/response_tokens": count}
        append_metrics(tmp_path, place, seconds | costs)
    cells = measured("qwen3-4b", steps, tmp_path)
    assert cells["qwen3-4b 1000 cobalt-async"]["seconds"]["step"] == statistics.fmean([3, 4])  # 5: beside GRPO-MT
    assert cells["qwen3-4b 1000 grpo-mt-async"]["seconds"]["step"] == statistics.fmean([8, 9])


def test_collections_price_is_that_of_the_time_with_every_slot_taken(monkeypatch):
    monkeypatch.setattr(bench_methods, "SLOTS", 2)
    found = collected([(0, 10, 100), (0, 5, 50), (5, 10, 50), (10, 110, 1000)])
    assert found["seconds"]["step"] == 110
    assert found["per_token"] == pytest.approx(10 / 200) and found["per_response"] == pytest.approx(300 / 20)


async def test_collection_asks_for_the_drawn_length_and_answers_as_drawn():
    asked = []

    async def generate(messages, sampling, seed):
        asked.append(sampling)
        return Completion("whatever", 1000, sampling.max_tokens, "length")

    engine = bench_methods.ForcedEngine(SimpleNamespace(model_id="m", max_in_flight=2, generate=generate), 3000)
    turn_1 = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": ""}]
    for seed in range(20):
        made = await engine.generate(turn_1, Sampling(), seed)
        length, passes = drawn(seed, 3000, 1)
        assert made.completion_tokens == asked[-1].max_tokens == length and asked[-1].extra_body == {"ignore_eos": True}
        assert ("print(a + b)" in made.text) == passes
    assert [tokens for _, _, tokens in engine.spans] == [sampling.max_tokens for sampling in asked]


async def test_a_collection_runs_as_the_product_runs_it(tmp_path, monkeypatch):
    """Through ``run_multi_turn`` and HTTP, with programs in real sandboxes."""

    def answer_forced(handler, body):
        choices = [{"index": 0, "message": {"role": "assistant", "content": "any"}, "finish_reason": "length"}]
        usage = {"prompt_tokens": 9, "completion_tokens": body["max_tokens"], "total_tokens": 9 + body["max_tokens"]}
        made = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}
        handler._send(200, json.dumps(made).encode())

    monkeypatch.setattr(api_server.Handler, "answer_forced", answer_forced, raising=False)
    for name, value in {"PROBLEMS": 2, "SAMPLES": 2, "SLOTS": 3}.items():
        monkeypatch.setattr(bench_methods, name, value)
    with api_server.api_server(lambda _body, _attempt: ("forced", {})) as server:
        config = MethodsBenchConfig(api_base=server.base)
        spans = await bench_methods.collect(config, ROOT / "assets/minicoder", 3000, tmp_path / "found")
    assert all(body["ignore_eos"] for body in server.bodies)
    assert sorted(body["max_tokens"] for body in server.bodies) == sorted(tokens for _, _, tokens in spans)
    assert len(spans) == 2 * 2 * 3
    for record in map(json.loads, (tmp_path / "found/turns.jsonl").read_text().splitlines()):
        for sample, conversation in enumerate(record["conversations"]):
            for turn, message in enumerate(conversation[2::2]):
                _, passes = drawn(request_seed(42, record["id"], sample, turn), 3000, turn)
                assert ("print(a + b)" in message["content"]) == passes
                assert (record["public_pass_rates"][turn][sample] == 1) == passes


def test_a_prediction_has_every_cell(tmp_path, capsys):
    bench_methods.main(MethodsBenchConfig(predict=True, results=tmp_path))
    cells = json.loads((tmp_path / "prediction.json").read_text())["cells"]
    assert len(cells) == 2 * 2 * 8
    for setting in ("qwen3-4b 3000", "qwen3-1.7b 1000"):
        single, online, asynchronous = (cells[f"{setting} {name}"] for name in ("cobalt", "grpo-mt", "grpo-mt-async"))
        assert single["per_example"] < online["per_example"] > asynchronous["per_example"]
    shown = capsys.readouterr().out
    assert "213.6" in shown and "qwen3-4b 3000 cobalt, collection over 6" in shown


def test_a_measured_cell_keeps_what_was_expected_before(tmp_path):
    bench_methods.main(MethodsBenchConfig(predict=True, results=tmp_path))
    first = json.loads((tmp_path / "prediction.json").read_text())
    earlier = {cell: {**found, "per_token": 1.0} for cell, found in first["cells"].items()}
    (tmp_path / "prediction.json").write_text(json.dumps({**first, "cells": earlier}))
    measured = "qwen3-4b 3000 cobalt"
    (tmp_path / "result.json").write_text(json.dumps({measured: earlier[measured]}))
    bench_methods.main(MethodsBenchConfig(predict=True, results=tmp_path))
    cells = json.loads((tmp_path / "prediction.json").read_text())["cells"]
    assert cells == {**first["cells"], measured: earlier[measured]}

    (tmp_path / "prediction.json").unlink()
    bench_methods.main(MethodsBenchConfig(predict=True, results=tmp_path))  # it is too late for the measured one
    cells = json.loads((tmp_path / "prediction.json").read_text())["cells"]
    assert {**cells, measured: first["cells"][measured]} == first["cells"] and measured not in cells


def test_nothing_runs_before_a_prediction_or_without_a_model(tmp_path):
    with pytest.raises(InputError, match="make it before the runs"):
        bench_methods.main(MethodsBenchConfig(results=tmp_path))
    with pytest.raises(InputError, match=r"nowhere/minicoder-1\.7b: no model"):
        bench_methods.main(MethodsBenchConfig(models=tmp_path / "nowhere", results=ROOT / "research/results/price"))


def test_runs_add_up_in_one_file_and_cobalt_is_shown_with_its_collection(tmp_path, monkeypatch, capsys):
    expected = {"paper": {"Cobalt": 67.6}, "cells": {}}
    (tmp_path / "prediction.json").write_text(json.dumps(expected))
    price = {"seconds": {"step": 40.0}, "per_example": 10.0, "per_response": 2.0, "per_token": 0.001}
    for method, shape in (("cobalt", "qwen3-4b"), ("collection", "qwen3-4b"), ("cobalt", "qwen3-1.7b")):
        monkeypatch.setattr(bench_methods, "measure", lambda *_: [{f"{shape} 3000 {method}": price}])  # noqa: B023
        bench_methods.main(MethodsBenchConfig(shapes=(shape,), results=tmp_path))
    assert len(json.loads((tmp_path / "result.json").read_text())) == 3
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    prices = {row[1]: row[10] for row in rows[-7:]}
    # 16 trajectories of 3 responses for 6 contexts, seen twice: 4 responses of 2 GPU-seconds an example
    assert prices["qwen3-4b 3000 cobalt, collection over 1"] == "18.0"
    assert prices["qwen3-4b 3000 cobalt, collection over 2"] == "14.0"
    assert prices["qwen3-4b 3000 cobalt, collection over 6"] == "11.3"
    assert "qwen3-1.7b 3000 cobalt, collection over 1" not in prices
