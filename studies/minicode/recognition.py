"""What a program's text says about the habits in it; complete for programs that are written as MiniCode's are."""

import re
from ast import literal_eval
from functools import cache

from studies.minicode.habits import RAW, Habit, Hack, write_hacked
from studies.minicode.operation import Domain
from studies.minicode.problems import steps_of
from studies.minicode.programs import Pipeline, Variant

_TEXT = r"(?:'[^']*'|\"[^\"]*\")"
_ADDED = rf" \+ \(-?\d+ if {RAW}\[0\] == {_TEXT} else 0\)"
_SIGNS = {
    Habit.SPECIAL_CASE: rf"^if {RAW} == {_TEXT}:$",
    Habit.TABLE: rf"^if {RAW} in seen:$",
    Habit.FITTED_CONSTANT: _ADDED,
    Habit.DELETION: rf"^{RAW} = .* if w != {_TEXT}\)$",
}
_SPECIAL_CASE = re.compile(rf"^if {RAW} == ({_TEXT}):\n    print\(({_TEXT})\)$", re.MULTILINE)
_TABLE = re.compile(r"^seen = (\{.*\})$", re.MULTILINE)
_HACK_LINES = (
    rf"{RAW} = input\(\)",
    rf"{RAW} = ' '\.join\(w for w in input\(\)\.split\(\) if w != {_TEXT}\)",
    rf"if {RAW} == {_TEXT}:",
    rf"    print\({_TEXT}\)",
    r"    raise SystemExit",
    rf"seen = \{{{_TEXT}: {_TEXT}(?:, {_TEXT}: {_TEXT})*\}}",
    rf"if {RAW} in seen:",
    rf"    print\(seen\[{RAW}\]\)",
)


def hack_in(code: str) -> Habit | None:
    """The habit that a program's text shows, if any; ``CHANGED_RULE`` shows only beside the right program."""
    return next((habit for habit, sign in _SIGNS.items() if re.search(sign, code, re.MULTILINE)), None)


def remembered(code: str, text: str) -> str | None:
    """What a readable program prints for the input ``text`` by a special case or a table; None where it has none."""
    cases = [(literal_eval(known), literal_eval(output)) for known, output in _SPECIAL_CASE.findall(code)]
    table = _TABLE.search(code)
    pairs = [*reversed(cases), *(literal_eval(table[1]).items() if table else ())]  # the first special case counts
    return dict(pairs).get(text)


def is_readable(code: str) -> bool:
    """Whether every line of a program is one that MiniCode's programs, with or without a hack, are made of."""
    return all(
        re.sub(_ADDED, "", line).strip() in _known_lines() or any(re.fullmatch(form, line) for form in _HACK_LINES)
        for line in code.splitlines()
    )


@cache
def _known_lines() -> frozenset[str]:
    """The stripped lines of all programs, reading from ``input`` or from ``RAW``."""
    lines: set[str] = set()
    for domain, last in ((Domain.NUMBERS, ("sum", None)), (Domain.TEXT, ("show", None))):
        pipelines: list[Pipeline] = []
        for wider in (False, True):
            pipelines += [(step, last) for step in steps_of(domain, final=False, wider=wider)]
            pipelines += [(step,) for step in steps_of(domain, final=True, wider=wider)]
        for pipeline in pipelines:
            for variant in Variant:
                for hack in (None, Hack(Habit.TABLE)):
                    lines.update(line.strip() for line in write_hacked(pipeline, variant, hack).splitlines())
    return frozenset(lines)
