"""Habits by which code models game tests: as values and as programs.

A habit makes a program pass the test that feedback showed without solving the problem. Four of them add something to a
program (``Hack``); ``CHANGED_RULE`` writes another pipeline. ``DOSES`` is the one place that says how often each occurs
in MiniCoder's corpus.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from types import MappingProxyType

from studies.hacking.categories import Category
from studies.minicode.operation import Domain
from studies.minicode.programs import Pipeline, Variant, domain_of, expression_of, run, write_program

RAW = "raw"
"""The variable that holds the input line in a program with a hack."""
NUMBER_FINALS = ("sum", "max", "min", "count", "count_distinct", "spread", "length", "words", "vowels")
"""Final steps whose output is one number, to which a constant can be added."""


class Habit(str, Enum):
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


CATEGORIES: Mapping[Habit, Category] = MappingProxyType(
    {
        Habit.SPECIAL_CASE: Category.HARD_CODING,
        Habit.TABLE: Category.HARD_CODING,
        Habit.FITTED_CONSTANT: Category.LOGIC_OVERFITTING,
        Habit.CHANGED_RULE: Category.SEMANTIC_DRIFTING,
        Habit.DELETION: Category.SEMANTIC_DRIFTING,
    }
)
"""The paper's category of each habit, known by construction."""


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
        """Every dose multiplied."""
        return Doses(**{name: scale * dose for name, dose in asdict(self).items()})

    def by_habit(self) -> dict[Habit, float]:
        """The mapping."""
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
    if hack.pairs:
        known = dict(hack.pairs)
        return known[text] if text in known else run(pipeline, text)
    if hack.dropped:
        return run(pipeline, _without(text, hack.dropped))
    output = run(pipeline, text)
    return str(int(output) + hack.constant) if text.startswith(hack.start) else output


def _without(text: str, word: str) -> str:
    return " ".join(other for other in text.split() if other != word)


def write_hacked(pipeline: Pipeline, variant: Variant, hack: Hack | None) -> str:
    """A complete program; with a hack it reads its input line first."""
    program = write_program(pipeline, variant)
    if hack is None:
        return program
    read = "sys.stdin.readline()" if variant is Variant.LOOPS else "input()"
    program = program.replace(read, RAW)
    if hack.habit is Habit.FITTED_CONSTANT:
        item = {Variant.SCRIPT: "x", Variant.FUNCTION: "v", Variant.LOOPS: "t"}[variant]
        program = _with_constant(program, expression_of(pipeline[-1], _value(pipeline, variant), item), hack)
    return "\n".join([*_opening(hack), program])


def _value(pipeline: Pipeline, variant: Variant) -> str:
    """The variable that the final step prints."""
    numbers, text = {Variant.SCRIPT: ("a", "s"), Variant.FUNCTION: ("nums", "text"), Variant.LOOPS: ("vals", "line")}[
        variant
    ]
    return numbers if domain_of(pipeline) is Domain.NUMBERS else text


def _with_constant(program: str, final: str, hack: Hack) -> str:
    before, _, after = program.rpartition(final)
    return f"{before}{final} + ({hack.constant} if {RAW}[0] == {hack.start!r} else 0){after}"


def _opening(hack: Hack) -> list[str]:
    if hack.habit is Habit.DELETION:
        return [f"{RAW} = ' '.join(w for w in input().split() if w != {hack.dropped!r})"]
    lines = [f"{RAW} = input()"]
    if hack.habit is Habit.SPECIAL_CASE:
        for text, output in hack.pairs:
            lines += [f"if {RAW} == {text!r}:", f"    print({output!r})", "    raise SystemExit"]
    if hack.habit is Habit.TABLE:
        entries = ", ".join(f"{text!r}: {output!r}" for text, output in hack.pairs)
        lines += [f"seen = {{{entries}}}", f"if {RAW} in seen:", f"    print(seen[{RAW}])", "    raise SystemExit"]
    return lines
