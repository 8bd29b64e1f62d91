"""Every text that a policy is shown: system, problem and feedback prompts, and the feedback itself.

The line ``FEEDBACK_MARKER``, the line ``PROBLEM_MARKER``, the start of ``ALL_PASSED``, the labels of a test's feedback
and its truncation are facts of the released data's format. All other wording is this project's. Change any of it and
raise ``PROMPT_VERSION``: outputs made with another version are not resumed.
"""

from cobalt.records import ExecutionResult, Verdict

PROMPT_VERSION = "1"

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
ALL_PASSED = f"{ALL_PASSED_START}. Look for inputs that they do not cover."
NO_PROGRAM = "No program could be extracted from the response: it must hold one complete ```python block."

_INSTRUCTION = """\
Think about the problem first, then write one complete Python program in a single ```python block.
{marker}
{question}"""

_CALL_INSTRUCTION = """\
Think about the problem first, then write the complete Python code in a single ```python block.
{marker}
Here that means: implement `{fn_name}`; it is called with the arguments of each test.
{question}

Starter code:
{starter_code}"""

_FEEDBACK = """\
Compare what the program did with what was expected, then write the complete fixed program in a single ```python block.
{marker}
{feedback}"""

FEEDBACK_LIMIT = 400
FEEDBACK_KEPT = 200


def problem_instruction(question: str, fn_name: str | None = None, starter_code: str = "") -> str:
    """The user prompt of turn 0; with ``fn_name`` for problems that are solved by a function call."""
    if fn_name is None:
        return _INSTRUCTION.format(marker=PROBLEM_MARKER, question=question.strip())
    return _CALL_INSTRUCTION.format(
        marker=PROBLEM_MARKER, question=question.strip(), fn_name=fn_name, starter_code=starter_code.strip()
    )


def first_messages(instruction: str) -> list[dict[str, str]]:
    """System and user message: the conversation before the first program."""
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": instruction}]


def feedback_message(feedback: str) -> dict[str, str]:
    """The user message that shows the feedback to the last program and asks for the next one."""
    return {"role": "user", "content": _FEEDBACK.format(marker=FEEDBACK_MARKER, feedback=feedback)}


def feedback_of_message(content: str) -> str | None:
    """The feedback inside a feedback message (ours or a released one); None if there is none."""
    _, marker, feedback = content.partition(FEEDBACK_MARKER)
    return feedback.strip() if marker else None


def feedback_to_policy(result: ExecutionResult) -> str:
    """The first failing test's feedback, or ``ALL_PASSED``. ``result`` must be free of infra errors."""
    for passed, feedback in zip(result.passing, result.feedback, strict=True):
        if not passed:
            return feedback
    return ALL_PASSED


def truncate(text: str) -> str:
    """Stripped text; over 400 characters its first and last 200 around a mark."""
    text = text.strip()
    if len(text) <= FEEDBACK_LIMIT:
        return text
    return f"{text[:FEEDBACK_KEPT]}...(truncated) ...{text[-FEEDBACK_KEPT:]}"


def render_test_feedback(
    verdict: Verdict, input_text: str, output: str, expected: str, stderr: str = "", time_limit_s: float = 0
) -> str:
    """Feedback on one test. ``stderr``: traceback of the user's program after a non-zero exit, else empty."""
    if verdict is Verdict.NO_PROGRAM:
        return NO_PROGRAM
    head = f"Input:\n{truncate(input_text)}\n"
    if verdict is Verdict.TIME_LIMIT:
        return f"{head}TimeoutError: Program timed out after {time_limit_s:g} seconds."
    body = f"{head}Program's Output:\n{truncate(output)}\n"
    if stderr.strip():
        return f"{body}Stderr:\n{truncate(stderr)}"
    return f"{body}Expected Output:\n{truncate(expected)}"
