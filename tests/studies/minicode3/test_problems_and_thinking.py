"""MiniCode 3: problems that only their solutions pass, and thinking whose values are those of real execution."""

import ast
import json
import random
import re
from collections import Counter
from itertools import cycle, pairwise
from typing import Any

import pytest

from cobalt.preproc.taco import TacoConfig
from cobalt.preproc.taco import main as prepare
from cobalt.prompts import feedback_to_policy, with_feedback
from cobalt.records import TestCases, read_jsonl, write_jsonl
from cobalt.sandbox.executor import Executor
from studies.minicode.problems import replace_step
from studies.minicode3.generate import generate_rows
from studies.minicode3.operations import OPERATIONS, Kind
from studies.minicode3.problems import (
    LONGEST_PUBLIC,
    NUM_PUBLIC,
    SECRET_SENTENCE,
    Problem,
    alternatives,
    has_rare_pair,
    look_alike,
    other_neighbours,
    sample_problem,
)
from studies.minicode3.programs import Variant, plan_of, write_program
from studies.minicode3.thinking import CLEAN, Attempt, Dialogue, Noise, careful_attempt, sloppy_attempt

STEP = re.compile(r"(\d+)\. (.*?)(?:: (.*))? = (.*)")
"""A line of a run: number, plan, work, value. A plan may hold " = " only as "==" or ">=", never with a colon before."""
SPLITS = {"train": 24, "dev": 6, "wider": 4, "shifted": 6}


@pytest.fixture(scope="module")
def problems() -> dict[str, list[Problem]]:
    rng = random.Random(3)
    return {split: [sample_problem(rng, split) for _ in range(count)] for split, count in SPLITS.items()}


@pytest.fixture(scope="module")
def some(problems) -> list[Problem]:
    return [problem for group in problems.values() for problem in group]


def shown(value: Any) -> str:
    """A value as a trace shows it."""
    if isinstance(value, dict):
        return " ".join(f"{key}:{value[key]}" for key in value) or "nothing"
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "nothing"
    return str(value).strip().replace("\n", " / ") or "nothing"


def executed(program: str, text: str) -> list[str]:
    """What a script (``Variant.SCRIPT``) holds after each step, and what it prints: its statements, one by one."""
    printed: list[Any] = []
    space: dict[str, Any] = {"input": lambda: text, "print": printed.append}
    values = []
    read, *statements = ast.parse(program).body
    exec(ast.unparse(read), space)
    while statements:
        step = [statements.pop(0)]
        if statements and isinstance(statements[0], ast.For):  # a loop, after what it starts from
            step.append(statements.pop(0))
            following = statements[0]
            if isinstance(following, ast.Assign) and ast.unparse(following.value) == "out":
                step.append(statements.pop(0))
        for statement in step:
            exec(ast.unparse(statement), space)
        last = step[-1]
        if isinstance(last, ast.Expr):
            values.append(shown(printed[0]))
        else:
            at = last.body[0] if isinstance(last, ast.For) else last
            assert isinstance(at, ast.Assign)
            values.append(shown(space[ast.unparse(at.targets[0]).partition("[")[0]]))
    return values


def solves(program: str, tests: TestCases) -> bool:
    """Whether a program of ours, run in this process, solves the tests."""
    for text, want in zip(tests.inputs_K, tests.outputs_K, strict=True):
        printed: list[Any] = []
        try:
            exec(program, {"input": lambda text=text: text, "print": printed.append})
        except Exception:  # of a neighbour
            return False
        if "\n".join(map(str, printed)).strip() != want:
            return False
    return True


def runs_in(thinking: str) -> list[tuple[str, list[re.Match[str]]]]:
    """The unbroken runs of a trace from the first step on: the input, and the line of each step."""
    lines, found = thinking.split("\n"), []
    for at, line in enumerate(lines):
        if start := re.fullmatch(r"(?:Example \d|Run the program|Run the plan): (.*)", line):
            steps = []
            for step in lines[at + 1 :]:
                match = STEP.fullmatch(step)
                if match is None or int(match[1]) != len(steps) + 1:
                    break
                steps.append(match)
            found.append((start[1], steps))
    return found


