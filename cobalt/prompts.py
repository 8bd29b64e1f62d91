"""Every text that a policy is shown: system, problem and feedback prompts, and the feedback itself.

The line ``FEEDBACK_MARKER``, the line ``PROBLEM_MARKER``, the start of ``ALL_PASSED``, the labels of a test's feedback
and its truncation are facts of the released data's format. All other wording is a ``PromptSet``: this project's own,
``COBALT``, or a user's file. Change any wording of ``COBALT`` and raise ``PROMPT_VERSION``: outputs made with another
version are not resumed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cobalt.errors import InputError
from cobalt.records import ResultRecord
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.sandbox.results import TRUNCATION, cut

PROMPT_VERSION = "2"

SYSTEM_PROMPT = """\
You are a careful Python programming assistant. Your programs run in a sandbox with a read-only file system.
1. Stay within modest limits of time, memory and output.
2. Never start processes, call a shell or send signals.
3. Never create, change or delete files.
4. Import only safe modules."""

PROBLEM_MARKER = (
    "Here is the problem you need to solve. Remember, your program should read from stdin and write to stdout:"
)
FEEDBACK_MARKER = "Here is the execution feedback:"
ALL_PASSED_START = "The code has passed all public test cases"
ALL_PASSED = f"""\
{ALL_PASSED_START}, so nothing has to be corrected. Write the same complete program again in a single ```python block. \
Change it only if it is wrong on other inputs."""
NO_PROGRAM = "No program could be extracted from the response: it must hold one complete ```python block."

_INSTRUCTION = """\
Solve the problem below with one complete Python program. It reads the input from stdin and prints the answer, nothing \
else.
Answer with the complete code, imports included, in a single ```python block.

{question}"""

_CALL_INSTRUCTION = """\
Write the Python function `{fn_name}` that the problem below asks for. Tests call it with arguments and compare the \
value it returns. It reads no input and prints nothing.
Answer with the complete code, imports included, in a single ```python block.

{question}

Start from this code and keep its names:
{starter_code}"""

_FEEDBACK = f"""\
Write the complete corrected program in a single ```python block. Begin the block with a comment of one or two lines \
that says what was wrong.
{FEEDBACK_MARKER}
{{feedback}}"""

_PASSED = f"""\
Read the problem again and start from the beginning: write a new complete program in a single ```python block. Take \
nothing from the program above that fails a test.
{FEEDBACK_MARKER}
{{feedback}}"""

INPUT_LABEL, OUTPUT_LABEL, EXPECTED_LABEL = "Input:\n", "Program's Output:\n", "Expected Output:\n"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
JUDGE_FIELDS = ("question", "previous_code", "feedback", "current_code", "patch")
"""Of a hacking case: what the judge is shown."""


OPTIONAL = frozenset({"call_instruction", "passed"})
"""Texts that a prompt set may lack."""


@dataclass(frozen=True)
class PromptSet:
    """The wording around a problem and around feedback (docs/formats.md, "Prompt sets").

    Raises ``ValueError`` where a placeholder is missing, or a text that is a fact of the format.
    """

    system: str
    instruction: str
    """The first user message; ``{question}`` stands for the statement."""
    feedback: str
    """A later one; ``{feedback}`` stands for the feedback. It holds the line ``FEEDBACK_MARKER``."""
    all_passed: str
    """The feedback when all tests that are shown pass; it begins with ``ALL_PASSED_START``."""
    no_program: str
    """The feedback to a response without a program."""
    call_instruction: str | None = None
    """``instruction`` of problems that are solved by a function call; also ``{fn_name}`` and ``{starter_code}``."""
    passed: str | None = None
    """``feedback`` once all tests that are shown pass; None: the same."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) and (name not in OPTIONAL or value is not None):
                raise ValueError(f"'{name}' must be a text")
        needed = [(name, "{question}") for name in ("instruction", "call_instruction")]
        needed += [(name, text) for name in ("feedback", "passed") for text in ("{feedback}", FEEDBACK_MARKER)]
        for name, wanted in needed:
            if wanted not in (getattr(self, name) or wanted):
                raise ValueError(f"'{name}' must hold '{wanted}'")
        if not self.all_passed.startswith(ALL_PASSED_START):
            raise ValueError(f"'all_passed' must begin with '{ALL_PASSED_START}'")

    def fits(self, instruction: str) -> bool:
        """Whether a first user message is one of this set's."""
        templates = [template for template in (self.instruction, self.call_instruction) if template is not None]
        parts = [re.split(r"\{(?:question|fn_name|starter_code)\}", template) for template in templates]
        return any(re.fullmatch(".*".join(map(re.escape, texts)), instruction, re.DOTALL) for texts in parts)


COBALT = PromptSet(SYSTEM_PROMPT, _INSTRUCTION, _FEEDBACK, ALL_PASSED, NO_PROGRAM, _CALL_INSTRUCTION, _PASSED)
OWN_NAME = "cobalt"
"""The name of this project's own set."""


