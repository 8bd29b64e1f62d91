"""Prompt sets: rendered, derived from conversations, kept to by later stages, never mixed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from commands import one_complaint, read_rows, run_command, write_rows
from evaluated import evaluated
from test_livecodebench import lcb_row

from cobalt.cli.prompt_flags import InstructionCheck, PromptsConfig
from cobalt.errors import InputError
from cobalt.preproc.prompts_from import PromptsFromConfig, main
from cobalt.prompts import (
    COBALT,
    FEEDBACK_MARKER,
    PROBLEM_MARKER,
    PromptSet,
    Wording,
    described,
    feedback_message,
    feedback_to_policy,
    first_messages,
    load_prompts,
    problem_instruction,
    prompt_content,
    prompts_of,
    with_feedback,
)
from cobalt.records.manifest import manifest_path
from cobalt.sandbox import ExecutionResult, TestCases, Verdict

OTHER = PromptSet(
    system="Write {clean} code.",
    instruction=f"Solve this.\n{PROBLEM_MARKER}\n\n{{question}}\n\nGo.",
    feedback=f"It ran. Repair it.\n{FEEDBACK_MARKER}\n{{feedback}}",
    all_passed="The code has passed all public test cases. Once more, please.",
    no_program="There was no code.",
    call_instruction=f"Solve this.\n{PROBLEM_MARKER}\n\n{{question}}\nName: {{fn_name}}.\n{{starter_code}}",
)
SPLIT = replace(OTHER, passed=f"It passed.\n{FEEDBACK_MARKER}\n{{feedback}}")
TESTS = TestCases(("1", "2"), ("1", "2")).to_json()
CALL_TESTS = TestCases(("1", "2"), ("1", "2"), "solve").to_json()
PROGRAM = "```python\nprint(1)\n```"
WRONG = "Input:\n2\nProgram's Output:\n1\nExpected Output:\n2"


def conversation(prompts: PromptSet, instruction: str) -> list[dict[str, str]]:
    """A wrong program, none at all, a right one."""
    messages = first_messages(instruction, prompts)
    for answer, feedback in ((PROGRAM, WRONG), ("Hm.", prompts.no_program), (PROGRAM, prompts.all_passed)):
        messages += [{"role": "assistant", "content": answer}, feedback_message(feedback, prompts)]
    return messages


def trajectories(prompts: PromptSet, id_: str, fn_name: str | None = None) -> dict:
    question, starter = f"Problem {id_}: {{feedback}}?", "def solve(x):"
    instruction = problem_instruction(question, fn_name, starter, prompts)
    row = {"id": id_, "question": question, "starter_code": starter, "test_cases": CALL_TESTS if fn_name else TESTS}
    return {**row, "instruction": instruction, "conversations": [conversation(prompts, instruction)] * 2}


def derive(directory: Path, *rows: dict) -> PromptSet:
    source, output = write_rows(directory / "rows.jsonl", list(rows)), directory / "set.json"
    main(PromptsFromConfig(input_file=source, output_file=output))
    return load_prompts(str(output))


@pytest.mark.parametrize("prompts", [COBALT, OTHER, SPLIT], ids=["own", "other", "another once all pass"])
def test_a_set_is_derived_from_the_conversations_that_it_rendered(tmp_path: Path, prompts: PromptSet) -> None:
    rows = [trajectories(prompts, "a"), trajectories(prompts, "b"), trajectories(prompts, "c", "solve")]
    assert derive(tmp_path, *rows) == prompts


def test_a_set_is_derived_from_bandit_prompts(tmp_path: Path) -> None:
    prompts = replace(OTHER, instruction=OTHER.instruction.removesuffix("\n\nGo."), call_instruction=None)
    messages = conversation(prompts, problem_instruction("Add.", prompts=prompts))
    assert derive(tmp_path, {"example_id": 0, "conversation": messages, "test_cases": TESTS}) == prompts


def test_texts_that_no_conversation_shows_are_our_own(tmp_path: Path) -> None:
    row = trajectories(OTHER, "a")
    row["conversations"] = [row["conversations"][0][:4]]
    own = {"all_passed": COBALT.all_passed, "no_program": COBALT.no_program, "call_instruction": None}
    assert derive(tmp_path, row) == replace(OTHER, **own)


@pytest.mark.parametrize("field", ["system", "feedback", "all_passed"])
def test_no_set_is_derived_from_two(tmp_path: Path, field: str) -> None:
    changed = replace(OTHER, **{field: getattr(OTHER, field).replace(".", "!")})
    with pytest.raises(InputError, match="line 2: mixed prompt sets"):
        derive(tmp_path, trajectories(OTHER, "a"), trajectories(changed, "b"))
    assert not (tmp_path / "set.json").exists()
    with pytest.raises(InputError, match="line 1: missing field 'conversations'"):
        derive(tmp_path, {"id": 0, "instruction": "x"})


def test_no_set_is_derived_where_text_follows_the_feedback(tmp_path: Path) -> None:
    """No placeholder can be put there: the value of an expected output may have lines of any kind."""
    row = trajectories(replace(OTHER, feedback=f"{OTHER.feedback}\nNow go on."), "a")
    results = [{"passing": [True, False], "feedback": ["Input:\n1", WRONG]}, *[{"passing": [True]}] * 2]
    row["public_exec_results"] = [[result] * 2 for result in results]
    with pytest.raises(InputError, match="line 1: a message has text after the feedback"):
        derive(tmp_path, row)
    row["conversations"] = trajectories(OTHER, "a")["conversations"]
    assert derive(tmp_path, row).feedback == OTHER.feedback


@pytest.mark.parametrize("field", ["question", "starter_code"])
def test_a_row_with_another_type_is_named(tmp_path: Path, field: str) -> None:
    with pytest.raises(InputError, match=f"line 1: field '{field}' must be a text"):
        derive(tmp_path, {**trajectories(OTHER, "a", "solve"), field: 5})
    with pytest.raises(InputError, match="line 1: no readable conversations"):
        derive(tmp_path, {"conversation": [{"role": "user", "content": None}] * 4})


def text_of(**changes: object) -> str:
    return json.dumps({**asdict(OTHER), **changes})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (text_of(instruction="no place"), "'instruction' must"),
        (text_of(feedback="{feedback}"), "'feedback' must"),
        (text_of(feedback=FEEDBACK_MARKER), "'feedback' must"),
        (text_of(passed="{feedback}"), "'passed' must"),
        (text_of(all_passed="Good."), "'all_passed' must"),
        (text_of(sytem="x"), ""),
        ("[]", ""),
        ("{", ""),
        ('{"system": "x"}', ""),
    ],
)
def test_a_file_without_what_parsers_need_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "set.json").write_text(text)
    with pytest.raises(InputError, match=f"set.json: not a prompt set: .*{complaint}"):
        load_prompts(str(tmp_path / "set.json"))


def test_placeholders_inside_texts_stay_and_function_calls_need_an_instruction_of_their_own() -> None:
    instruction = problem_instruction("Print {starter_code}.", "f", "x = {question}", OTHER)
    assert "Print {starter_code}." in instruction and "x = {question}" in instruction
    assert OTHER.fits(instruction) and not COBALT.fits(instruction)
    with pytest.raises(ValueError, match="call_instruction"):
        problem_instruction("Add.", "add", "", replace(OTHER, call_instruction=None))


def test_the_sentences_about_no_program_and_about_success_are_the_sets() -> None:
    tests = TestCases(("1",), ("2",))
    none = with_feedback(ExecutionResult.uniform(1, Verdict.NO_PROGRAM), tests)
    passed = with_feedback(ExecutionResult((Verdict.PASSED,), ("2",), ("",)), tests)
    assert none.feedback == (COBALT.no_program,)
    assert feedback_to_policy(none, OTHER) == OTHER.no_program
    assert feedback_to_policy(passed, OTHER) == OTHER.all_passed


def test_the_own_set_leaves_what_identifies_outputs_as_it_was() -> None:
    assert prompt_content(COBALT) == {"prompt_version": "2"}
    assert prompt_content(OTHER) != prompt_content(replace(OTHER, system="x"))
    assert described(OTHER) == {name: text for name, text in asdict(OTHER).items() if name != "passed"}
    assert described(SPLIT) == asdict(SPLIT)


@pytest.mark.parametrize(
    "prompts",
    [SPLIT, replace(OTHER, feedback=f"{OTHER.feedback}\nNow go on.")],
    ids=["another once all pass", "text after the feedback"],
)
def test_conversations_of_a_set_are_of_that_set(prompts: PromptSet) -> None:
    wording = Wording(prompts)
    wording.see(conversation(prompts, problem_instruction("Add.", prompts=prompts)))
    with pytest.raises(ValueError, match="mixed prompt sets"):
        wording.see(conversation(replace(prompts, all_passed=COBALT.all_passed), "Add."))


def test_instructions_of_two_sets_are_refused() -> None:
    check = InstructionCheck(OTHER, required=False)
    check.see("my own words")
    assert check.foreign
    with pytest.raises(ValueError, match="mixed prompt sets"):
        check.see(problem_instruction("Add.", prompts=OTHER))
    with pytest.raises(ValueError, match="not of the prompt set of --prompts"):
        InstructionCheck(OTHER, required=True).see("my own words")


def test_a_stage_keeps_to_the_set_of_its_input(tmp_path: Path) -> None:
    source, other = tmp_path / "in.jsonl", tmp_path / "other.jsonl"
    for path, prompts in ((source, OTHER), (other, COBALT)):
        manifest_path(path).write_text(json.dumps({"origin": {"prompts": described(prompts)}}))
    assert PromptsConfig().prompt_set([source]) == OTHER
    assert PromptsConfig().prompt_set([tmp_path / "released.jsonl"]) == COBALT
    for config, inputs in ((PromptsConfig(prompts="cobalt"), [source]), (PromptsConfig(), [source, other])):
        with pytest.raises(InputError, match="another prompt set"):
            config.prompt_set(inputs)


def test_trajectories_of_two_sets_or_of_another_one_give_no_training_set(tmp_path: Path, model: Path, capsys) -> None:
    rows = [evaluated(name, [[0.0, 0.5, 1.0]]) for name in "ab"]
    rows[1]["conversations"][0][0]["content"] = OTHER.system
    source = write_rows(tmp_path / "in.jsonl", rows)
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--model_name", model)
    assert run_command("process_multi_turn_taco", *flags) == 2
    complaint = "in.jsonl: line 2: mixed prompt sets: the system message is 'Write {clean} code.' here"
    assert complaint in one_complaint(capsys)
    (tmp_path / "other.json").write_text(text_of())
    assert run_command("process_multi_turn_taco", *flags, "--prompts", tmp_path / "other.json") == 2
    assert "in.jsonl: line 1: mixed prompt sets" in one_complaint(capsys)


def test_single_turn_parquet_has_the_sets_system_message(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "other.json").write_text(text_of())
    rows = [{"id": 0, "instruction": problem_instruction("Add.", prompts=OTHER), "test_cases": TESTS}]
    source = write_rows(tmp_path / "in.jsonl", rows)
    files = ("--train_data_file", source, "--val_data_file", source, "--local_dir", tmp_path)
    assert run_command("verl_preproc_single_turn", *files, "--prompts", tmp_path / "other.json") == 0
    row = pq.read_table(tmp_path / "train.parquet").to_pylist()[0]
    assert row["prompt"] == first_messages(rows[0]["instruction"], OTHER)


def test_instructions_of_no_set_are_told_and_name_none(tmp_path: Path, capsys) -> None:
    rows = [{"id": 0, "instruction": "my own words", "test_cases": TESTS}]
    files = []
    for name in ("train", "val"):
        files += [f"--{name}_data_file", write_rows(tmp_path / f"{name}.jsonl", rows)]
    manifest_path(tmp_path / "train.jsonl").write_text(json.dumps({"origin": {"model": "m"}}))
    assert run_command("verl_preproc_single_turn", *files, "--local_dir", tmp_path) == 0
    told = capsys.readouterr().err
    for name in ("train", "val"):
        assert f"note: the instructions of {tmp_path / name}.jsonl are not of the prompt set that is used" in told
    assert json.loads(manifest_path(tmp_path / "train.parquet").read_text())["origin"] == {"model": "m"}


def test_train_and_validation_prompts_are_of_one_set(tmp_path: Path, capsys) -> None:
    files = []
    for name, prompts in (("train", COBALT), ("val", OTHER)):
        row = {"example_id": 0, "conversation": conversation(prompts, "x"), "test_cases": TESTS}
        files += [f"--{name}_data_file", write_rows(tmp_path / f"{name}.jsonl", [{**row, "prev_best_pass_rate": 0}])]
    assert run_command("verl_preproc_multi_turn", *files, "--local_dir", tmp_path) == 2
    assert "val.jsonl: line 1: mixed prompt sets" in one_complaint(capsys)


def test_problems_are_rendered_with_the_set_and_its_file_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text_of())
    source = write_rows(tmp_path / "in.jsonl", [lcb_row("q", question_content="Add.")])
    flags = ("-i", source, "-o", tmp_path / "out.jsonl", "--prompts", tmp_path / "other.json")
    assert run_command("preproc_lcb_test6", *flags) == 0
    assert read_rows(tmp_path / "out.jsonl")[0]["instruction"] == problem_instruction("Add.", prompts=OTHER)
    assert PromptsConfig().prompt_set([tmp_path / "out.jsonl"]) == OTHER


def test_prompts_of_the_first_version_are_named_and_not_taken_for_todays(tmp_path: Path) -> None:
    """They are in a file, and MiniCoder's."""
    with pytest.raises(ValueError, match=r"version 1, which are now in assets/minicode/prompts.json"):
        prompts_of("cobalt")
    file = str(Path(__file__).parents[2] / "assets/minicode/prompts.json")
    first = load_prompts(file)
    assert first != COBALT == prompts_of(described(COBALT))
    assert first.fits(problem_instruction("Add.", prompts=first)) and not COBALT.fits(
        problem_instruction("Add.", prompts=first)
    )
    source = tmp_path / "old.jsonl"
    manifest_path(source).write_text(json.dumps({"origin": {"prompts": "cobalt"}}))
    with pytest.raises(InputError, match="version 1"):
        PromptsConfig().prompt_set([source])
    assert PromptsConfig(prompts=file).prompt_set([source]) == first
