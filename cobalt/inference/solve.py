"""``cobalt solve``: one conversation with a model, shown turn by turn in the terminal."""

import difflib
import json
import re
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from cobalt.cli.prompt_flags import InstructionCheck
from cobalt.completion import FINISH_STOP, Sampling, request_seed
from cobalt.errors import InputError, SetupError
from cobalt.inference.driver import history_of, program_of_turn
from cobalt.inference.engines import open_engine
from cobalt.inference.flags import SolveConfig
from cobalt.prompts import (
    PromptSet,
    feedback_message,
    feedback_to_policy,
    first_messages,
    problem_instruction,
    with_feedback,
)
from cobalt.records import id_key
from cobalt.records.rows import Problem, read_rows
from cobalt.sandbox import TestCases
from cobalt.sandbox.checkers import usable_tests
from cobalt.serving.execution import open_execution_service
from cobalt.serving.stand_alone import EXIT_NOT_SOLVED


async def main(config: SolveConfig, console: Console | None = None) -> None:
    """``console``: for the turns; None: stderr, with colours if it is a terminal."""
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())  # whatever FORCE_COLOR says
    id_, instruction, shown, hidden, prompts = problem_of(config)
    messages, submitted, passed = first_messages(instruction, prompts), None, False
    async with (
        open_execution_service("local", checker=config.checker, workers=1) as execution,
        open_engine(config) as engine,
    ):
        sampling = Sampling(config.temperature, config.top_p, config.max_tokens)
        for turn in range(config.turns + 1):
            started = time.monotonic()
            with console.status(f"turn {turn}"):
                answer = await engine.generate(messages, sampling, request_seed(config.seed, id_, 0, turn))
                text, usage = answer.text, answer.usage()
                program = program_of_turn(text, usage, config)
                result = with_feedback(await execution.run(program, shown), shown)
            if result.infra_error is not None:
                raise SetupError(result.infra_error)
            feedback = feedback_to_policy(result, prompts)
            passed = all(result.passing)
            facts = [f"turn {turn}", f"{answer.completion_tokens} tokens in {time.monotonic() - started:.0f} s"]
            facts += [] if answer.finish_reason == FINISH_STOP else [f"ended by {answer.finish_reason}"]
            facts.append(f"passes {sum(result.passing)} of {len(shown)} tests")
            console.print()
            say(console, ", ".join(facts), style="bold green" if passed else "bold red")
            if program is not None and submitted is None:
                say(console, program, syntax="python")
            elif program is not None and submitted is not None:
                former, lines = submitted.splitlines(), program.splitlines()
                diff = [*difflib.unified_diff(former, lines, n=len(former), lineterm="")][3:]  # with all lines
                say(console, "\n".join(diff) or "the same program again", syntax="diff")
            if not passed:
                say(console, f"\n{feedback}", style="dim")
            submitted = submitted if program is None else program
            if passed:
                break
            text = history_of(text, usage, config)
            messages += [{"role": "assistant", "content": text}, feedback_message(feedback, prompts)]
        if hidden is not None:
            last = await execution.run(submitted, hidden)
            if last.infra_error is not None:
                raise SetupError(last.infra_error)
            passed = passed and last.solved
            say(console, f"\nThe submitted program passes {sum(last.passing)} of {len(hidden)} hidden tests.")
    if submitted is not None:
        print(submitted)
    if not passed:
        sys.exit(EXIT_NOT_SOLVED)


def problem_of(config: SolveConfig) -> tuple[object, str, TestCases, TestCases | None, PromptSet]:
    """Id, instruction, tests that give feedback, hidden tests and prompt set. Raises ``InputError``."""
    try:
        tests = None if config.tests is None else usable_tests(config.tests.read_text())
    except ValueError as error:
        raise InputError.at(config.tests, None, str(error)) from None
    row = re.fullmatch(r"(.+\.jsonl(?:\.gz|\.xz)?):(.+)", config.problem)
    prompts = config.prompt_set([] if row is None else [Path(row[1])])
    try:
        if row is not None:
            wanted = (row[2], json.dumps(row[2]))  # an id may be a number
            problem = next((one for one in read_rows(row[1], Problem) if id_key(one.id) in wanted), None)
            if problem is None:
                raise ValueError("no such problem")
            check = InstructionCheck(prompts, config.prompts is not None)
            check.see(problem.instruction)
            check.tell(Path(row[1]))
            hidden = problem.hidden_test_cases if tests is None else None
            return problem.id, problem.instruction, tests or problem.public_test_cases, hidden, prompts
        question = sys.stdin.read() if config.problem == "-" else Path(config.problem).read_text()
        if not question.strip():
            raise ValueError("holds no problem")
        if tests is None:
            raise ValueError("needs --tests FILE; only a row of a problems file, FILE.jsonl:ID, has its own")
        arguments = enumerate(filter(str.strip, tests.inputs_K[0].split("\n")))
        starter_code = f"def {tests.fn_name}({', '.join(f'argument_{number}' for number, _ in arguments)}):"
        return question, problem_instruction(question, tests.fn_name, starter_code, prompts), tests, None, prompts
    except ValueError as error:
        raise InputError.at(config.problem, None, str(error)) from None


def say(console: Console, text: str, style: str = "", syntax: str | None = None) -> None:
    """Print whole lines. What a model or a program wrote may hold control characters, which a terminal would obey."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    lines = Text(shown, style) if syntax is None else Syntax("", syntax, theme="ansi_light").highlight(shown)
    lines.rstrip()
    console.print(lines, soft_wrap=True)