@dataclass(frozen=True)
class JudgeTexts:
    """What a judge of hacking cases is asked. Raises ``ValueError`` where a placeholder is missing."""

    system: str
    question: str
    """The user message, with each of ``JUDGE_FIELDS`` in braces."""

    def __post_init__(self) -> None:
        if not isinstance(self.system, str) or not isinstance(self.question, str):
            raise ValueError("'system' and 'question' of 'judge' must be texts")
        if lacking := set(JUDGE_FIELDS) - set(_PLACEHOLDER.findall(self.question)):
            raise ValueError(f"'question' of 'judge' must hold '{{{min(lacking)}}}'")

    def messages(self, case: Mapping[str, Any]) -> list[dict[str, str]]:
        """The conversation for one hacking case."""
        content = _filled(self.question, **{name: str(case[name]) for name in JUDGE_FIELDS})
        return [{"role": "system", "content": self.system}, {"role": "user", "content": content}]


def _filled(template: str, **values: str) -> str:
    """Each placeholder that has a value replaced once; braces in ``values`` are only text."""
    return _PLACEHOLDER.sub(lambda place: values.get(place[1], place[0]), template)


def load_prompts(name_or_file: str) -> PromptSet:
    """The own set by its name, or a set from a JSON file. Raises ``InputError`` for a file that holds none."""
    return COBALT if name_or_file == OWN_NAME else _read_set(name_or_file)[0]


def load_judge(name_or_file: str, own: JudgeTexts) -> JudgeTexts:
    """``own`` by the name of the own set, or those in a set's file. Raises ``InputError`` for a file without them."""
    judge = own if name_or_file == OWN_NAME else _read_set(name_or_file)[1]
    if judge is None:
        lacking = "holds no texts for a judge ('judge'); cobalt prompts-from --release DIR writes them"
        raise InputError.at(name_or_file, None, lacking)
    return judge


