"""``cobalt prompts-from``: a prompt set that is not ours, as a file for ``--prompts``.

It is read from a user's checkout of the original release, whose files are parsed and never run, or derived from what
conversations were written with: trajectories (``conversations``) or bandit prompts (``conversation``), released ones or
any others whose feedback messages hold the marker line. What surrounds the statement is known there only where the row
has its ``question``.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from string import Formatter
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import OptionalInputFile, OutputFile, ReadConfig
from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.preproc.asserts import text_of
from cobalt.prompts import (
    ALL_PASSED_START,
    COBALT,
    FEEDBACK_MARKER,
    INPUT_LABEL,
    JUDGE_FIELDS,
    PROBLEM_MARKER,
    JudgeTexts,
    PromptSet,
    Wording,
    render_test_feedback,
)
from cobalt.records import TestCases, Verdict, read_jsonl
from cobalt.records.jsonl import InvalidLines, Record, write_whole
from cobalt.records.manifest import recorded_run
from cobalt.records.rows import RULE_OF_OLD_FILES
from cobalt.sandbox.results import KEPT, LONGEST_SHOWN, TRUNCATION

INSTRUCTION_FILE = "preproc/preproc_lcb_test6.py"
JUDGE_FILE = "run_llm_judge.py"
SERVER_FILE = "verl/remote_reward_server.py"
MULTI_TURN_FILES = ("run_multi_turn_vllm.py", "run_multi_turn_litellm.py")
SINGLE_TURN_FILES = ("run_single_turn_vllm.py", "run_single_turn_litellm.py", "preproc/verl_preproc_single_turn.py")
SYSTEM_FILES = MULTI_TURN_FILES + SINGLE_TURN_FILES
FILES = (*SYSTEM_FILES, INSTRUCTION_FILE, JUDGE_FILE, SERVER_FILE)
"""The release's files that are read."""
SECONDS = 7.0
"""Stands for the time limit in a rendered feedback; no other digit is in one."""


@dataclass(frozen=True, kw_only=True)
class PromptsFromConfig(ReadConfig):
    """Read a prompt set from a checkout of the original release, or derive it from the conversations of a file."""

    release: Path | None = None
    """The folder of a checkout of the original release. Its Python files are parsed, not run."""
    input_file: OptionalInputFile = None
    """Instead: trajectories or bandit prompts (JSONL), of one prompt set."""
    output_file: OutputFile
    """The prompt set (JSON), for --prompts."""


def main(config: PromptsFromConfig) -> None:
    """Run the command. Raises ``InputError`` for texts that are not where they should be, or several wordings."""
    source = config.release or config.input_file
    if source is None or (config.release is not None and config.input_file is not None):
        raise InputError("give either --release DIR or --input_file FILE")
    inputs = [source / name for name in FILES] if config.release is not None else [source]
    with recorded_run("prompts-from", asdict(config), inputs, {config.output_file: {}}) as run:
        if config.release is not None:
            prompts, judge = read_release(config.release)
            texts = {**asdict(prompts), "judge": asdict(judge)}
            run.counts, shown = {"files_read": len(FILES)}, {"not in the release": "call_instruction"}
        else:
            derivation, invalid = Derivation(), InvalidLines(config.skip_invalid)
            rows = read_jsonl(source, (), unique=None, parse=derivation.see, on_invalid=invalid.handler)
            read = sum(1 for _ in with_progress(rows, source))
            prompts, missing = derivation.prompts(source)
            texts = asdict(prompts)
            run.counts = {"read": read, "conversations": derivation.conversations, "skipped_invalid": invalid.count}
            shown = {"not in the file, taken from 'cobalt'": missing or "nothing"}
        write_whole(config.output_file, json.dumps(texts, indent=2, ensure_ascii=False) + "\n")
    print_summary("Prompt set", {"output": config.output_file, **run.counts, **shown})


