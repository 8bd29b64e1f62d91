"""Properties of the generated problems: tests that reject, a split that cannot be memorised, reproducible rows."""

import ast
import itertools
import json
import random
import re
from collections import Counter

import pytest

from cobalt.records import TestCases
from cobalt.sandbox.executor import Executor
from research.minicode.corpus import sample_dialogues
from research.minicode.demonstrator import Noise
from research.minicode.generate import generate_rows
from research.minicode.operations import COMMON, OPERATIONS, WIDER, Domain, Kind
from research.minicode.problems import (
    Problem,
    hidden_alternatives,
    look_alikes,
    other_neighbours,
    sample_problem,
    solved_by_training,
)
from research.minicode.programs import Pipeline, Variant, domain_of, run, write_program
from research.minicode.tokenizer import TURN_END

SEED = 3


@pytest.fixture(scope="module")
def problems() -> dict[str, list[Problem]]:
    rng = random.Random(SEED)
    return {split: [sample_problem(rng, split) for _ in range(count)] for split, count in (("train", 100), ("dev", 12))}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return list(generate_rows(num_problems=30, dev_size=4, seed=SEED))


def passes(pipeline: Pipeline, tests: TestCases) -> bool:
    return all(run(pipeline, i).strip() == o.strip() for i, o in zip(tests.inputs_K, tests.outputs_K, strict=True))


def normalised(program: str) -> str:
    """The program's AST with every name that it defines itself replaced by its order of appearance."""
    tree = ast.parse(program)
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    stored += [n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)]
    stored += [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    names = {name: f"v{number}" for number, name in enumerate(dict.fromkeys(stored))}
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            if isinstance(value := getattr(node, field, None), str):
                setattr(node, field, names.get(value, value))
    return ast.dump(tree)


def test_the_operations_are_complete_and_every_look_alike_is_another_one_of_the_same_place():
    assert len(COMMON) >= 40 and {operation.name for operation in WIDER} == set(OPERATIONS) - set(COMMON)
    assert len({phrase for name in COMMON for phrase in OPERATIONS[name].phrases}) >= 2 * len(COMMON)
    for operation in OPERATIONS.values():
        other = OPERATIONS[operation.look_alike]
        assert other.name != operation.name and other.domain is operation.domain
        assert (other.kind is Kind.FINAL) is (operation.kind is Kind.FINAL)
        assert (other.name in COMMON) is (operation.name in COMMON)
        assert other.constants == operation.constants or not other.constants or not operation.constants
        if operation.name in COMMON:
            assert operation.other_words and operation.other_words not in operation.phrases
            assert ("{c}" in operation.other_words) is bool(operation.constants)


def test_rows_have_tacos_fields_and_pass_its_filters(rows):
    for row in rows:
        assert list(row) == [
            "id", "source", "difficulty", "question", "starter_code", "input_output", "solutions", "split",
            "fully_specified",
        ]  # fmt: skip
        assert len(json.loads(row["solutions"])) >= 3 and len(TestCases.parse(row["input_output"])) == 20
        assert sum(character.isalnum() for character in row["question"]) >= 100
        assert "image" not in row["question"].lower() and "![" not in row["question"]
    assert len({row["id"] for row in rows}) == len(rows)
    assert list(generate_rows(num_problems=30, dev_size=4, seed=SEED)) == rows
    assert [r["question"] for r in generate_rows(5, 0, SEED + 1)] != [r["question"] for r in rows[:5]]


def test_the_four_shortest_inputs_are_public_varied_and_hidden_nowhere(problems):
    everything = list(itertools.chain(*problems.values()))
    for problem in everything:
        assert len(problem.public) == 4 and len(problem.hidden) == 16
        assert max(map(len, problem.public.inputs_K)) < min(map(len, problem.hidden.inputs_K))
        assert Counter(problem.public.outputs_K).most_common(1)[0][1] <= 2
    public = {text for problem in everything for text in problem.public.inputs_K}
    assert not public & {text for problem in everything for text in problem.hidden.inputs_K}


def test_neighbours_fail_a_hidden_test_and_the_nearest_a_public_one(problems):
    for problem in itertools.chain(*problems.values()):
        nearest = look_alikes(problem.pipeline) + hidden_alternatives(problem.pipeline, problem.hidden_index)
        assert not any(passes(rival, problem.hidden) for rival in nearest + other_neighbours(problem.pipeline))
        assert not any(passes(rival, problem.public) for rival in nearest)
        if problem.hidden_index is not None:  # the statement keeps the rule back
            name, constant = problem.pipeline[problem.hidden_index]
            spoken = [phrase.replace("{c}", str(constant)) for phrase in OPERATIONS[name].phrases]
            assert not any(phrase in problem.statement for phrase in spoken)


def test_no_training_pipeline_solves_a_dev_problem(problems):
    for problem in problems["dev"]:
        tests, domain = problem.public + problem.hidden, domain_of(problem.pipeline)
        assert not any(passes(p.pipeline, tests) for p in problems["train"] if domain_of(p.pipeline) is domain)
    for problem in problems["dev"][:8]:
        assert not solved_by_training(problem.public + problem.hidden, domain_of(problem.pipeline))
    for domain in Domain:  # the guard can fail: a training problem is solved by a training pipeline, its own
        problem = next(p for p in problems["train"] if domain_of(p.pipeline) is domain)
        assert solved_by_training(problem.public + problem.hidden, domain)


async def test_solutions_differ_in_structure_and_pass_in_the_sandbox(problems):
    for problem in problems["train"]:
        assert len({normalised(write_program(problem.pipeline, variant)) for variant in Variant}) == 3
    chosen = problems["train"][:12] + problems["dev"][:6]
    async with Executor(workers=2) as executor:
        for problem, variant in itertools.product(chosen, Variant):
            result = await executor.run(write_program(problem.pipeline, variant), problem.public + problem.hidden)
            assert result.solved, (problem.pipeline, variant, result.outputs)


def test_no_corpus_or_training_program_equals_a_dev_program(problems):
    dev = {normalised(write_program(p.pipeline, v)) for p in problems["dev"] for v in Variant}
    train = [write_program(p.pipeline, v) for p in problems["train"] for v in Variant]
    noise = Noise(slip=0.3, wrong_constant=0.05, left_out=0.05, unrepaired=0.5, misread=0.5, repeat=0.1)
    samples = list(sample_dialogues(random.Random(SEED), noise, 150))
    texts = [s.prompt + s.response for s in samples]
    found = {program for text in texts for program in re.findall(r"```python\n([^`]*)\n```", text)}
    corpus = {program for program in found if TURN_END not in program}  # not those that end too early
    assert len(corpus) > 500
    assert not dev & {normalised(program) for program in {*train, *corpus}}
