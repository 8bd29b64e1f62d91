"""The texts of the original release, read from a user's own checkout of it. Its files are parsed, never run.

A text that is not where the release has it is an ``InputError`` that names the file and the text. What one test's
feedback looks like is a fact of the format (docs/formats.md, "Fixed texts"): it is compared with ours, not taken over.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import Formatter

from cobalt.errors import InputError
from cobalt.prompts import (
    COBALT,
    JUDGE_FIELDS,
    JudgeTexts,
    PromptSet,
    render_test_feedback,
)
from cobalt.records import Verdict
from cobalt.sandbox.results import KEPT, LONGEST_SHOWN, TRUNCATION

INSTRUCTION_FILE = "preproc/preproc_lcb_test6.py"
JUDGE_FILE = "run_llm_judge.py"
SERVER_FILE = "verl/remote_reward_server.py"
MULTI_TURN_FILES = ("run_multi_turn_vllm.py", "run_multi_turn_litellm.py")
SYSTEM_FILES = (
    *MULTI_TURN_FILES,
    "run_single_turn_vllm.py",
    "run_single_turn_litellm.py",
    "preproc/verl_preproc_single_turn.py",
)
FILES = (*SYSTEM_FILES, INSTRUCTION_FILE, JUDGE_FILE, SERVER_FILE)

SECONDS = 7.0
"""Stands for the time limit in a rendered feedback; no other digit is in one."""
OWN_FEEDBACK = {
    what: render_test_feedback(
        verdict, "{test_input}", "{code_output}", "{expected_output}", stderr, time_limit_s=SECONDS
    ).replace(f"{SECONDS:g}", "{timeout}")
    for what, verdict, stderr in (
        ("wrong answer", Verdict.WRONG_ANSWER, ""),
        ("crash", Verdict.RUNTIME_ERROR, "{stderr}"),
        ("time limit", Verdict.TIME_LIMIT, ""),
    )
}
"""One test's feedback as we render it, with the release's variables in braces."""


def read_release(folder: Path) -> tuple[PromptSet, JudgeTexts]:
    """The release's prompt set and its judge's texts. It has no ``call_instruction``.

    Raises ``InputError`` where a file or a text is missing, or differs from the same text of another file.
    """
    sources = {name: _Source(folder / name) for name in FILES}
    multi_turn = [sources[name] for name in MULTI_TURN_FILES]
    texts = {
        "system": _common([(sources[name], sources[name].constant("SYS")) for name in SYSTEM_FILES], "system message"),
        "feedback": _common(
            [(source, source.template("FEEDBACK_TEMPLATE", {"0": "feedback"})) for source in multi_turn],
            "text before the feedback",
        ),
        "all_passed": _common([(source, source.all_passed()) for source in multi_turn], "text when all tests pass"),
        "no_program": _common([(source, source.no_program()) for source in multi_turn], "text without a program"),
        "instruction": sources[INSTRUCTION_FILE].template("INST", {"0": "question"}),
    }
    homes = {**dict.fromkeys(texts, MULTI_TURN_FILES[0]), "instruction": INSTRUCTION_FILE}
    for name, text in texts.items():
        try:
            replace(COBALT, **{name: text})
        except ValueError as error:
            raise sources[homes[name]].complaint(str(error)) from None
    _check_feedback_of_tests(sources[SERVER_FILE])
    return PromptSet(**texts), _judge(sources[JUDGE_FILE])


class _Source:
    """One of the release's files."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self.tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            raise self.complaint(f"not a Python file: {error}") from None

    def complaint(self, message: str) -> InputError:
        return InputError.at(self._path, None, f"{message}; the checkout is not the release that is known here")

    def constant(self, name: str) -> str:
        """The text assigned to a name of the module; ``.strip()`` behind it is obeyed."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign) and name in _names(statement.targets):
                text = _text(statement.value)
                if text is None:
                    raise self.complaint(f"'{name}' is not a literal text")
                return text
        raise self.complaint(f"no text '{name}'")

    def template(self, name: str, placeholders: Mapping[str, str]) -> str:
        """The text of ``constant`` for ``str.format``, with our placeholders in the places of its fields."""
        text, count = "", 0
        try:
            parts = list(Formatter().parse(self.constant(name)))
        except ValueError as error:
            raise self.complaint(f"'{name}' is no template: {error}") from None
        for literal, field, _, _ in parts:
            text += literal
            if field is not None:
                key = field or str(count)
                if key not in placeholders:
                    raise self.complaint(f"'{name}' has an unknown place '{{{field}}}' (number {count + 1})")
                text += f"{{{placeholders[key]}}}"
                count += 1
        if count != len(placeholders):
            raise self.complaint(f"'{name}' has {count} places, not {len(placeholders)}")
        return text

    def all_passed(self) -> str:
        """The one text that is assigned to ``feedback_str``, beside the empty one."""
        assigned = [
            _text(node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and "feedback_str" in _names(node.targets)
        ]
        return self._only([text for text in assigned if text], "text assigned to 'feedback_str'")

    def no_program(self) -> str:
        """The feedback in the result that a function returns if the code is None."""
        branches = [
            node.body
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith(" is None")
        ]
        returned = [statement.value for body in branches for statement in body if isinstance(statement, ast.Return)]
        found = [text for value in returned if value is not None for text in _feedback_of_result(value)]
        return self._only(found, "result returned for code that is None")

    def format_arguments(self, name: str) -> dict[str, str]:
        """Of the call ``NAME.format(...)``: by a field's number or name the key of the row that fills it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.format":
                given = [(str(number), value) for number, value in enumerate(node.args)]
                given += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
                return {field: self._key(value) for field, value in given}
        raise self.complaint(f"no call of '{name}.format'")

    def _key(self, value: ast.expr) -> str:
        if (
            isinstance(value, ast.Subscript)
            and isinstance(value.slice, ast.Constant)
            and value.slice.value in JUDGE_FIELDS
        ):
            return value.slice.value
        raise self.complaint(f"'{ast.unparse(value)}' is none of a case's fields {', '.join(JUDGE_FIELDS)}")

    def _only(self, found: list[str], what: str) -> str:
        if len(set(found)) != 1:
            raise self.complaint(f"{len(set(found))} texts where one is expected: the {what}")
        return found[0]