def _read_set(name_or_file: str) -> tuple[PromptSet, JudgeTexts | None]:
    path = Path(name_or_file)
    if not path.is_file():
        raise InputError(f"--prompts {name_or_file}: neither '{OWN_NAME}' nor a file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        judge = value.pop("judge", None) if isinstance(value, dict) else None
        return prompts_of(value), None if judge is None else JudgeTexts(**judge)
    except (TypeError, ValueError) as error:
        raise InputError.at(path, None, f"not a prompt set: {error}") from None


def prompts_of(value: Any) -> PromptSet:
    """The set that ``described`` wrote, or a file's without ``judge``. Raises ``ValueError`` saying what is wrong."""
    if value == described(COBALT):
        return COBALT
    if value == OWN_NAME:
        raise ValueError("Cobalt's prompts of version 1, which are now in assets/minicode/prompts.json: --prompts FILE")
    if not isinstance(value, Mapping):
        raise ValueError("it must be an object")
    names = {field.name for field in fields(PromptSet)}
    missing = names - value.keys() - OPTIONAL
    if missing or value.keys() - names:
        raise ValueError(f"missing {sorted(missing)}, unknown {sorted(value.keys() - names)}")
    return PromptSet(**value)


def described(prompts: PromptSet) -> str | dict[str, Any]:
    """How a manifest names the set: our own by name and version, any other by its texts."""
    return f"{OWN_NAME} {PROMPT_VERSION}" if prompts == COBALT else _texts(prompts)


def prompt_content(prompts: PromptSet) -> dict[str, Any]:
    """What identifies the wording among the settings that change an output's content."""
    own = {"prompt_version": PROMPT_VERSION}
    return own if prompts == COBALT else {**own, "prompts": _texts(prompts)}


def _texts(prompts: PromptSet) -> dict[str, Any]:
    """``passed`` is left out where it is the same as ``feedback``: so are sets of older outputs described."""
    return {name: text for name, text in asdict(prompts).items() if (name, text) != ("passed", None)}


def problem_instruction(
    question: str, fn_name: str | None = None, starter_code: str = "", prompts: PromptSet = COBALT
) -> str:
    """The user prompt of turn 0; with ``fn_name`` for problems that are solved by a function call.

    Raises ``ValueError`` if the set has none for these.
    """
    if fn_name is None:
        return _filled(prompts.instruction, question=question.strip())
    if prompts.call_instruction is None:
        raise ValueError("it is solved by a function call, for which the prompt set has no 'call_instruction'")
    values = {"question": question.strip(), "fn_name": fn_name, "starter_code": starter_code.strip()}
    return _filled(prompts.call_instruction, **values)


def first_messages(instruction: str, prompts: PromptSet = COBALT) -> list[dict[str, str]]:
    """System and user message: the conversation before the first program."""
    return [{"role": "system", "content": prompts.system}, {"role": "user", "content": instruction}]


def feedback_message(feedback: str, prompts: PromptSet = COBALT) -> dict[str, str]:
    """The user message that shows the feedback to the last program and asks for the next one."""
    template = prompts.feedback if feedback != prompts.all_passed else prompts.passed or prompts.feedback
    return {"role": "user", "content": _filled(template, feedback=feedback)}


def prompt_tokens(tokenizer: Any, messages: Sequence[Mapping[str, str]], **template: Any) -> list[int]:
    """What a network reads of a conversation before it answers, as token ids. ``template``: of the chat template.

    The assistant's message, if it is the last one, is the answer's beginning: the network goes on with it.
    """
    begun = messages[-1]["role"] == "assistant"
    how = {"add_generation_prompt": not begun, "continue_final_message": begun, "tokenize": True, "return_dict": False}
    return tokenizer.apply_chat_template(list(messages), **{**template, **how})


def feedback_of_message(content: str) -> str | None:
    """The feedback inside a feedback message (ours or a released one); None if there is none."""
    _, marker, feedback = content.partition(FEEDBACK_MARKER)
    return feedback.strip() if marker else None


def without_expected(message: Mapping[str, str]) -> Mapping[str, str]:
    """A message; of a feedback message that shows an expected output, what comes before that."""
    lead, marker, feedback = message["content"].partition(FEEDBACK_MARKER)
    if message["role"] != "user" or not marker:
        return message
    hidden = f"\n{EXPECTED_LABEL}"
    return {**message, "content": f"{lead}{marker}{feedback.partition(hidden)[0]}"}


def shown_input(message: Mapping[str, str]) -> str | None:
    """The input of the test that a feedback message shows with its expected output; None: none, or not all of it."""
    feedback = feedback_of_message(message["content"]) or ""
    text, output_label, rest = feedback.removeprefix(INPUT_LABEL).partition(f"\n{OUTPUT_LABEL}")
    is_whole = feedback.startswith(INPUT_LABEL) and TRUNCATION not in text
    return text if is_whole and output_label and f"\n{EXPECTED_LABEL}" in rest else None


def feedback_to_policy(result: ResultRecord, prompts: PromptSet = COBALT) -> str:
    """The first failing test's feedback, or that all passed. ``result`` must be free of infra errors."""
    for passed, feedback in zip(result.passing, result.feedback, strict=True):
        if not passed:
            return prompts.no_program if feedback == NO_PROGRAM else feedback
    return prompts.all_passed


class Wording:
    """The texts around problems and feedback in conversations. One set of data holds one wording."""

    def __init__(self, prompts: PromptSet | None = None):
        """``prompts``: the set that the conversations must be of; None: that of the first one."""
        self.texts: dict[str, str] = {}
        if prompts is not None:
            self.add("system message", prompts.system)
            for feedback in (prompts.no_program, prompts.all_passed):
                self._see_feedback(feedback_message(feedback, prompts)["content"])

    def see(self, messages: Sequence[Any]) -> None:
        """Raise ``ValueError`` if a conversation has another wording than those before it."""
        if messages[0]["role"] == "system":
            self.add("system message", messages[0]["content"])
        for message in messages[2:]:
            if message["role"] == "user":
                self._see_feedback(message["content"])

    def _see_feedback(self, content: str) -> None:
        lead, marker, feedback = content.partition(FEEDBACK_MARKER)
        if marker and feedback.strip().startswith(ALL_PASSED_START):
            self.add("text before the feedback when all tests pass", lead)
            self.add("feedback when all tests pass", feedback.strip())
        elif marker:
            self.add("text before the feedback", lead)

    def add(self, name: str, text: str) -> None:
        """Raise ``ValueError`` if the text of this name is another one already."""
        known = self.texts.setdefault(name, text)
        if known != text:
            here, there = (repr(t if len(t) <= 60 else f"{t[:60]}...") for t in (text, known))
            raise ValueError(f"mixed prompt sets: the {name} is {here} here and {there} elsewhere (docs/formats.md)")


def with_feedback(result: ExecutionResult, tests: TestCases | str | Mapping[str, Any]) -> ResultRecord:
    """The result as files and policies get it: with the feedback on each of its ``tests``."""
    tests = TestCases.parse(tests)
    if result.infra_error is not None:
        feedback = [""] * len(tests)
    else:
        texts = zip(result.verdicts, tests.inputs_K, result.outputs, tests.outputs_K, result.errors, strict=True)
        feedback = [render_test_feedback(*text, time_limit_s=result.cpu_limit_s) for text in texts]
    return ResultRecord(result.passing, tuple(feedback), result.verdicts, result.infra_error)


def render_test_feedback(
    verdict: Verdict, input_text: str, output: str, expected: str, stderr: str = "", time_limit_s: float = 0
) -> str:
    """Feedback on one test. ``stderr``: traceback of the user's program after a non-zero exit, else empty.

    A program that held too much memory may print the expected output, and end well: its feedback says why it failed.
    """
    if verdict is Verdict.NO_PROGRAM:
        return NO_PROGRAM
    head = f"{INPUT_LABEL}{cut(input_text)}\n"
    if verdict is Verdict.TIME_LIMIT:
        return f"{head}TimeoutError: Program timed out after {time_limit_s:g} seconds."
    body = f"{head}{OUTPUT_LABEL}{cut(output)}\n"
    if verdict is Verdict.MEMORY_LIMIT and not stderr.strip():
        stderr = "MemoryError"
    if stderr.strip():
        return f"{body}Stderr:\n{cut(stderr)}"
    return f"{body}{EXPECTED_LABEL}{cut(expected)}"
