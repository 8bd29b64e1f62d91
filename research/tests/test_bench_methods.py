"""The arithmetic of bench_methods.py: what is drawn and reported, and how long prompts and responses are."""

import json
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from cobalt.completion import request_seed
from cobalt.errors import SetupError
from cobalt.evaluation.files import read_evaluation
from cobalt.prompts import prompt_tokens
from cobalt.records.training_run import append_metrics
from research.benchmarks import bench_methods
from research.benchmarks.bench_methods import Step, drawn, measured, played, waiting

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(ROOT / "assets/minicoder")


def test_contexts_are_longer_than_problems_as_the_prediction_takes_them(tokenizer):
    step = Step("cobalt", 1000, 0)
    for index, messages in enumerate(bench_methods.training_rows([step], tokenizer)["prompt"]):
        tokens = bench_methods.PROBLEM_TOKENS + bench_methods.TURN_TOKENS * bench_methods.shown_programs(step, index)
        assert len(prompt_tokens(tokenizer, messages)) == pytest.approx(tokens, rel=0.03)


def test_a_response_has_as_many_tokens_as_asked_for_and_holds_its_program(tokenizer):
    for length in (bench_methods.SHORTEST, bench_methods.LONGEST):
        ids = bench_methods.answer_tokens(tokenizer, length, True, "2.3-15-2")
        assert len(ids) == length and ids[-1] == tokenizer.eos_token_id
        assert bench_methods.answer(True, "2.3-15-2") in tokenizer.decode(ids)


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
    assert (found["per_example"], found["per_response"]) == (50 / 4, 50 / 64)
    assert found["per_token"] == pytest.approx(50 / tokens)
    assert (found["tail_s"], found["tail_idle"]) == (20, pytest.approx(63 / 64))


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
