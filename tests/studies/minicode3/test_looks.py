"""What a policy looked at while it wrote, with the shipped one on a conversation of our own."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.errors import InputError
from cobalt.prompts import feedback_message, first_messages, problem_instruction, prompt_tokens
from cobalt.records import read_jsonl, write_jsonl
from studies.minicode3.generate import generate_rows
from studies.minicode3.looks import LooksConfig, looks_of, main

SHIPPED = Path(__file__).parents[3] / "assets/minicoder3"
RESPONSE = "<think>Plan:\n1. keep the first 3 numbers: first 3\nExample 1: 5 0 4 8 0\n1. first 3 = 5 0 4\nExpected"


@pytest.fixture(scope="module")
def messages():
    (row,) = generate_rows(0, 1, 5)
    return first_messages(problem_instruction(row["question"]))


def test_a_value_that_is_copied_is_written_while_its_source_is_looked_at(messages):
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    network = AutoModelForCausalLM.from_pretrained(SHIPPED, attn_implementation="eager").float().eval()
    prompt, response = prompt_tokens(tokenizer, messages), tokenizer.encode(RESPONSE, add_special_tokens=False)
    found = looks_of(network, tokenizer, prompt, response)
    tokens, start = found["tokens"], found["start"]
    assert "".join(tokens[start:]) == RESPONSE and len(found["looks"]) == len(response)
    written = start + tokens[start:].index(" =") + 1
    source = start + tokens[start:].index(" 5")
    for step, value in enumerate((" 5", " 0", " 4")):
        assert tokens[written + step] == tokens[source + step] == value
        looks = dict(found["looks"][written + step - start])
        assert looks[source + step] > 30
    for at, looks in enumerate(found["looks"]):
        assert all(0 < place < start + at and 10 <= percent <= 100 for place, percent in looks)


def test_the_first_trajectories_of_a_file_get_looks_and_long_turns_none(messages, tmp_path):
    answers = [{"role": "assistant", "content": "```python\n1\n```"}, feedback_message("wrong")]
    conversations = [[*messages, *answers, *answers]] * 2
    raw = [[f"<think>{turn}</think>"] * 2 for turn in ("Plan:", "Plan: " * 900)]
    row = {"id": 7, "conversations": conversations, "raw_responses": raw, "other": "kept"}
    write_jsonl(tmp_path / "in.jsonl", [row, {**row, "id": 8}, {**row, "id": 9}])
    files = {"input_file": tmp_path / "in.jsonl", "output_file": tmp_path / "out.jsonl"}
    main(LooksConfig(model=SHIPPED, num_problems=2, max_tokens=900, **files))
    rows = [*read_jsonl(tmp_path / "out.jsonl", ("id", "looks"))]
    assert [row["id"] for row in rows] == [7, 8] and rows[0]["other"] == "kept"
    ((short, long),) = rows[0]["looks"]
    assert long is None and "".join(short["tokens"][short["start"] :]) == "<think>Plan:</think>"
    manifest = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())
    assert manifest["status"] == "done" and manifest["content"]["num_problems"] == 2
    write_jsonl(tmp_path / "in.jsonl", [{**row, "conversations": [[]]}])
    with pytest.raises(InputError, match="line 1: not readable as trajectories"):
        main(LooksConfig(model=SHIPPED, **{**files, "output_file": tmp_path / "other.jsonl"}))
