"""Filters, test selection and texts of the TACO preparation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cobalt.preproc import taco_rows
from cobalt.preproc.taco_rows import Candidate, TacoRules, prepare, split_of
from cobalt.records import TestCases

RULES = TacoRules()
LONG = "an integer of 5,000 digits"
QUESTION = "Read the number n and print the number that follows it, for every n that the tests may ask. " * 2


def raw(
    inputs: list[Any] | None = None, outputs: list[Any] | None = None, fn_name: str | None = None, **fields
) -> dict:
    inputs = [f"{'1' * (i + 1)}" for i in range(10)] if inputs is None else inputs
    tests: dict[str, Any] = {"inputs": inputs, "outputs": ["1"] * len(inputs) if outputs is None else outputs}
    if fn_name is not None:
        tests["fn_name"] = fn_name
    row = {"id": "p", "difficulty": "EASY", "question": QUESTION, "starter_code": "", "source": "somewhere"}
    return {**row, "input_output": json.dumps(tests), "solutions": json.dumps(["print(1)"]), **fields}


def with_tests(**fields: Any) -> dict:
    """A row of ten tests with more fields beside these."""
    row = raw()
    return {**row, "input_output": json.dumps({**json.loads(row["input_output"]), **fields})}


def flagged(flags: Any) -> dict:
    return with_tests(fn_name="f", generated=flags)


def candidate(row: dict) -> Candidate:
    made = prepare(row, RULES)
    assert isinstance(made, Candidate), made
    return made


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (raw(question=QUESTION + "See the image below."), "image"),
        (raw(question=QUESTION + 'As <img src="x.png"> shows.'), "image"),
        (raw(question=QUESTION + "![](http://x/y.png)"), "image"),
        (raw(question=QUESTION + "<image>"), "image"),  # as CodeContests marks one
        (raw(question="Too short. " + "!?. " * 100), "alphanumeric"),
        (raw(inputs=["1"] * 7), "well-formed tests"),
        (raw(outputs=["1"] * 7 + ["", " \n", None]), "well-formed tests"),
        (raw(input_output="not json"), "well-formed tests"),
        (raw(input_output=json.dumps({"inputs": ["1"] * 9, "outputs": ["1"] * 8})), "well-formed tests"),
        (raw(solutions="[]"), "no reference solution"),
        (raw(solutions=None), "no reference solution"),
        (raw(solutions="7"), "no reference solution"),
        (raw(solutions="[" * 200_000), "no reference solution"),
    ],
)
def test_filters(row: dict, reason: str) -> None:
    dropped = prepare(row, RULES)
    assert isinstance(dropped, str) and reason in dropped


def test_eight_tests_and_a_hundred_characters_suffice() -> None:
    assert len(candidate(raw(inputs=["1"] * 8, question="a" * 100)).readings[0]) == 8
    assert isinstance(prepare(raw(question="a" * 99), RULES), str)
    assert candidate(raw(question=QUESTION + "The image of a set under a map: see figure 1."))


@given(st.permutations(range(1, 41)))
def test_five_shortest_and_fifteen_longest_inputs(lengths: list[int]) -> None:
    made = candidate(raw(inputs=["x" * length for length in lengths]))
    assert [len(text) for text in made.readings[0].inputs_K] == [1, 2, 3, 4, 5, *range(26, 41)]


def test_the_four_shortest_are_public_and_all_tests_are_public_then_hidden() -> None:
    record = candidate(raw(inputs=[str(10**i) for i in reversed(range(10))], outputs=list("abcdefghij"))).record()
    public, hidden, all_tests = (TestCases.parse(record[f"{name}test_cases"]) for name in ("public_", "hidden_", ""))
    assert candidate(raw(inputs=list("9876543210"))).readings[0].inputs_K == tuple("9876543210"), (
        "equal lengths stay in order"
    )
    assert public.inputs_K == ("1", "10", "100", "1000") and public.outputs_K == ("j", "i", "h", "g")
    assert len(hidden) == 6 and all_tests == public + hidden


def test_solutions_come_out_of_their_fences_and_tests_have_the_line_ends_of_linux() -> None:
    fenced = ["```python\nprint(1)\n```", "print(2)", 'x = """\n```\nprint(3)\n```\n"""']
    made = candidate(raw(["1\r\n2\r\n"] * 8, ["1\r\n2"] * 8, solutions=fenced))
    assert made.solutions == ("print(1)", *fenced[1:])
    assert (made.readings[0].inputs_K[0], made.readings[0].outputs_K[0]) == ("1\n2\n", "1\n2")


def test_lists_of_texts_are_lines_first_and_lists_of_numbers_a_line() -> None:
    inputs = [["3", "1 2 3"], [4, 5], 7, "plain\ntext", *"123456"]
    made = candidate(raw(inputs=inputs, outputs=[["1", "2"], [3.5], 8, "x", *"123456"]))
    readings = [dict(zip(tests.inputs_K, tests.outputs_K, strict=True)) for tests in made.readings]
    pairs = readings[0]
    assert pairs["3\n1 2 3"] == "1\n2" and pairs["4 5"] == "3.5" and pairs["7"] == "8" and pairs["plain\ntext"] == "x"
    read = {pair for reading in readings for pair in reading.items()}
    assert {("3 1 2 3", "1 2"), ("3\n1 2 3", "1 2"), ("3 1 2 3", "1\n2"), ("4\n5", "3.5")} <= read
    assert made.readings[0].fn_name is None
    assert len(candidate(raw()).readings) == 1, "texts mean what they say"


@pytest.mark.parametrize(
    ("bad", "fn_name"),
    [
        (("300\n" + "1234 " * 50 + "123...", "7"), None),
        (("3", "777777\n777777..."), None),
        (("1" * 5001 + "\n2", "3"), "add"),
        (([LONG, 2], 3), "add"),
        (("[1", "3"), "add"),
    ],
)
def test_a_test_that_cannot_be_used_costs_no_other_one(bad: tuple[Any, Any], fn_name: str | None) -> None:
    good = [("1\n2", "3")] * 9
    inputs, outputs = map(list, zip(*good, bad, strict=True))
    tests = json.dumps({"inputs": inputs, "outputs": outputs, "fn_name": fn_name}).replace(f'"{LONG}"', "9" * 5000)
    made = candidate(raw(input_output=tests))
    assert (len(made.readings[0]), made.unusable_tests) == (9, 1)


def test_dots_of_a_picture_are_no_cut() -> None:
    pictures = ["2 4\n#..#\n#...", "1.5 2...."]
    made = candidate(raw(inputs=[*pictures, *"12345678"], outputs=["#...", *"123456789"]))
    assert len(made.readings[0]) == 10 and set(pictures) < set(made.readings[0].inputs_K)


def test_arguments_end_at_newlines_alone() -> None:
    made = candidate(raw(inputs=['"a\u2028b"\n\n1'] * 8, outputs=["1"] * 8, fn_name="f"))
    assert set(made.readings[0].inputs_K) == {'"a\u2028b"\n\n1'}


@pytest.mark.parametrize(
    ("outputs", "starter_code", "first", "number"),
    [
        ([[i] for i in range(10)], "def f(x):", "3", 2),
        ([[i] for i in range(10)], "def f(x) -> List[int]:", "[3]", 2),
        ([[[i]] for i in range(10)], "def f(x) -> List[int]:", "[3]", 2),
        ([[i, i] for i in range(10)], "def f(x):", "[3, 3]", 1),
    ],
)
def test_results_that_are_all_lists_of_one_have_two_readings(
    outputs: list[Any], starter_code: str, first: str, number: int
) -> None:
    made = candidate(raw(inputs=[[1]] * 10, outputs=outputs, fn_name="f", starter_code=starter_code))
    assert len(made.readings) == number and first in made.readings[0].outputs_K


@pytest.mark.parametrize(
    ("ending", "marked"),
    [
        ("If there are several answers, print any.", True),
        ("If there are multiple possible solutions, output any of them.", True),
        ("You may print any valid answer.", True),
        ("Print the number of answers without any spaces.", False),
    ],
)
def test_problems_with_several_right_answers_are_marked(ending: str, marked: bool) -> None:
    assert candidate(raw(question=QUESTION + ending)).record().get("several_answers", False) is marked
    assert "several_answers" not in candidate(raw(question=QUESTION + ending, several_answers=False)).record()


def test_function_calls_keep_their_name_and_have_json_arguments_by_line() -> None:
    inputs = [[{"1": 2}, "a"]] * 4 + ['{"1": 2}\n"a"'] * 4
    made = candidate(raw(inputs=inputs, outputs=[["b"]] * 4 + ['"b"'] * 4, fn_name="solve", starter_code="def solve("))
    assert set(made.readings[0].inputs_K) == {'{"1": 2}\n"a"'}
    assert set(made.readings[0].outputs_K) == {'["b"]', '"b"'}
    assert TestCases.parse(made.record()["hidden_test_cases"]).fn_name == "solve"
    assert "`solve`" in made.record()["instruction"] and "def solve(" in made.record()["instruction"]


def test_a_record_has_the_instruction_and_what_the_row_has_beside_solutions_and_raw_tests() -> None:
    record = candidate(raw(split="dev", fully_specified=False)).record()
    assert record["instruction"].endswith(f"\n\n{QUESTION.strip()}")
    assert "solutions" not in record and "input_output" not in record
    assert record["source"] == "somewhere" and record["split"] == "dev" and record["fully_specified"] is False


def test_solution_order_and_dev_ranks_depend_on_seed_and_id() -> None:
    solutions = [f"print({i})" for i in range(40)]
    solution_order, dev_rank = taco_rows.solution_order, taco_rows.dev_rank
    order = solution_order(solutions, seed=1, problem_id="p", rules=RULES)
    assert len(order) == len(set(order)) == 16
    assert order == solution_order(solutions, 1, "p", RULES)
    assert order != solution_order(solutions, 2, "p", RULES) and order != solution_order(solutions, 1, "q", RULES)
    assert dev_rank(1, "p") != dev_rank(2, "p") and dev_rank(1, 1) != dev_rank(1, "1")


def test_splits() -> None:
    assert [split_of({"split": name}) for name in ("train", "dev", "validation", None)] == ["train", "dev", "dev", None]


@pytest.mark.parametrize("flags", [None, [True] * 5 + [False] * 5])
def test_generated_tests_are_known_by_a_flag_for_each(flags: list[bool] | None) -> None:
    taco_rows.refuse_unusable(flagged(flags))
    record = candidate({**flagged(flags), "generated": "of the row"}).record()
    assert record.get("generated") == flags
    taco_rows.refuse_unusable(record)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({name: value for name, value in raw().items() if name != "solutions"}, "solutions"),
        (raw(split="holdout"), "split"),
        (raw(question=None), "question"),
        (raw(split=["train"]), "split"),
        (raw(starter_code=5), "starter_code"),
        (raw(public_test_cases="{}"), "instruction"),
        (raw(several_answers="no"), "several_answers"),
        (raw(several_answers=1), "several_answers"),
        *((flagged(flags), "generated") for flags in (True, [True] * 9, [True] * 11, ["no"] * 10, {"a": True})),
        *(({**candidate(raw()).record(), "generated": flags}, "generated") for flags in (True, [True], [1] * 10)),
    ],
)
def test_unusable_rows_name_the_field(row: dict, field: str) -> None:
    with pytest.raises(ValueError, match=f"'{field}'"):
        taco_rows.refuse_unusable(row)


def test_checkers_are_carried_and_unknown_ones_drop_the_row() -> None:
    made = candidate(with_tests(checker="float 1e-6"))
    assert TestCases.parse(made.record()["hidden_test_cases"]).checker == "float 1e-6"
    dropped = prepare(with_tests(checker="fuzzy"), RULES)
    assert isinstance(dropped, str) and dropped.startswith("refused tests: checker must be one of")
