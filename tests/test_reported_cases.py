"""What other people's reports are about, from files outside the repository (``test_function_calls`` runs programs)."""

import json
import os
from pathlib import Path

import pytest

from cobalt.extraction import extract_code
from cobalt.hacking.judging import parse_verdict
from cobalt.inference.conversation import history_text
from cobalt.preproc.formats import FORMATS
from cobalt.preproc.livecodebench import LiveCodeBenchImportConfig
from cobalt.preproc.livecodebench import prepare as prepare_livecodebench
from cobalt.preproc.taco_rows import Candidate, TacoRules, prepare
from cobalt.prompts import COBALT
from cobalt.records import TestCases

CASES = Path(os.environ.get("COBALT_SAMPLE_DATA") or Path(__file__).parents[2] / "shared" / "data").parent / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"there is no {CASES}")
PROGRAMS = {"E1_last_is_demo": "print(sum(map(int, input().split())))", "E9_draft_in_thinking": None}
PROGRAMS |= dict.fromkeys(("E2_unclosed_in_thinking", "E3_cpp_before_python", "E4_crlf"), "print(1)")
PROGRAMS |= dict.fromkeys(("E5_space_after_tag", "E8_no_close"), "print(1)")
VERDICTS = ["(2) Logic Overfitting"] * 4 + ["(1) Hard Coding", "Unknown"]
TESTS = {  # how many are usable, and the first
    "D1_lines": (10, "2\n0 1\n2 3", "1\n5"),
    "D2_trunc": (10, "2\n0 1\n2 3", "1\n5"),
    "D3_intkeys": (9, '{"1": 2}', "2"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_reported_response(name):
    assert extract_code((CASES / f"{name}.txt").read_bytes().decode()) == PROGRAMS[name]


def test_a_reported_response_that_was_cut_in_its_thinking_leaves_nothing():
    response = (CASES / "H1_truncated_thinking.txt").read_text()
    assert (extract_code(response), history_text(response, enable_thinking=True)) == (None, "")


def test_reported_verdicts():
    answers = (CASES / "J1_verdicts.txt").read_text().split("\n---\n")
    assert [parse_verdict(answer) for answer in answers] == VERDICTS


@pytest.mark.parametrize("source", ["taco", "verl"])
@pytest.mark.parametrize("name", TESTS)
def test_reported_rows_keep_their_usable_tests(name, source):
    row = json.loads((CASES / f"{name}_{source}.jsonl").read_text())
    made = prepare(FORMATS[source].convert(row), TacoRules(), keeps_unverified=True)
    assert isinstance(made, Candidate), made
    assert (len(made.readings[0]), made.readings[0].inputs_K[0], made.readings[0].outputs_K[0]) == TESTS[name]


def test_reported_livecodebench_tests_have_its_checker():
    row = json.loads((CASES / "D7_lcb.jsonl").read_text())
    record = prepare_livecodebench(row, LiveCodeBenchImportConfig(output_file=Path("x")), COBALT)
    assert record is not None and TestCases.parse(record["test_cases"]).checker == "lcb"
