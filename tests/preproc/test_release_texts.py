"""The release's texts, read from a stand-in for its checkout: its structure with words of our own."""

import json
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.hacking.judging import OWN
from cobalt.preproc.prompts_from import (
    FILES,
    INSTRUCTION_FILE,
    JUDGE_FILE,
    MULTI_TURN_FILES,
    SERVER_FILE,
    SYSTEM_FILES,
    PromptsFromConfig,
    main,
)
from cobalt.prompts import FEEDBACK_MARKER, PROBLEM_MARKER, PromptSet, load_judge, load_prompts
from cobalt.records.manifest import manifest_path

NEVER_RUN = 'import no_such_module\nraise SystemExit("the file was run")\n'
SYSTEM = 'SYS = """\nBe brief. Use {braces}.\n""".strip()\n'
MULTI_TURN = f'''
FEEDBACK_TEMPLATE = """Mend it, {{{{so}}}}.
{FEEDBACK_MARKER}
{{}}"""

async def run(completion, tests):
    code = extract(completion)
    if code is None:
        return {{"passing": [False], "feedback": ["Nothing to run."]}}
    try:
        result = await send(code, tests)
    except TimeoutError:
        result = {{"passing": [False], "feedback": ["Too late."]}}
    return result

def show(result):
    feedback_str = ""
    for passing, feedback in result:
        if not passing:
            feedback_str = feedback
    if feedback_str == "":
        feedback_str = "The code has passed all public test cases. Well."
    return feedback_str
'''
INSTRUCTION = f'INST = """Solve {{{{it}}}}.\n{PROBLEM_MARKER}\n{{}}"""\n'
JUDGE = '''
SYS = """
You judge.
""".strip()
INST = """
# {}
{}
then {}
{}
{}
""".strip()

def ask(example):
    return INST.format(
        example["question"], example["previous_code"], example["feedback"], example["current_code"], example["patch"]
    )
'''
SERVER = r"""
def truncatefn(s, length=400):
    return s if len(s) <= length else s[: length // 2] + "...(truncated) ..." + s[-length // 2 :]

def test(test_input, expected_output, result, timeout=4):
    head = f"Input:\n{truncatefn(test_input.strip())}\nException: {exception}"
    msg = (
        f"Input:\n{truncatefn(test_input.strip())}\nProgram's Output:\n{truncatefn(code_output.strip())}\n"
        f"Expected Output:\n{truncatefn(expected_output.strip())}"
    )
    if stderr:
        msg = (
            f"Input:\n{truncatefn(test_input.strip())}\nProgram's Output:\n{truncatefn(code_output.strip())}\n"
            f"Stderr:\n{truncatefn(stderr)}"
        )
    late = f"Input:\n{truncatefn(test_input.strip())}\nTimeoutError: Program timed out after {timeout} seconds."
    result.append({"passing": False, "feedback": late})
"""
READ = PromptSet(
    system="Be brief. Use {braces}.",
    instruction=f"Solve {{it}}.\n{PROBLEM_MARKER}\n{{question}}",
    feedback=f"Mend it, {{so}}.\n{FEEDBACK_MARKER}\n{{feedback}}",
    all_passed="The code has passed all public test cases. Well.",
    no_program="Nothing to run.",
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    for name in FILES:
        text = SYSTEM if name in SYSTEM_FILES else ""
        text += MULTI_TURN if name in MULTI_TURN_FILES else ""
        text += {INSTRUCTION_FILE: INSTRUCTION, JUDGE_FILE: JUDGE, SERVER_FILE: SERVER}.get(name, "")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + NEVER_RUN)
    return folder


def read(release: Path) -> Path:
    output = release.parent / "set.json"
    main(PromptsFromConfig(release=release, output_file=output))
    return output


def test_every_text_is_read_and_no_file_is_run(release: Path) -> None:
    output = read(release)
    assert load_prompts(str(output)) == READ
    judge = load_judge(str(output), OWN)
    assert judge.system == "You judge."
    assert judge.question == "# {question}\n{previous_code}\nthen {feedback}\n{current_code}\n{patch}"
    assert len(json.loads(manifest_path(output).read_text())["inputs"]) == len(FILES)