class Derivation:
    """What the conversations that were seen have in common."""

    def __init__(self) -> None:
        self.conversations = 0
        self._wording = Wording()
        self._call_templates: set[str] = set()

    def see(self, row: Record) -> None:
        """Learn from a row. Raises ``ValueError`` if it holds no conversations, or another wording than others."""
        if "conversations" not in row and "conversation" not in row:
            raise ValueError("missing field 'conversations' (trajectories) or 'conversation' (bandit prompts)")
        try:
            results_TN = row.get("public_exec_results", ())
            for n, messages in enumerate(row["conversations"] if "conversations" in row else [row["conversation"]]):
                self.conversations += 1
                self._wording.see(messages)
                self._see_problem(row, messages[1]["content"])
                for turn, (answer, shown) in enumerate(zip(messages[2::2], messages[3::2], strict=False)):
                    lead, marker, rest = shown["content"].partition(FEEDBACK_MARKER)
                    if not marker:
                        raise ValueError(f"a feedback message lacks the line '{FEEDBACK_MARKER}'")
                    result = results_TN[turn][n] if turn < len(results_TN) else {"passing": []}
                    failed = result["passing"].index(False) if False in result["passing"] else None
                    if failed is not None and rest.strip().startswith(f"{result['feedback'][failed].strip()}\n"):
                        raise ValueError("a message has text after the feedback: write this set by hand")
                    passed = rest.strip().startswith(ALL_PASSED_START)
                    template = f"{lead}{marker}{_space_before(rest)}{{feedback}}"
                    self._wording.add("passed" if passed else "feedback", template)
                    of_a_program = passed or rest.strip().startswith(INPUT_LABEL.strip())
                    if (
                        extract_code(answer["content"], row.get("extraction", RULE_OF_OLD_FILES)) is None
                        and not of_a_program
                    ):
                        self._wording.add("no_program", rest.strip())
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"no readable conversations ({type(error).__name__}: {error})") from None

    def _see_problem(self, row: Record, content: str) -> None:
        question = text_of(row, "question", optional=True).strip()
        lead, marker, rest = content.partition(PROBLEM_MARKER)
        if question and question in content:
            template = content.replace(question, "{question}", 1)
        elif marker:
            template = f"{lead}{marker}{_space_before(rest)}{{question}}"
        else:
            raise ValueError("the first user message holds neither the row's 'question' nor the problem marker")
        fn_name = TestCases.parse(row["test_cases"]).fn_name if "test_cases" in row else None
        if fn_name is None:
            self._wording.add("instruction", template)
            return
        # Placeholders for what belongs to the problem; the text up to the marker, if there is one, is left alone.
        lead, marker, rest = template.partition(PROBLEM_MARKER) if PROBLEM_MARKER in template else ("", "", template)
        if starter_code := text_of(row, "starter_code", optional=True).strip():
            rest = rest.replace(starter_code, "{starter_code}")
        rest = re.sub(rf"\b{re.escape(fn_name)}\b", "{fn_name}", rest)
        self._call_templates.add(f"{lead}{marker}{rest}")

    def prompts(self, path: Path) -> tuple[PromptSet, list[str]]:
        """The set, and the names of texts that no conversation shows: those are taken from the own set.

        ``call_instruction`` stays empty unless all function-call problems have one and the same.
        """
        texts = self._wording.texts
        found: dict[str, Any] = {name: texts.get(name) for name in ("instruction", "no_program", "passed")}
        found["feedback"] = texts.get("feedback", found["passed"])
        found["passed"] = None if found["passed"] == found["feedback"] else found["passed"]
        found |= {"system": texts.get("system message"), "all_passed": texts.get("feedback when all tests pass")}
        found["call_instruction"] = self._call_templates.pop() if len(self._call_templates) == 1 else None
        if lacking := [name for name in ("system", "instruction", "feedback") if found[name] is None]:
            raise InputError.at(path, None, f"its conversations do not show: {', '.join(lacking)}")
        missing = [name for name in ("all_passed", "no_program") if found[name] is None]
        return PromptSet(**(found | {name: getattr(COBALT, name) for name in missing})), missing


