"""The world's wider part: its shifted test set shares no words, and operations or lengths neither, with training."""

import json
import random
from pathlib import Path

import pytest

from cobalt.preproc.taco import TacoConfig
from cobalt.preproc.taco import main as prepare
from cobalt.records import read_jsonl
from cobalt.sandbox.executor import Executor
from research.minicode.generate import GenerateConfig
from research.minicode.generate import main as generate
from research.minicode.operations import COMMON, OPERATIONS
from research.minicode.problems import MOST_STEPS, Problem, sample_problem, solved_by_training, split_of
from research.minicode.programs import FN_NAME, Variant, domain_of, write_function, write_program


@pytest.fixture(scope="module")
def shifted() -> list[Problem]:
    rng = random.Random(5)
    return [sample_problem(rng, "shifted") for _ in range(24)]


def solution(problem: Problem) -> str:
    return write_function(problem.pipeline) if problem.called else write_program(problem.pipeline, Variant.SCRIPT)


def test_shifted_problems_have_what_no_training_problem_has(shifted):
    kinds = [0, 0]
    for problem in shifted:
        wider = [name for name, _ in problem.pipeline if name not in COMMON]
        long = len(problem.pipeline) > MOST_STEPS
        assert wider or long
        kinds = [kinds[0] + bool(wider), kinds[1] + long]
        assert split_of(problem.pipeline) == "shifted"
        assert not any(phrase in problem.statement for name in COMMON for phrase in OPERATIONS[name].phrases)
        assert not solved_by_training(problem.public + problem.hidden, domain_of(problem.pipeline))
    assert min(kinds) > len(shifted) / 4
    # Pre-training meets the wider part in other compositions.
    rng = random.Random(6)
    met = [sample_problem(rng, "wider", with_hidden_tests=False).pipeline for _ in range(60)]
    seen = {frozenset(name for name, _ in pipeline) for pipeline in met}
    assert not seen & {frozenset(name for name, _ in problem.pipeline) for problem in shifted}
    assert {name for pipeline in met for name, _ in pipeline} - set(COMMON)


async def test_solutions_pass_in_the_sandbox_and_look_alikes_fail(shifted):
    async with Executor(workers=2) as executor:
        for problem in shifted[:16]:
            tests = problem.shown(problem.public + problem.hidden)
            assert (tests.fn_name == FN_NAME) is problem.called
            assert (await executor.run(solution(problem), tests)).solved, problem.statement
    assert {problem.called for problem in shifted[:16]} == {True, False}


def test_generated_and_prepared(tmp_path: Path):
    raw, prepared = tmp_path / "raw.jsonl", tmp_path / "shifted.jsonl"
    generate(GenerateConfig(output_file=raw, num_problems=0, dev_size=0, shifted_size=12, seed=3))
    rows = list(read_jsonl(raw))
    assert [row["split"] for row in rows] == [None] * 12
    prepare(TacoConfig(input_file=raw, output_file=prepared, dev_size=0, executor="local"))
    records = list(read_jsonl(prepared))
    assert [record["id"] for record in records] == [row["id"] for row in rows]
    called = 0
    for record, row in zip(records, rows, strict=True):
        public, everything = json.loads(record["public_test_cases"]), json.loads(row["input_output"])
        assert len(public["inputs"]) == 4
        assert sorted(map(len, everything["inputs"]))[:4] == sorted(map(len, public["inputs"]))
        assert (f"`{FN_NAME}`" in record["instruction"]) is ("fn_name" in everything)
        called += "fn_name" in everything
    assert 0 < called < 12
