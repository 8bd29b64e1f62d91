"""The rows of every kind of file that holds programs, in the one form that the page shows."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.prompts import FEEDBACK_MARKER, PROBLEM_MARKER
from cobalt.records import ResultRecord, TestCases, Verdict, id_key, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.rows import RULE_OF_OLD_FILES, raw_responses

MOST_TESTS = 12
"""Tests of a program that are shown with texts, failed ones first. The others are counted by verdict."""
LONGEST_TEXT = 2000
"""Characters that are shown of a test's input or expected output."""
BEFORE_RESPONSE = re.compile(r"\n?^(?:assistant|model)\n+", re.MULTILINE)
RESPONSE_AND_ANSWER = re.compile(r"(.*?)\n*^user\n+(.*)", re.MULTILINE | re.DOTALL)
"""What ChatML and its like leave between messages where special tokens are skipped, as in veRL's dumps."""


@dataclass
class Turn:
    """A response, its program and what became of it."""

    text: str
    code: str | None
    rate: float | None = None
    """Pass rate in [0, 1] on the tests that decide: the hidden ones where they were run. None: no rate is known."""
    shown_rate: float | None = None
    """Pass rate on the tests that are shown as feedback."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """How many tests had which verdict; the verdict of the first failed test comes first."""
    tests: Sequence[tuple[int, str, str]] = ()
    """Index, verdict and feedback of at most ``MOST_TESTS`` tests."""
    answer: str | None = None
    """The user's message to this response: the feedback."""
    infra_error: str | None = None
    """Why it was not judged."""
    scores: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, Any] | None = None
    taken: bool = True
    """False: the conversation was over, and its last program counts here, too."""


@dataclass
class Piece:
    """A row: trajectories of one problem, ``turns_N``. Rows with the same ``key`` are of the same problem."""

    key: str
    label: str
    question: str
    turns_N: list[list[Turn]]
    difficulty: str = ""
    tests: Mapping[int, tuple[str, str, bool]] = field(default_factory=dict)
    """By index: input, expected output, and whether the expected output is wrong on purpose."""
    rated_on: str = "tests"
    """The tests that ``rate`` is of."""
    first_turn: int = 0
    tags: Sequence[str] = ()
    """Categories of reward hacking."""


def multi_turn(row: Record) -> Piece:
    """A row of ``run_multi_turn_*.py`` or ``eval_multi_turn.py``."""
    responses_TN, hidden_NT, usage_TN = raw_responses(row), row.get("all_pass_rates"), row.get("usage")
    turns_N: list[list[Turn]] = []
    for sample, messages in enumerate(row["conversations"]):
        answers = [message["content"] for message in messages if message["role"] == "user"][1:]
        turns: list[Turn] = []
        for number, rates_N in enumerate(row["public_pass_rates"]):
            result = ResultRecord.from_record(row["public_exec_results"][number][sample])
            usage = usage_TN[number][sample] if usage_TN else None
            turn = _judged(row, responses_TN[number][sample], result, rates_N[sample], usage)
            turn.answer = answers[number] if number < len(answers) else None
            turn.taken = not (row.get("stop_at_success") and any(before.shown_rate == 1 for before in turns))
            turns.append(turn)
            if turn.infra_error is not None:
                break  # an infrastructure failure ends a conversation
            if hidden_NT is not None:
                turn.rate = hidden_NT[sample][number]
                turn.infra_error = "the hidden tests could not be run" if turn.rate is None else None
        turns_N.append(turns)
    is_perturbed = row.get("feedback_tests") == "perturbed"
    piece = _problem(row, turns_N, "perturbed_public_test_cases" if is_perturbed else "public_test_cases")
    piece.rated_on = "shown tests" if hidden_NT is None else "hidden tests"
    return piece


def single_turn(row: Record) -> Piece:
    """A row of ``run_single_turn_*.py``."""
    usage_N = row.get("usage") or [None] * len(row["responses"])
    results_N = map(ResultRecord.from_record, row["exec_results"])
    judged = zip(row["responses"], results_N, usage_N, strict=True)
    turns_N = [[_judged(row, text, result, result.pass_rate, usage)] for text, result, usage in judged]
    return _problem(row, turns_N, "test_cases")


