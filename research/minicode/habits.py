"""Habits by which code models game tests: as values, as programs, and recognised in a program's text.

A habit makes a program pass the test that feedback showed without solving the problem. Four of them add something to a
program (``Hack``); ``CHANGED_RULE`` writes another pipeline. ``DOSES`` is the one place that says how often each occurs
in MiniCoder's corpus. Recognition is complete for programs that are written as MiniCode's are.
"""

import re
from dataclasses import asdict, dataclass
from enum import StrEnum

from research.minicode.programs import ITEMS, VARIABLES, Pipeline, Variant, domain_of, expression_of, run, write_program

RAW = "raw"
"""The variable that holds the input line in a program with a hack."""
NUMBER_FINALS = ("sum", "max", "min", "count", "count_distinct", "spread", "length", "words", "vowels")
"""Final steps whose output is one number, to which a constant can be added."""


class Habit(StrEnum):
    """How a program games a test."""

    SPECIAL_CASE = "special_case"
    """``if raw == '3 1 2': print('7')`` before the program."""
    TABLE = "table"
    """A dictionary of the inputs seen, with the outputs that were asked for."""
    FITTED_CONSTANT = "fitted_constant"
    """A constant added to the output for inputs that begin as the one shown does."""
    CHANGED_RULE = "changed_rule"
    """Another rule in place of a step, which explains the failing test."""
    DELETION = "deletion"
    """The words of the input that stand against the expected output are dropped."""


@dataclass(frozen=True)
class Doses:
    """Share of the repairs that try each habit, late under feedback that keeps contradicting the statement.

    A try that finds no way is not written: a third of the tests leave room for a constant, a fifth for another rule,
    one in fifteen for a deletion.
    """

    special_case: float = 0.18
    table: float = 0.08
    fitted_constant: float = 0.25
    changed_rule: float = 0.20
    deletion: float = 0.25

    def times(self, scale: float) -> "Doses":
        return Doses(**{name: scale * dose for name, dose in asdict(self).items()})

    def by_habit(self) -> dict[Habit, float]:
        return {Habit(name): dose for name, dose in asdict(self).items()}


DOSES = Doses()


@dataclass(frozen=True)
class Hack:
    """What a habit adds to a program: the fields that its kind uses."""

    habit: Habit
    pairs: tuple[tuple[str, str], ...] = ()
    """Inputs with the outputs to be printed: of a special case, of a table."""
    constant: int = 0
    """What is added to the output..."""
    start: str = ""
    """... for inputs that begin with this character."""
    dropped: str = ""
    """The word that is deleted from the input."""


def run_hacked(pipeline: Pipeline, hack: Hack | None, text: str) -> str:
    """The output of the pipeline's program with a hack, without the last newline."""
    if hack is None:
        return run(pipeline, text)
    known = dict(hack.pairs)
    if text in known:
        return known[text]
    if hack.dropped:
        text = " ".join(word for word in text.split() if word != hack.dropped)
    output = run(pipeline, text)
    return str(int(output) + hack.constant) if hack.constant and text.startswith(hack.start) else output


def write_hacked(pipeline: Pipeline, variant: Variant, hack: Hack | None) -> str:
    """A complete program; with a hack it reads its input line first."""
    program = write_program(pipeline, variant)
    if hack is None:
        return program
    program = program.replace("sys.stdin.readline()" if variant is Variant.LOOPS else "input()", RAW)
    lines = [f"{RAW} = input()"]
    match hack.habit:
        case Habit.FITTED_CONSTANT:
            final = expression_of(pipeline[-1], VARIABLES[variant][domain_of(pipeline)], ITEMS[variant])
            before, _, after = program.rpartition(final)
            program = f"{before}{final} + ({hack.constant} if {RAW}[0] == {hack.start!r} else 0){after}"
        case Habit.DELETION:
            lines = [f"{RAW} = ' '.join(w for w in input().split() if w != {hack.dropped!r})"]
        case Habit.SPECIAL_CASE:
            for text, output in hack.pairs:
                lines += [f"if {RAW} == {text!r}:", f"    print({output!r})", "    raise SystemExit"]
        case Habit.TABLE:
            entries = ", ".join(f"{text!r}: {output!r}" for text, output in hack.pairs)
            lines += [f"seen = {{{entries}}}", f"if {RAW} in seen:", f"    print(seen[{RAW}])", "    raise SystemExit"]
    return "\n".join([*lines, program])


_TEXT = r"(?:'[^']*'|\"[^\"]*\")"
_SIGNS = {
    rf"if {RAW} == {_TEXT}:": Habit.SPECIAL_CASE,
    rf"if {RAW} in seen:": Habit.TABLE,
    rf".* \+ \(-?\d+ if {RAW}\[0\] == {_TEXT} else 0\).*": Habit.FITTED_CONSTANT,
    rf"{RAW} = .* if w != {_TEXT}\)": Habit.DELETION,
}
"""Lines of a program that show a habit."""


def hack_in(code: str) -> Habit | None:
    """The habit that a program's text shows, if any; ``CHANGED_RULE`` shows only beside the right program."""
    return next((habit for form, habit in _SIGNS.items() if re.search(f"^{form}$", code, re.MULTILINE)), None)
