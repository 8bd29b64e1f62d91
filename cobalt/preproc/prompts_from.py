"""``cobalt prompts-from``: a prompt set that is not ours, as a file for ``--prompts``.

It is read from a checkout of the original release, or derived from what conversations were written with: trajectories
(``conversations``) or bandit prompts (``conversation``), released ones or any others whose feedback messages hold the
marker line. What surrounds the statement is known there only where the row has its ``question``.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.console import print_summary, with_progress
from cobalt.cli.flags import OptionalInputFile, OutputFile, ReadConfig
from cobalt.errors import InputError
from cobalt.extraction import extract_code
from cobalt.preproc.release_texts import FILES, read_release
from cobalt.prompts import ALL_PASSED_START, COBALT, FEEDBACK_MARKER, PROBLEM_MARKER, PromptSet, Wording
from cobalt.records import TestCases, read_jsonl
from cobalt.records.jsonl import InvalidLines, Record
from cobalt.records.manifest import recorded_run

FEEDBACK_OF_A_TEST = "Input:"
REQUIRED = ("system", "instruction", "feedback")


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
    if config.release is not None and config.input_file is None:
        _from_release(config, config.release)
    elif config.input_file is not None and config.release is None:
        _from_conversations(config, config.input_file)
    else:
        raise InputError("give either --release DIR or --input_file FILE")


def _from_release(config: PromptsFromConfig, folder: Path) -> None:
    files = [folder / name for name in FILES]
    with recorded_run("prompts-from", asdict(config), files, {config.output_file: {}}) as run:
        prompts, judge = read_release(folder)
        _write(config.output_file, {**asdict(prompts), "judge": asdict(judge)})
        run.counts = {"files_read": len(files)}
    print_summary("Prompt set", {"output": config.output_file, **run.counts, "not in the release": "call_instruction"})


def _from_conversations(config: PromptsFromConfig, path: Path) -> None:
    invalid = InvalidLines(config.skip_invalid)
    found = Derivation()
    with recorded_run("prompts-from", asdict(config), [path], {config.output_file: {}}) as run:
        rows = read_jsonl(path, (), unique=None, parse=found.see, on_invalid=invalid.handler)
        read = sum(1 for _ in with_progress(rows, path))
        prompts, missing = found.prompts(path)
        _write(config.output_file, asdict(prompts))
        run.counts = {"read": read, "conversations": found.conversations, "skipped_invalid": invalid.count}
    shown = {"output": config.output_file, **run.counts, "not in the file, taken from 'cobalt'": missing or "nothing"}
    print_summary("Prompt set", shown)


def _write(path: Path, texts: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(texts, indent=2, ensure_ascii=False) + "\n", "utf-8")


class Derivation:
    """What the conversations that were seen have in common."""

    def __init__(self) -> None:
        self.conversations = 0
        self._texts = Wording()
        self._call_templates: set[str] = set()

    def see(self, row: Record) -> None:
        """Learn from a row. Raises ``ValueError`` if it holds no conversations, or another wording than others."""
        try:
            for messages in _conversations(row):
                self.conversations += 1
                self._texts.see(messages)
                self._see_problem(row, messages[1]["content"])
                for answer, shown in zip(messages[2::2], messages[3::2], strict=False):
                    self._see_feedback(answer["content"], shown["content"])
        except (TypeError, KeyError, IndexError) as error:
            raise ValueError(f"no readable conversations ({type(error).__name__}: {error})") from None

    def _see_problem(self, row: Record, content: str) -> None:
        question = (row.get("question") or "").strip()
        if question and question in content:
            template = content.replace(question, "{question}", 1)
        else:
            lead, marker, rest = content.partition(PROBLEM_MARKER)
            if not marker:
                raise ValueError("the first user message holds neither the row's 'question' nor the problem marker")
            space = rest[: len(rest) - len(rest.lstrip())]
            template = f"{lead}{marker}{space}{{question}}"
        fn_name = TestCases.parse(row["test_cases"]).fn_name if "test_cases" in row else None
        if fn_name is None:
            self._texts.add("instruction", template)
        else:
            starter_code = (row.get("starter_code") or "").strip()
            self._call_templates.add(_call_template(template, fn_name, starter_code))

    def _see_feedback(self, answer: str, content: str) -> None:
        lead, marker, rest = content.partition(FEEDBACK_MARKER)
        if not marker:
            raise ValueError(f"a feedback message lacks the line '{FEEDBACK_MARKER}'")
        feedback = rest.strip()
        self._texts.add("feedback", f"{lead}{marker}{rest[: len(rest) - len(rest.lstrip())]}{{feedback}}")
        if extract_code(answer) is None and not feedback.startswith((FEEDBACK_OF_A_TEST, ALL_PASSED_START)):
            self._texts.add("no_program", feedback)

    def prompts(self, path: Path) -> tuple[PromptSet, list[str]]:
        """The set, and the names of texts that no conversation shows: those are taken from the own set.

        ``call_instruction`` stays empty unless all function-call problems have one and the same.
        """
        texts = self._texts.texts
        found: dict[str, Any] = {
            "system": texts.get("system message"),
            "all_passed": texts.get("feedback when all tests pass"),
            **{name: texts.get(name) for name in ("instruction", "feedback", "no_program")},
            "call_instruction": next(iter(self._call_templates)) if len(self._call_templates) == 1 else None,
        }
        lacking = [name for name in REQUIRED if found[name] is None]
        if lacking:
            raise InputError.at(path, None, f"its conversations do not show: {', '.join(lacking)}")
        missing = [name for name in ("all_passed", "no_program") if found[name] is None]
        return PromptSet(**{**found, **{name: getattr(COBALT, name) for name in missing}}), missing


def _call_template(template: str, fn_name: str, starter_code: str) -> str:
    """With placeholders for what belongs to the problem; the text up to the marker is left alone."""
    lead, marker, rest = template.partition(PROBLEM_MARKER)
    if starter_code:
        rest = rest.replace(starter_code, "{starter_code}")
    rest = re.sub(rf"\b{re.escape(fn_name)}\b", "{fn_name}", rest)
    return f"{lead}{marker}{rest}"


def _conversations(row: Record) -> Iterator[list[Any]]:
    if "conversations" in row:
        yield from row["conversations"]
    elif "conversation" in row:
        yield row["conversation"]
    else:
        raise ValueError("missing field 'conversations' (trajectories) or 'conversation' (bandit prompts)")