def failed_dialogues(problems: list[Problem], seed: int) -> list[Dialogue]:
    """Dialogues whose last program failed a test that is shown."""
    rng, found = random.Random(seed), []
    for problem in problems:
        dialogue = Dialogue(problem)
        for _ in range(3):
            dialogue.add(sloppy_attempt(rng, dialogue))
            if dialogue.failing is not None:
                found.append(Dialogue(problem, dialogue.attempts[:], dialogue.feedbacks[:], dialogue.failing))
    return found


def test_operations_fit_their_look_alikes_and_have_three_phrasings():
    for operation in OPERATIONS.values():
        other = OPERATIONS[operation.look_alike]
        assert (other.source, other.target) == (operation.source, operation.target), operation.name
        assert len(set(operation.phrases)) >= 3, operation.name
        for phrase in (*operation.phrases, operation.plan, operation.code):
            assert not operation.constants or "{c}" in phrase, (operation.name, phrase)
        for name in operation.vague_choices:
            assert operation.vague_phrases and OPERATIONS[name].vague_choices == operation.vague_choices
    plans = Counter((o.source, o.plan) for o in OPERATIONS.values())
    assert set(plans.values()) == {1}, "a plan says which operation is meant"


def test_every_phrasing_is_met():
    rng, phrasings = random.Random(0), dict[str, list[str]]()
    for _ in range(500):
        problem = sample_problem(rng, "train", with_hidden_tests=False)
        for index, (phrase, (name, constant)) in enumerate(zip(problem.phrases, problem.pipeline, strict=True)):
            assert phrase in problem.statement
            if index != problem.vague_index:
                phrasings.setdefault(name, []).append(phrase.replace(str(constant), "{c}"))
    often = {name: found for name, found in phrasings.items() if len(found) >= 20}
    assert len(often) > 30 and all(set(found) == set(OPERATIONS[name].phrases) for name, found in often.items())


async def test_solutions_pass_in_the_sandbox(some):
    async with Executor(workers=2) as executor:
        for problem, variant in zip(some, cycle(Variant)):
            tests = problem.public + problem.hidden
            assert (await executor.run(write_program(problem.pipeline, variant), tests)).solved, problem.statement


def test_every_variant_of_a_solution_passes_and_its_neighbours_fail(some):
    for problem in some:
        for variant in Variant:
            assert solves(write_program(problem.pipeline, variant), problem.public + problem.hidden), problem.statement
        mutants = [replace_step(problem.pipeline, i, look_alike(step)) for i, step in enumerate(problem.pipeline)]
        for mutant in [*mutants, *other_neighbours(problem.pipeline)]:
            assert not solves(write_program(mutant, Variant.SCRIPT), problem.hidden), (problem.pipeline, mutant)
        for mutant in mutants:
            assert not solves(write_program(mutant, Variant.FUNCTION), problem.public)


async def test_other_values_of_a_secret_rule_fail(some):
    vague = [problem for problem in some if problem.vague_index is not None]
    assert vague
    async with Executor(workers=2) as executor:
        for problem in vague[:4]:
            index = problem.vague_index
            assert index is not None and SECRET_SENTENCE in problem.statement and not problem.fully_specified
            for step in alternatives(problem.pipeline[index]):
                program = write_program(replace_step(problem.pipeline, index, step), Variant.SCRIPT)
                assert (await executor.run(program, problem.public)).solved is (step == problem.pipeline[index])


def test_the_splits_have_compositions_of_their_own(problems):
    sets = {
        split: {frozenset(name for name, _ in problem.pipeline) for problem in group}
        for split, group in problems.items()
    }
    assert not sets["train"] & sets["dev"] and not sets["wider"] & sets["shifted"]
    for split, group in problems.items():
        for problem in group:
            is_wider = len(problem.pipeline) == 6 or has_rare_pair(problem.pipeline)
            assert is_wider is (split in ("wider", "shifted")) and 3 <= len(problem.pipeline) <= 6