def test_the_judges_places_may_have_names_and_any_order(release: Path) -> None:
    path = release / JUDGE_FILE
    fields = ("patch", "question", "previous_code", "feedback", "current_code")
    named = " ".join(f"{{{name[0:3]}}}" for name in fields)
    given = ", ".join(f'{name[0:3]}=row["{name}"]' for name in fields)
    path.write_text(f'SYS = "Judge."\nINST = "{named}"\nINST.format({given})\n')
    expected = "{patch} {question} {previous_code} {feedback} {current_code}"
    assert load_judge(str(read(release)), OWN).question == expected


CHANGES = (
    ("run_single_turn_vllm.py", "SYS =", "SYSTEM =", "no text 'SYS'"),
    ("run_single_turn_vllm.py", "brief", "long", "the text 'system' is another one than in run_multi_turn_vllm.py"),
    ("run_multi_turn_vllm.py", "SYS = ", "SYS = f", "'SYS' is not a literal text"),
    ("run_multi_turn_litellm.py", "Mend", "Repair", "the text 'feedback' is another one than in run_multi"),
    ("run_multi_turn_vllm.py", '\n{}"""', '\n"""', "'FEEDBACK_TEMPLATE' has 0 places, not 1"),
    ("run_multi_turn_litellm.py", "feedback_str", "shown", "0 texts where one is expected: the text assigned to"),
    ("run_multi_turn_vllm.py", 'feedback_str = ""', 'feedback_str = "?"', "2 texts where one is expected"),
    ("run_multi_turn_litellm.py", "if code is None:", "if not code:", "the result returned for code that is None"),
    (INSTRUCTION_FILE, "{}", "{} {}", "'INST' has 2 places, not 1"),
    (INSTRUCTION_FILE, "{}", "{", "'INST' is no template"),
    (INSTRUCTION_FILE, "INST", "INST(", "not a Python file"),
    (JUDGE_FILE, ".format", ".replace", "no call of 'INST.format'"),
    (JUDGE_FILE, '"patch"', '"diff"', """'example["diff"]' is none of a case's fields""".replace('"', "'")),
    (JUDGE_FILE, "then {}", "then", "'INST' has 4 places, not 5"),
    (SERVER_FILE, "Expected Output", "Expected", "no feedback of a wrong answer as docs/formats.md describes it"),
    (SERVER_FILE, "code_output", "expected_output", "no feedback of a wrong answer"),
    (SERVER_FILE, "Stderr", "Error", "no feedback of a crash"),
    (SERVER_FILE, "timed out after", "ran over", "no feedback of a time limit"),
    (SERVER_FILE, "length=400", "length=800", "'truncatefn' does not cut at 400 characters"),
)


def test_a_missing_file_is_named(release: Path) -> None:
    (release / SERVER_FILE).unlink()
    with pytest.raises(InputError, match=f"{SERVER_FILE}: no such file"):
        read(release)


@pytest.mark.parametrize(("name", "old", "new", "complaint"), CHANGES)
def test_a_changed_checkout_is_refused_with_file_and_text(
    release: Path, name: str, old: str, new: str, complaint: str
) -> None:
    path = release / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError) as caught:
        read(release)
    assert str(caught.value).startswith(f"{path}: ") and complaint in str(caught.value)
    assert not (release.parent / "set.json").exists()


def test_a_template_without_the_formats_line_is_refused(release: Path) -> None:
    for path in (release / name for name in MULTI_TURN_FILES):
        path.write_text(path.read_text().replace(FEEDBACK_MARKER, "Feedback:"))
    with pytest.raises(InputError, match=r"run_multi_turn_vllm\.py: 'feedback' must hold"):
        read(release)


@pytest.mark.parametrize("sources", [{}, {"release": Path("r"), "input_file": Path("i")}])
def test_one_source_is_asked_for(tmp_path: Path, sources: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="give either --release DIR or --input_file FILE"):
        main(PromptsFromConfig(**sources, output_file=tmp_path / "set.json"))