def _space_before(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def read_release(folder: Path) -> tuple[PromptSet, JudgeTexts]:
    """The release's prompt set and its judge's texts. It has no ``call_instruction``.

    What one test's feedback looks like is a fact of the format (docs/formats.md, "Fixed texts"): it is compared with
    ours, not taken over. Raises ``InputError`` where a file or a text is missing, or differs from the same text of
    another file.
    """
    sources = {name: _Source(folder / name) for name in FILES}
    multi_turn = {name: sources[name] for name in MULTI_TURN_FILES}
    found = {
        "system": {name: sources[name].constant("SYS") for name in SYSTEM_FILES},
        "feedback": {name: source.template("FEEDBACK_TEMPLATE", ["feedback"]) for name, source in multi_turn.items()},
        "all_passed": {name: source.all_passed() for name, source in multi_turn.items()},
        "no_program": {name: source.no_program() for name, source in multi_turn.items()},
        "instruction": {INSTRUCTION_FILE: sources[INSTRUCTION_FILE].template("INST", ["question"])},
    }
    texts = {}
    for name, of_files in found.items():
        first, texts[name] = next(iter(of_files.items()))
        for file, text in of_files.items():
            if text != texts[name]:
                raise sources[file].complaint(f"the text '{name}' is another one than in {first}")
        try:
            replace(COBALT, **{name: texts[name]})
        except ValueError as error:
            raise sources[first].complaint(str(error)) from None

    server, forms = sources[SERVER_FILE], set()
    for node in server.nodes:
        if isinstance(node, ast.JoinedStr):  # with the variables that it shows in braces; what is done to them left out
            shown = [[n.id for n in ast.walk(part) if isinstance(n, ast.Name)] for part in node.values]
            names = ["".join(f"{{{name}}}" for name in names if name != "truncatefn") for names in shown]
            pairs = zip(node.values, names, strict=True)
            forms.add("".join(str(part.value) if isinstance(part, ast.Constant) else name for part, name in pairs))
    for what, verdict, stderr in (
        ("wrong answer", Verdict.WRONG_ANSWER, ""),
        ("crash", Verdict.RUNTIME_ERROR, "{stderr}"),
        ("time limit", Verdict.TIME_LIMIT, ""),
    ):
        places = ("{test_input}", "{code_output}", "{expected_output}", stderr)
        own = render_test_feedback(verdict, *places, time_limit_s=SECONDS).replace(f"{SECONDS:g}", "{timeout}")
        if own not in forms:
            raise server.complaint(f"no feedback of a {what} as docs/formats.md describes it")
    cuts = [node for node in server.nodes if isinstance(node, ast.FunctionDef) and node.name == "truncatefn"]
    constants = {node.value for cut in cuts for node in ast.walk(cut) if isinstance(node, ast.Constant)}
    if not {LONGEST_SHOWN, LONGEST_SHOWN // KEPT, TRUNCATION} <= constants:
        raise server.complaint(f"'truncatefn' does not cut at {LONGEST_SHOWN} characters with '{TRUNCATION}'")

    judge = sources[JUDGE_FILE]
    system, question = judge.constant("SYS"), judge.template("INST", *judge.format_arguments("INST"))
    try:
        return PromptSet(**texts), JudgeTexts(system, question)
    except ValueError as error:
        raise judge.complaint(str(error)) from None


class _Source:
    """One of the release's files."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self.nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        except (SyntaxError, ValueError) as error:
            raise self.complaint(f"not a Python file: {error}") from None

    def complaint(self, message: str) -> InputError:
        return InputError.at(self._path, None, f"{message}; the checkout is not the release that is known here")

    def _assigned(self, name: str) -> list[str | None]:
        """What is assigned to a name, that of the module first; None: no literal text."""
        found = [node for node in self.nodes if isinstance(node, ast.Assign)]
        return [_text(node.value) for node in found if name in map(ast.unparse, node.targets)]

    def constant(self, name: str) -> str:
        """The text assigned to a name of the module; ``.strip()`` behind it is obeyed."""
        texts = self._assigned(name)
        if not texts or texts[0] is None:
            raise self.complaint(f"'{name}' is not a literal text" if texts else f"no text '{name}'")
        return texts[0]

    def template(self, name: str, keys: Sequence[str], named: Mapping[str, str] | None = None) -> str:
        """The text of ``constant`` for ``str.format``, with our placeholders in its places."""
        text, by_name = self.constant(name), {field: f"{{{key}}}" for field, key in (named or {}).items()}
        try:
            count = sum(field is not None for _, field, _, _ in Formatter().parse(text))
            if count != len(keys) + len(by_name):
                raise self.complaint(f"'{name}' has {count} places, not {len(keys) + len(by_name)}")
            return text.format(*(f"{{{key}}}" for key in keys), **by_name)
        except (ValueError, LookupError) as error:
            raise self.complaint(f"'{name}' is no template: {error}") from None

    def all_passed(self) -> str:
        """The one text that is assigned to ``feedback_str``, beside the empty one."""
        return self._only([text for text in self._assigned("feedback_str") if text], "text assigned to 'feedback_str'")

    def no_program(self) -> str:
        """The feedback in the result that a function returns if the code is None."""
        found = []
        for branch in self.nodes:
            if not (isinstance(branch, ast.If) and ast.unparse(branch.test).endswith(" is None")):
                continue
            for statement in branch.body:
                if isinstance(statement, ast.Return) and isinstance(result := statement.value, ast.Dict):
                    for key, value in zip(result.keys, result.values, strict=True):
                        if key and ast.unparse(key) == "'feedback'" and isinstance(value, ast.List):
                            found += [text for text in map(_text, value.elts) if text is not None]
        return self._only(found, "result returned for code that is None")

    def format_arguments(self, name: str) -> tuple[list[str], dict[str, str]]:
        """What the call ``NAME.format(...)`` fills in: the row's keys in order, and those given by name."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        call = next((node for node in calls if ast.unparse(node.func) == f"{name}.format"), None)
        if call is None:
            raise self.complaint(f"no call of '{name}.format'")
        keys = []
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
            match value:
                case ast.Subscript(slice=ast.Constant(value=str(key))) if key in JUDGE_FIELDS:
                    keys.append(key)
                case _:
                    fields = ", ".join(JUDGE_FIELDS)
                    raise self.complaint(f"'{ast.unparse(value)}' is none of a case's fields {fields}")
        names = [str(keyword.arg) for keyword in call.keywords]
        return keys[: len(call.args)], dict(zip(names, keys[len(call.args) :], strict=True))

    def _only(self, found: list[str], what: str) -> str:
        if len(set(found)) != 1:
            raise self.complaint(f"{len(set(found))} texts where one is expected: the {what}")
        return found[0]


def _text(value: ast.expr) -> str | None:
    """A literal text, stripped if ``.strip()`` is called on it; None for anything else."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.Call(func=ast.Attribute(value=inner, attr="strip"), args=[]):
            text = _text(inner)
            return None if text is None else text.strip()
    return None