def _common(texts: list[tuple[_Source, str]], what: str) -> str:
    first = texts[0][1]
    for source, text in texts:
        if text != first:
            raise source.complaint(f"the {what} is another one than in {MULTI_TURN_FILES[0]}")
    return first


def _judge(source: _Source) -> JudgeTexts:
    system, question = source.constant("SYS"), source.template("INST", source.format_arguments("INST"))
    try:
        return JudgeTexts(system, question)
    except ValueError as error:
        raise source.complaint(str(error)) from None


def _check_feedback_of_tests(source: _Source) -> None:
    """Raise ``InputError`` unless labels and cut of one test's feedback are ours."""
    forms = {_form(node) for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr)}
    for what, form in OWN_FEEDBACK.items():
        if form not in forms:
            raise source.complaint(f"no feedback of a {what} as docs/formats.md describes it")
    cuts = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef) and n.name == "truncatefn"]
    constants = {node.value for cut in cuts for node in ast.walk(cut) if isinstance(node, ast.Constant)}
    if not {LONGEST_SHOWN, LONGEST_SHOWN // KEPT, TRUNCATION} <= constants:
        raise source.complaint(f"'truncatefn' does not cut at {LONGEST_SHOWN} characters with '{TRUNCATION}'")


def _form(text: ast.JoinedStr) -> str:
    """An f-string with the names of the variables that it shows in braces; what is done to them is left out."""
    return "".join(
        str(part.value)
        if isinstance(part, ast.Constant)
        else "".join(
            f"{{{node.id}}}" for node in ast.walk(part) if isinstance(node, ast.Name) and node.id != "truncatefn"
        )
        for part in text.values
    )


def _feedback_of_result(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Dict):
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "feedback" and isinstance(entry, ast.List):
                yield from (text for text in map(_text, entry.elts) if text is not None)


def _names(targets: list[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _text(value: ast.expr) -> str | None:
    """A literal text, stripped if ``.strip()`` is called on it; None for anything else."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "strip":
        text = None if value.args else _text(value.func.value)
        return None if text is None else text.strip()
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