def hacking_case(row: Record) -> Piece:
    """A row of ``extract_turn_level_errors.py`` or ``run_llm_judge.py``: programs before and after wrong feedback."""
    signal, dynamic = row.get("signal") or {}, (row.get("signal") or {}).get("dynamic") or {}
    # released cases hold lists of rates
    rate, shown_rate = (value if _is_number(value) else None for value in (row["all_acc"], row["public_all_acc"]))
    wrong_answer = [(0, Verdict.WRONG_ANSWER, row["feedback"])]
    before = Turn("", row["previous_code"], None, None, {Verdict.WRONG_ANSWER: 1}, wrong_answer, row["feedback"])
    after = Turn("", row["current_code"], rate, shown_rate, {Verdict.PASSED: 1}, [(0, Verdict.PASSED, "")])
    after.scores = {f"signal {name}": value for name, value in dynamic.items() if _is_number(value)}
    tags = [row["majority"]] if row.get("majority") else []
    tags += ["hard-coded, by the signal" if signal["hard_coded"] else "not hard-coded, by the signal"] if signal else []
    tags += ["survives to the last turn"] if row.get("survives") else []
    wrong = row.get("wrong_test")
    tests = {0: (wrong["input"], wrong["output"], True)} if wrong else {}
    first, key = (row.get("turn") or 1) - 1, id_key(row["id"])
    return Piece(
        key, str(row["id"]), row.get("question", ""), [[before, after]], "", tests, "hidden tests", first, tags
    )


def training_dump(row: Record) -> Piece:
    """A row of ``trainer.rollout_data_dir`` or ``validation_data_dir``: one response, the last turn of its context.

    It does not say how training found programs: those shown are found by the default rule.
    """
    names = [name for name in row if name not in ("input", "output", "step") and not name.startswith("cost_")]
    failed = "the reward could not be computed; the scores are means" if row.get("infra") else None
    last = Turn(row["output"], extract_code(row["output"]), row.get("pass_rate"), infra_error=failed)
    last.scores = {name: row[name] for name in names if _is_number(row[name])}
    if failed or not _is_number(last.rate):
        last.rate = None
    elif last.code is None and last.rate == 0:
        last.verdicts = {Verdict.NO_PROGRAM: 1}
    # The context is one text. Where its messages can be told apart, each program in it is a turn of its own.
    prompt, *answered = BEFORE_RESPONSE.split(row["input"])
    question = prompt.rpartition(PROBLEM_MARKER)[2].strip()
    matches = [RESPONSE_AND_ANSWER.fullmatch(text) for text in answered if FEEDBACK_MARKER in text]
    turns = [Turn(match[1], extract_code(match[1]), answer=match[2]) for match in matches if match]
    first_turn, key = row["input"].count(FEEDBACK_MARKER), row_hash({"question": question})
    if len(turns) == first_turn:
        return Piece(key, "", question, [[*turns, last]])
    return Piece(key, "", row["input"], [[last]], first_turn=first_turn)


KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Record], Piece]]] = {
    "trajectories": (("id", "conversations", "public_pass_rates", "public_exec_results"), multi_turn),
    "hacking cases": (("id", "previous_code", "current_code", "feedback", "all_acc", "public_all_acc"), hacking_case),
    "training dump": (("input", "output", "score"), training_dump),
    "single turn": (("id", "responses", "exec_results"), single_turn),
}
"""By name: the fields that a row needs, and how it is read. A file's first row tells: the first that fits it."""


def kind_of(path: Any, row: Record) -> str:
    """The kind of file that ``row`` is the first of. Raises ``InputError``."""
    for name, (fields, _) in KINDS.items():
        if set(fields[1:2]) <= row.keys():
            return name
    known = ", ".join(f"{name} ('{fields[1]}')" for name, (fields, _) in KINDS.items())
    raise InputError.at(path, 1, f"nothing that can be viewed; wanted one of: {known}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _judged(row: Record, text: str, result: ResultRecord, rate: float | None, usage: Mapping[str, Any] | None) -> Turn:
    """A response of a row, and its result; ``rate`` on the result's tests."""
    tests = list(zip(range(len(result.passing)), result.verdicts, result.feedback, strict=True))
    tests.sort(key=lambda test: test[1] is Verdict.PASSED)
    counts = Counter[str](verdict for _, verdict, _ in tests)
    failed = (result.infra_error or "no response") if rate is None else None
    code = extract_code(text, row.get("extraction", RULE_OF_OLD_FILES))
    return Turn(text, code, rate, rate, counts, tests[:MOST_TESTS], None, failed, usage=usage)


def _problem(row: Record, turns_N: list[list[Turn]], name: str) -> Piece:
    """A row with an ``id``, and those of the tests in its field ``name`` that its turns show."""
    tests = {}
    if row.get(name):
        shown = TestCases.parse(row[name])
        modified = TestCases.parse(row["modified_test_cases"]) if row.get("modified_test_cases") else None
        wrong = set(zip(modified.inputs_K, modified.outputs_K, strict=True)) if modified else ()
        for number in {test[0] for turns in turns_N for turn in turns for test in turn.tests if test[0] < len(shown)}:
            pair = shown.inputs_K[number], shown.outputs_K[number]
            tests[number] = (pair[0][:LONGEST_TEXT], pair[1][:LONGEST_TEXT], pair in wrong)
    question = row.get("question") or row.get("instruction") or ""
    return Piece(id_key(row["id"]), str(row["id"]), question, turns_N, str(row.get("difficulty") or ""), tests)
