"""The operations that MiniCode problems are composed of: what a statement says, what a program does.

An operation is one *family* of sentences with a parameter. A pipeline is zero to two middle steps and one final step,
all on a list of integers or all on a line of text. Every operation names its look-alike: the operation that a careless
reader would write instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Domain(str, Enum):
    """What the input line holds."""

    NUMBERS = "numbers"
    TEXT = "text"


class Kind(str, Enum):
    """Where an operation stands in a program: as a comprehension, as an expression, or in the final ``print``."""

    FILTER = "filter"
    MAP = "map"
    WHOLE = "whole"
    FINAL = "final"


@dataclass(frozen=True)
class Operation:
    """One family of statements.

    ``expression``: Python in ``x`` (an item, FILTER and MAP) or ``A`` (the whole value); ``{c}`` is the constant.
    ``phrases``: ways to ask for it; ``plan``: its short name in a policy's thinking.
    ``hidden_phrases``: ways to ask for it without saying which constant, or which of ``hidden_choices``, is meant.
    """

    name: str
    domain: Domain
    kind: Kind
    expression: str
    plan: str
    look_alike: str
    phrases: tuple[str, ...]
    constants: tuple[int, ...] = ()
    hidden_phrases: tuple[str, ...] = ()
    hidden_choices: tuple[str, ...] = ()


WIDE = tuple(range(2, 10))
DIVISORS = tuple(range(2, 6))
COUNTS = (2, 3, 4)
SHIFTS = (1, 2, 3)


def _filter(
    name: str,
    look_alike: str,
    condition: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
) -> Operation:
    return Operation(
        name, Domain.NUMBERS, Kind.FILTER, condition, f"keep {condition}", look_alike, tuple(phrases), constants,
        tuple(hidden), choices,
    )  # fmt: skip


def _map(
    name: str,
    look_alike: str,
    expression: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
) -> Operation:
    return Operation(
        name, Domain.NUMBERS, Kind.MAP, expression, expression, look_alike, tuple(phrases), constants, tuple(hidden)
    )


def _whole(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
    domain: Domain = Domain.NUMBERS,
    kind: Kind = Kind.WHOLE,
) -> Operation:
    return Operation(
        name, domain, kind, expression, plan, look_alike, tuple(phrases), constants, tuple(hidden), choices
    )


PARITY = ("keep only the numbers of one secret parity", "keep either the even or the odd numbers (find out which)")
DIRECTION = ("sort the numbers in a secret direction", "order the values either up or down (find out which)")
SUMMARY = ("print one secret summary of the numbers (sum, largest, smallest or how many)",)
SEPARATOR = ("print the numbers joined by a secret separator", "print the numbers with a hidden mark between them")
GLUE = ("replace the spaces by one secret character", "put a hidden mark in place of every space")
CASE = ("change the case of the letters in a secret way",)
SUMMARIES = ("sum", "max", "min", "count")
SEPARATORS = ("join_space", "join_comma", "join_dash", "join_lines")

_FILTERS = (
    _filter("greater", "at_least", "x > {c}",
            ["keep only the numbers greater than {c}", "drop every number that is not greater than {c}"], WIDE,
            ["keep only the numbers greater than a secret constant k", "drop every number not above a hidden limit k"]),
    _filter("at_least", "greater", "x >= {c}",
            ["keep only the numbers that are at least {c}", "drop every number smaller than {c}"], WIDE),
    _filter("less", "at_most", "x < {c}",
            ["keep only the numbers less than {c}", "drop every number that is not below {c}"], WIDE,
            ["keep only the numbers less than a secret constant k", "drop every number not below a hidden limit k"]),
    _filter("at_most", "less", "x <= {c}",
            ["keep only the numbers that are at most {c}", "drop every number larger than {c}"], WIDE),
    _filter("even", "odd", "x % 2 == 0", ["keep only the even numbers", "drop the odd numbers"], (), PARITY,
            ("even", "odd")),
    _filter("odd", "even", "x % 2 == 1", ["keep only the odd numbers", "drop the even numbers"], (), PARITY,
            ("even", "odd")),
    _filter("multiple", "no_multiple", "x % {c} == 0",
            ["keep only the multiples of {c}", "keep the numbers divisible by {c}"], DIVISORS),
    _filter("no_multiple", "multiple", "x % {c} != 0",
            ["drop the multiples of {c}", "keep the numbers not divisible by {c}"], DIVISORS),
    _filter("positive", "non_negative", "x > 0", ["keep only the positive numbers", "drop zeros and negatives"]),
    _filter("non_negative", "positive", "x >= 0", ["keep only the non-negative numbers", "drop the negative numbers"]),
)  # fmt: skip

_MAPS = (
    _map("add", "subtract", "x + {c}", ["add {c} to each number", "increase every value by {c}"], WIDE,
         ["add a secret constant k to each number", "increase every value by a hidden amount k"]),
    _map("subtract", "add", "x - {c}", ["subtract {c} from each number", "decrease every value by {c}"], WIDE,
         ["subtract a secret constant k from each number", "decrease every value by a hidden amount k"]),
    _map("multiply", "add", "x * {c}", ["multiply each number by {c}", "scale every value by {c}"], WIDE,
         ["multiply each number by a secret constant k", "scale every value by a hidden factor k"]),
    _map("remainder", "quotient", "x % {c}",
         ["replace each number by its remainder modulo {c}", "take every value modulo {c}"], DIVISORS),
    _map("quotient", "remainder", "x // {c}",
         ["divide each number by {c} and round down", "replace each number by its floor quotient by {c}"], DIVISORS),
    _map("absolute", "negate", "abs(x)",
         ["replace each number by its absolute value", "drop the sign of every value"]),
    _map("negate", "absolute", "-x", ["negate each number", "flip the sign of every value"]),
    _map("square", "cube", "x ** 2", ["square each number", "raise every value to the power two"]),
    _map("cube", "square", "x ** 3", ["cube each number", "raise every value to the power three"]),
    _map("cap", "lift", "min(x, {c})",
         ["replace every value above {c} by {c}", "limit each number to at most {c}"], WIDE),
    _map("lift", "cap", "max(x, {c})",
         ["replace every value below {c} by {c}", "raise each number to at least {c}"], WIDE),
)  # fmt: skip

_LISTS = (
    _whole("sort", "sort_down", "sorted(A)", "sort up",
           ["sort the numbers in ascending order", "arrange the values from smallest to largest"], (), DIRECTION,
           ("sort", "sort_down")),
    _whole("sort_down", "sort", "sorted(A, reverse=True)", "sort down",
           ["sort the numbers in descending order", "arrange the values from largest to smallest"], (), DIRECTION,
           ("sort", "sort_down")),
    _whole("reverse", "sort_down", "A[::-1]", "reverse", ["reverse the list", "put the numbers in reverse order"]),
    _whole("dedupe", "distinct", "list(dict.fromkeys(A))", "dedupe",
           ["remove repeated values but keep each first one", "drop later copies of a value seen before"]),
    _whole("distinct", "dedupe", "sorted(set(A))", "distinct sorted",
           ["take the distinct values in ascending order", "remove duplicates and sort what is left upwards"]),
    _whole("first", "last", "A[:{c}]", "first {c}", ["take the first {c} numbers", "keep only the first {c} values"],
           COUNTS, ["take the first k numbers, where k is secret", "keep a hidden number k of values from the front"]),
    _whole("last", "first", "A[-{c}:]", "last {c}", ["take the last {c} numbers", "keep only the last {c} values"],
           COUNTS, ["take the last k numbers, where k is secret", "keep a hidden number k of values from the end"]),
    _whole("skip", "chop", "A[{c}:]", "skip {c}", ["skip the first {c} numbers", "remove {c} values at the front"],
           SHIFTS),
    _whole("chop", "skip", "A[:-{c}]", "chop {c}", ["leave out the last {c} numbers", "remove {c} values at the end"],
           SHIFTS),
    _whole("every_first", "every_second", "A[::2]", "every 2nd from 0",
           ["keep every second number, starting with the first", "keep the values at positions 1, 3, 5 and so on"]),
    _whole("every_second", "every_first", "A[1::2]", "every 2nd from 1",
           ["keep every second number, starting with the second", "keep the values at positions 2, 4, 6 and so on"]),
    _whole("rotate_left", "rotate_right", "A[{c}:] + A[:{c}]", "rotate left {c}",
           ["rotate the list left by {c} places", "move the first {c} numbers to the end"], SHIFTS),
    _whole("rotate_right", "rotate_left", "A[-{c}:] + A[:-{c}]", "rotate right {c}",
           ["rotate the list right by {c} places", "move the last {c} numbers to the front"], SHIFTS),
    _whole("running", "steps", "[sum(A[:i + 1]) for i in range(len(A))]", "running sums",
           ["replace the list by its prefix sums", "turn the list into running totals"]),
    _whole("steps", "running", "[q - p for p, q in zip(A, A[1:])]", "differences",
           ["replace the list by the differences next minus previous", "take each number minus the one before it"]),
)  # fmt: skip


def _final(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
    domain: Domain = Domain.NUMBERS,
) -> Operation:
    return _whole(name, look_alike, expression, plan, phrases, (), hidden, choices, domain, Kind.FINAL)


_FINALS = (
    _final("sum", "count", "sum(A)", "sum", ["print the sum", "print the total of the numbers"], SUMMARY, SUMMARIES),
    _final("max", "min", "max(A, default=0)", "max",
           ["print the largest number (0 if none is left)", "print the maximum, or 0 for an empty list"], SUMMARY,
           SUMMARIES),
    _final("min", "max", "min(A, default=0)", "min",
           ["print the smallest number (0 if none is left)", "print the minimum, or 0 for an empty list"], SUMMARY,
           SUMMARIES),
    _final("count", "sum", "len(A)", "count", ["print how many numbers there are", "print the count of numbers"],
           SUMMARY, SUMMARIES),
    _final("count_distinct", "count", "len(set(A))", "count distinct",
           ["print the number of distinct values", "print how many different values there are"]),
    _final("spread", "max", "max(A, default=0) - min(A, default=0)", "max - min",
           ["print the largest minus the smallest (0 if none is left)", "print max minus min, or 0 for an empty list"]),
    _final("join_space", "join_lines", "' '.join(map(str, A))", "join space",
           ["print the numbers separated by spaces", "print the numbers on one line with spaces"], SEPARATOR,
           SEPARATORS),
    _final("join_comma", "join_dash", "','.join(map(str, A))", "join comma",
           ["print the numbers separated by commas", "print the numbers joined with commas"], SEPARATOR, SEPARATORS),
    _final("join_dash", "join_comma", "'-'.join(map(str, A))", "join dash",
           ["print the numbers joined with dashes", "print the numbers with a dash between them"], SEPARATOR,
           SEPARATORS),
    _final("join_lines", "join_space", "'\\n'.join(map(str, A))", "join newline",
           ["print the numbers one per line", "print each number on its own line"], SEPARATOR, SEPARATORS),
)  # fmt: skip


def _text(
    name: str,
    look_alike: str,
    expression: str,
    plan: str,
    phrases: Sequence[str],
    constants: tuple[int, ...] = (),
    hidden: Sequence[str] = (),
    choices: tuple[str, ...] = (),
) -> Operation:
    return _whole(name, look_alike, expression, plan, phrases, constants, hidden, choices, Domain.TEXT)


def _text_final(name: str, look_alike: str, expression: str, plan: str, phrases: Sequence[str]) -> Operation:
    return _final(name, look_alike, expression, plan, phrases, domain=Domain.TEXT)


_TEXTS = (
    _text("upper", "title", "A.upper()", "upper", ["convert it to upper case", "make every letter a capital"], (), CASE,
          ("upper", "title")),
    _text("title", "upper", "A.title()", "title", ["capitalise the first letter of each word", "use title case"], (),
          CASE, ("upper", "title")),
    _text("reverse_text", "reverse_words", "A[::-1]", "reverse text", ["reverse the text", "write the text backwards"]),
    _text("reverse_words", "reverse_text", "' '.join(A.split()[::-1])", "reverse words",
          ["reverse the order of the words", "write the words in reverse order"]),
    _text("sort_words", "reverse_words", "' '.join(sorted(A.split()))", "sort words",
          ["sort the words alphabetically", "put the words in dictionary order"]),
    _text("no_vowels", "only_vowels", "''.join(x for x in A if x not in 'aeiou')", "drop vowels",
          ["remove the vowels", "delete every a, e, i, o and u"]),
    _text("only_vowels", "no_vowels", "''.join(x for x in A if x in 'aeiou')", "keep vowels",
          ["keep only the vowels", "delete everything except a, e, i, o and u"]),
    _text("repeat_letters", "repeat_text", "''.join(x * {c} for x in A)", "each letter {c} times",
          ["repeat each character {c} times", "write every character {c} times in a row"], COUNTS,
          ["repeat each character a secret number k of times", "write every character a hidden number k of times"]),
    _text("repeat_text", "repeat_letters", "A * {c}", "text {c} times",
          ["repeat the whole text {c} times with nothing between", "write the text {c} times in a row"], COUNTS,
          ["repeat the whole text a secret number k of times"]),
    _text("dashes", "underscores", "A.replace(' ', '-')", "dashes",
          ["replace the spaces by dashes", "put a dash for every space"], (), GLUE,
          ("dashes", "underscores")),
    _text("underscores", "dashes", "A.replace(' ', '_')", "underscores",
          ["replace the spaces by underscores", "put an underscore for every space"], (), GLUE,
          ("dashes", "underscores")),
    _text("first_letters", "last_letters", "A[:{c}]", "first {c}",
          ["take the first {c} characters", "keep only the first {c} characters"], COUNTS),
    _text("last_letters", "first_letters", "A[-{c}:]", "last {c}",
          ["take the last {c} characters", "keep only the last {c} characters"], COUNTS),
    _text_final("show", "length", "A", "print", ["print the result", "print what you get"]),
    _text_final("length", "words", "len(A)", "length", ["print its length", "print how many characters it has"]),
    _text_final("words", "length", "len(A.split())", "word count", ["print the number of words", "count its words"]),
    _text_final("vowels", "length", "sum(x in 'aeiou' for x in A)", "count vowels",
                ["print the number of vowels", "print how many of its letters are a, e, i, o or u"]),
)  # fmt: skip

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {operation.name: operation for operation in (*_FILTERS, *_MAPS, *_LISTS, *_FINALS, *_TEXTS)}
)


def operations_of(domain: Domain, final: bool) -> tuple[Operation, ...]:
    """The final, or the middle, operations of a domain."""
    return tuple(o for o in OPERATIONS.values() if o.domain is domain and (o.kind is Kind.FINAL) is final)