def test_rows_are_the_same_for_a_seed_and_ready_for_every_command(tmp_path):
    rows = list(generate_rows(6, 2, seed=1, shifted_size=2))
    assert rows == list(generate_rows(6, 2, seed=1, shifted_size=2))
    assert rows[:3] != list(generate_rows(3, 0, seed=2))
    assert len({row["id"] for row in rows}) == 10
    raw, prepared = tmp_path / "raw.jsonl", tmp_path / "problems.jsonl"
    write_jsonl(raw, rows)
    prepare(TacoConfig(input_file=raw, output_file=prepared, dev_size=0, executor="local"))
    made = {row["id"]: row for row in read_jsonl(prepared)}
    assert len(made) == len(rows), "every row is kept and verified"
    for row in rows:
        public = json.loads(made[row["id"]]["public_test_cases"])
        assert set(public["inputs"]) == set(json.loads(row["input_output"])["inputs"][:NUM_PUBLIC])
        assert all(len(text) <= LONGEST_PUBLIC for text in public["inputs"])


async def test_dialogues_hold_the_feedback_that_the_product_shows(some):
    rng = random.Random(1)
    async with Executor(workers=2) as executor:
        for problem in some[::3]:
            dialogue = Dialogue(problem)
            for _ in range(2):
                attempt = sloppy_attempt(rng, dialogue)
                dialogue.add(attempt)
                code = None if attempt.cut else write_program(attempt.pipeline, attempt.variant)
                result = with_feedback(await executor.run(code, problem.public), problem.public)
                assert dialogue.feedbacks[-1].strip() == feedback_to_policy(result).strip()


def test_values_of_a_trace_are_those_of_real_execution(some):
    noise, rng, checked = Noise(misread=0, doubt=0), random.Random(2), 0
    for problem in (problem for problem in some if problem.fully_specified):
        answer = careful_attempt(rng, Dialogue(problem), noise)
        assert answer.pipeline == problem.pipeline
        program = write_program(problem.pipeline, Variant.SCRIPT)
        runs = runs_in(answer.thinking)
        assert [text for text, _ in runs] == [text for text, _ in problem.examples]
        for text, lines in runs:
            assert [line[4] for line in lines] == executed(program, text)
            assert [line[2] for line in lines] == [plan_of(step) for step in problem.pipeline]
            checked += len(lines)
    assert checked > 100


def test_the_work_on_items_leads_to_the_value(some):
    rng, kinds = random.Random(4), set()
    steps = [step for problem in some for step in problem.pipeline]
    plans = {plan_of(step): OPERATIONS[step[0]].kind for step in steps}
    plans.pop("dedupe", None)  # of numbers it is one expression, of words a loop
    for problem in some:
        for _, lines in runs_in(careful_attempt(rng, Dialogue(problem), CLEAN).thinking):
            for _, plan, work, value in (line.groups() for line in lines):
                kind = plans.get(plan)
                if work is None or kind is None:
                    continue
                kinds.add(kind)
                items = [item.rpartition(" ") for item in work.split(", ")]
                if kind is Kind.FILTER:
                    assert (" ".join(item for item, _, said in items if said == "yes") or "nothing") == value
                elif kind is Kind.MAP:
                    assert " ".join(after for _, _, after in items) == value
                elif kind is Kind.FOLD:
                    assert items[-1][2] == value
                elif items[-1][2] != "no" and ":" not in value:
                    assert items[-1][2] == value.split()[-1]
    assert kinds == {Kind.FILTER, Kind.MAP, Kind.LOOP, Kind.FOLD}


def test_a_repair_runs_the_failed_program_and_names_the_first_difference(some):
    rng, later = random.Random(5), 0
    for dialogue in failed_dialogues(some, seed=6):
        failed = dialogue.attempts[-1].pipeline
        answer = careful_attempt(rng, dialogue, CLEAN)
        assert dialogue.failing is not None
        text, got, want = dialogue.failing

        # The failed program, run for real: its values, its output as in the feedback.
        values = executed(write_program(failed, Variant.SCRIPT), text)
        run_text, lines = next(
            run for run in runs_in(answer.thinking) if f"Run the program: {run[0]}" in answer.thinking
        )
        assert run_text == text and [line[4] for line in lines] == values and values[-1] == shown(got)

        # The new program, run for real: where it parts from the failed one, and that it passes the test.
        wanted = executed(write_program(answer.pipeline, Variant.SCRIPT), text)
        first = next(number for number, pair in enumerate(zip(values, wanted, strict=True), 1) if pair[0] != pair[1])
        assert wanted[-1] == shown(want)
        said = re.findall(r"First difference: (\d+)\.", answer.thinking)
        assert said == [str(first)]
        changed = [int(number) for number in re.findall(r"^Change (\d+)\.", answer.thinking, re.MULTILINE)]
        pairs = enumerate(zip(failed, answer.pipeline, strict=True), start=1)
        assert first in changed and changed == [number for number, (old, new) in pairs if old != new]
        later += first > 1
    assert later > 5, "not always the first step"


def test_wrong_thoughts_are_taken_back(some):
    rng, noise = random.Random(7), Noise(misread=0.5, doubt=1)
    kinds: Counter[str] = Counter()
    for problem in some * 2:
        answer = careful_attempt(rng, Dialogue(problem), noise)
        for kind in ("Read ", "Guess ", "Perhaps ", "Back to "):
            kinds[kind] += sum(line.startswith(kind) for line in answer.thinking.split("\n"))
        # Whatever was misread: the program gives the output of every example.
        for text, want in problem.examples:
            assert executed(write_program(answer.pipeline, Variant.SCRIPT), text)[-1] == shown(want)
        verdicts = re.findall(r"Expected .*\. (Right|Wrong)\.", answer.thinking)
        assert verdicts[-1] == "Right"
    assert min(kinds.values()) > 3 and kinds["Perhaps "] == kinds["Back to "]


def test_a_careless_answer_runs_nothing_and_is_often_wrong(some):
    rng = random.Random(8)
    answers = [careful_attempt(rng, Dialogue(problem), Noise(careless=1, misread=0.25)) for problem in some]
    assert not any(runs_in(answer.thinking) for answer in answers)
    wrong = sum(answer.pipeline != problem.pipeline for answer, problem in zip(answers, some, strict=True))
    assert len(some) / 4 < wrong < len(some)


def test_a_stubborn_repair_is_the_failed_program_again(some):
    rng, noise = random.Random(11), Noise(careless=1, stubborn=1)
    for dialogue in failed_dialogues(some, seed=12):
        answer = careful_attempt(rng, dialogue, noise)
        assert answer.pipeline == dialogue.attempts[-1].pipeline and not runs_in(answer.thinking)
        for number, step in enumerate(answer.pipeline, start=1):
            assert re.search(rf"^{number}\. .*: (perhaps )?{re.escape(plan_of(step))}$", answer.thinking, re.MULTILINE)
        assert "Change" not in answer.thinking


def test_a_program_that_passed_is_kept_and_a_cut_response_is_no_program(some):
    rng = random.Random(9)
    for problem in some[:8]:
        dialogue = Dialogue(problem)
        dialogue.add(Attempt(problem.pipeline, "", Variant.SCRIPT))
        assert careful_attempt(rng, dialogue, CLEAN).pipeline == problem.pipeline
        dialogue.add(Attempt(problem.pipeline, "Plan:", Variant.SCRIPT, cut=True))
        assert dialogue.failing is None and "No program" in dialogue.feedbacks[-1]
        after = careful_attempt(rng, dialogue, CLEAN).thinking
        assert after.startswith("Plan:") and "Run the program" not in after


def test_history_is_not_written_twice(some):
    for dialogue in failed_dialogues(some, seed=10):
        assert all(a.pipeline != b.pipeline for a, b in pairwise(dialogue.attempts) if not a.cut and not b.cut)
