"""The operations that MiniCode problems are composed of: what a statement says, what a program does.

An operation is one *family* of sentences with a parameter. A pipeline is some middle steps and one final step, all on a
list of integers or all on a line of text. Every operation names its look-alike: the operation that a careless reader
would write instead.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Domain(StrEnum):
    """What the input line holds."""

    NUMBERS = "numbers"
    TEXT = "text"


class Kind(StrEnum):
    """Where an operation stands in a program: as a comprehension, as an expression, or in the final ``print``."""

    FILTER = "filter"
    MAP = "map"
    WHOLE = "whole"
    FINAL = "final"


@dataclass(frozen=True)
class Operation:
    """One family of statements."""

    domain: Domain
    kind: Kind
    name: str
    look_alike: str
    expression: str
    """Python in ``x`` (an item, FILTER and MAP) or ``A`` (the whole value); ``{c}`` is the constant."""
    phrases: tuple[str, ...]
    """Ways to ask for it."""
    constants: tuple[int, ...] = ()
    hidden_phrases: tuple[str, ...] = ()
    """Ways to ask for it without saying which constant, or which of ``hidden_choices``, is meant."""
    hidden_choices: tuple[str, ...] = ()
    other_words: str = ""
    """How the wider part of the world asks for a common operation."""
    own_plan: str = ""

    @property
    def plan(self) -> str:
        """Its short name in a policy's thinking."""
        return self.own_plan or ("keep " if self.kind is Kind.FILTER else "") + self.expression


_filter = partial(Operation, Domain.NUMBERS, Kind.FILTER)
_map = partial(Operation, Domain.NUMBERS, Kind.MAP)
_list = partial(Operation, Domain.NUMBERS, Kind.WHOLE)
_final = partial(Operation, Domain.NUMBERS, Kind.FINAL)
_text = partial(Operation, Domain.TEXT, Kind.WHOLE)
_text_final = partial(Operation, Domain.TEXT, Kind.FINAL)

WIDE, DIVISORS, COUNTS, SHIFTS, LENGTHS = tuple(range(2, 10)), tuple(range(2, 6)), (2, 3, 4), (1, 2, 3), (3, 4)
PARITY = ("keep only the numbers of one secret parity", "keep either the even or the odd numbers (find out which)")
DIRECTION = ("sort the numbers in a secret direction", "order the values either up or down (find out which)")
SUMMARY = ("print one secret summary of the numbers (sum, largest, smallest or how many)",)
SEPARATOR = ("print the numbers joined by a secret separator", "print the numbers with a hidden mark between them")
GLUE = ("replace the spaces by one secret character", "put a hidden mark in place of every space")
CASE = ("change the case of the letters in a secret way",)
SUMMARIES = ("sum", "max", "min", "count")
SEPARATORS = ("join_space", "join_comma", "join_dash", "join_lines")

_COMMON = (
    _filter("greater", "at_least", "x > {c}", ("keep only the numbers greater than {c}",
        "drop every number that is not greater than {c}"), constants=WIDE,
        hidden_phrases=("keep only the numbers greater than a secret constant k",
        "drop every number not above a hidden limit k"), other_words="throw away whatever does not exceed {c}"),
    _filter("at_least", "greater", "x >= {c}", ("keep only the numbers that are at least {c}",
        "drop every number smaller than {c}"), constants=WIDE, other_words="let only values from {c} upwards stay"),
    _filter("less", "at_most", "x < {c}", ("keep only the numbers less than {c}",
        "drop every number that is not below {c}"), constants=WIDE,
        hidden_phrases=("keep only the numbers less than a secret constant k",
        "drop every number not below a hidden limit k"), other_words="throw away whatever reaches {c}"),
    _filter("at_most", "less", "x <= {c}", ("keep only the numbers that are at most {c}",
        "drop every number larger than {c}"), constants=WIDE, other_words="let only values up to {c} stay"),
    _filter("even", "odd", "x % 2 == 0", ("keep only the even numbers", "drop the odd numbers"), hidden_phrases=PARITY,
        hidden_choices=("even", "odd"), other_words="let only the even values stay"),
    _filter("odd", "even", "x % 2 == 1", ("keep only the odd numbers", "drop the even numbers"), hidden_phrases=PARITY,
        hidden_choices=("even", "odd"), other_words="let only the odd values stay"),
    _filter("multiple", "no_multiple", "x % {c} == 0", ("keep only the multiples of {c}",
        "keep the numbers divisible by {c}"), constants=DIVISORS, other_words="let only values stay that {c} divides"),
    _filter("no_multiple", "multiple", "x % {c} != 0", ("drop the multiples of {c}",
        "keep the numbers not divisible by {c}"), constants=DIVISORS, other_words="throw away whatever {c} divides"),
    _filter("positive", "non_negative", "x > 0", ("keep only the positive numbers", "drop zeros and negatives"),
        other_words="throw away whatever is not above zero"),
    _filter("non_negative", "positive", "x >= 0", ("keep only the non-negative numbers", "drop the negative numbers"),
        other_words="throw away whatever is below zero"),
    _map("add", "subtract", "x + {c}", ("add {c} to each number", "increase every value by {c}"), constants=WIDE,
        hidden_phrases=("add a secret constant k to each number", "increase every value by a hidden amount k"),
        other_words="make each value {c} larger"),
    _map("subtract", "add", "x - {c}", ("subtract {c} from each number", "decrease every value by {c}"), constants=WIDE,
        hidden_phrases=("subtract a secret constant k from each number", "decrease every value by a hidden amount k"),
        other_words="make each value {c} smaller"),
    _map("multiply", "add", "x * {c}", ("multiply each number by {c}", "scale every value by {c}"), constants=WIDE,
        hidden_phrases=("multiply each number by a secret constant k", "scale every value by a hidden factor k"),
        other_words="make each value {c} times as large"),
    _map("remainder", "quotient", "x % {c}", ("replace each number by its remainder modulo {c}",
        "take every value modulo {c}"), constants=DIVISORS,
        other_words="of each value, leave what remains after division by {c}"),
    _map("quotient", "remainder", "x // {c}", ("divide each number by {c} and round down",
        "replace each number by its floor quotient by {c}"), constants=DIVISORS,
        other_words="of each value, leave how often {c} goes into it"),
    _map("absolute", "negate", "abs(x)", ("replace each number by its absolute value", "drop the sign of every value"),
        other_words="make each value its distance from zero"),
    _map("negate", "absolute", "-x", ("negate each number", "flip the sign of every value"),
        other_words="put a minus in front of each value"),
    _map("square", "cube", "x ** 2", ("square each number", "raise every value to the power two"),
        other_words="multiply each value by itself"),
    _map("cube", "square", "x ** 3", ("cube each number", "raise every value to the power three"),
        other_words="multiply each value by itself twice"),
    _map("cap", "lift", "min(x, {c})", ("replace every value above {c} by {c}", "limit each number to at most {c}"),
        constants=WIDE, other_words="let no value exceed {c}, which replaces it"),
    _map("lift", "cap", "max(x, {c})", ("replace every value below {c} by {c}", "raise each number to at least {c}"),
        constants=WIDE, other_words="let no value be below {c}, which replaces it"),
    _list("sort", "sort_down", "sorted(A)", ("sort the numbers in ascending order",
        "arrange the values from smallest to largest"), hidden_phrases=DIRECTION, hidden_choices=("sort", "sort_down"),
        own_plan="sort up", other_words="line the values up from low to high"),
    _list("sort_down", "sort", "sorted(A, reverse=True)", ("sort the numbers in descending order",
        "arrange the values from largest to smallest"), hidden_phrases=DIRECTION, hidden_choices=("sort", "sort_down"),
        own_plan="sort down", other_words="line the values up from high to low"),
    _list("reverse", "sort_down", "A[::-1]", ("reverse the list", "put the numbers in reverse order"),
        own_plan="reverse", other_words="read the list from its end"),
    _list("dedupe", "distinct", "list(dict.fromkeys(A))", ("remove repeated values but keep each first one",
        "drop later copies of a value seen before"), own_plan="dedupe",
        other_words="let every value occur only where it came first"),
    _list("distinct", "dedupe", "sorted(set(A))", ("take the distinct values in ascending order",
        "remove duplicates and sort what is left upwards"), own_plan="distinct sorted",
        other_words="list the values that occur, each once, from low to high"),
    _list("first", "last", "A[:{c}]", ("take the first {c} numbers", "keep only the first {c} values"),
        constants=COUNTS, hidden_phrases=("take the first k numbers, where k is secret",
        "keep a hidden number k of values from the front"), own_plan="first {c}",
        other_words="let {c} values stay, those in front"),
    _list("last", "first", "A[-{c}:]", ("take the last {c} numbers", "keep only the last {c} values"), constants=COUNTS,
        hidden_phrases=("take the last k numbers, where k is secret", "keep a hidden number k of values from the end"),
        own_plan="last {c}", other_words="let {c} values stay, those at the back"),
    _list("skip", "chop", "A[{c}:]", ("skip the first {c} numbers", "remove {c} values at the front"), constants=SHIFTS,
        own_plan="skip {c}", other_words="throw away {c} values in front"),
    _list("chop", "skip", "A[:-{c}]", ("leave out the last {c} numbers", "remove {c} values at the end"),
        constants=SHIFTS, own_plan="chop {c}", other_words="throw away {c} values at the back"),
    _list("every_first", "every_second", "A[::2]", ("keep every second number, starting with the first",
        "keep the values at positions 1, 3, 5 and so on"), own_plan="every 2nd from 0",
        other_words="let the 1st, 3rd, 5th value and so on stay"),
    _list("every_second", "every_first", "A[1::2]", ("keep every second number, starting with the second",
        "keep the values at positions 2, 4, 6 and so on"), own_plan="every 2nd from 1",
        other_words="let the 2nd, 4th, 6th value and so on stay"),
    _list("rotate_left", "rotate_right", "A[{c}:] + A[:{c}]", ("rotate the list left by {c} places",
        "move the first {c} numbers to the end"), constants=SHIFTS, own_plan="rotate left {c}",
        other_words="{c} times, carry the value in front to the back"),
    _list("rotate_right", "rotate_left", "A[-{c}:] + A[:-{c}]", ("rotate the list right by {c} places",
        "move the last {c} numbers to the front"), constants=SHIFTS, own_plan="rotate right {c}",
        other_words="{c} times, carry the value at the back to the front"),
    _list("running", "steps", "[sum(A[:i + 1]) for i in range(len(A))]", ("replace the list by its prefix sums",
        "turn the list into running totals"), own_plan="running sums",
        other_words="to each value add all those in front of it"),
    _list("steps", "running", "[q - p for p, q in zip(A, A[1:])]",
        ("replace the list by the differences next minus previous", "take each number minus the one before it"),
        own_plan="differences", other_words="of each value and the next, leave how much it grows"),
    _final("sum", "count", "sum(A)", ("print the sum", "print the total of the numbers"), hidden_phrases=SUMMARY,
        hidden_choices=SUMMARIES, own_plan="sum", other_words="print what they come to"),
    _final("max", "min", "max(A, default=0)", ("print the largest number (0 if none is left)",
        "print the maximum, or 0 for an empty list"), hidden_phrases=SUMMARY, hidden_choices=SUMMARIES, own_plan="max",
        other_words="print the top value (0 if none is left)"),
    _final("min", "max", "min(A, default=0)", ("print the smallest number (0 if none is left)",
        "print the minimum, or 0 for an empty list"), hidden_phrases=SUMMARY, hidden_choices=SUMMARIES, own_plan="min",
        other_words="print the bottom value (0 if none is left)"),
    _final("count", "sum", "len(A)", ("print how many numbers there are", "print the count of numbers"),
        hidden_phrases=SUMMARY, hidden_choices=SUMMARIES, own_plan="count", other_words="print how many are left"),
    _final("count_distinct", "count", "len(set(A))", ("print the number of distinct values",
        "print how many different values there are"), own_plan="count distinct",
        other_words="print how many are left if equal ones count once"),
    _final("spread", "max", "max(A, default=0) - min(A, default=0)",
        ("print the largest minus the smallest (0 if none is left)", "print max minus min, or 0 for an empty list"),
        own_plan="max - min", other_words="print how far the top value is from the bottom one (0 if none is left)"),
    _final("join_space", "join_lines", "' '.join(map(str, A))", ("print the numbers separated by spaces",
        "print the numbers on one line with spaces"), hidden_phrases=SEPARATOR, hidden_choices=SEPARATORS,
        own_plan="join space", other_words="print them with a space between"),
    _final("join_comma", "join_dash", "','.join(map(str, A))", ("print the numbers separated by commas",
        "print the numbers joined with commas"), hidden_phrases=SEPARATOR, hidden_choices=SEPARATORS,
        own_plan="join comma", other_words="print them with a comma between"),
    _final("join_dash", "join_comma", "'-'.join(map(str, A))", ("print the numbers joined with dashes",
        "print the numbers with a dash between them"), hidden_phrases=SEPARATOR, hidden_choices=SEPARATORS,
        own_plan="join dash", other_words="print them with a dash between"),
    _final("join_lines", "join_space", "'\\n'.join(map(str, A))", ("print the numbers one per line",
        "print each number on its own line"), hidden_phrases=SEPARATOR, hidden_choices=SEPARATORS,
        own_plan="join newline", other_words="print them below each other"),
    _text("upper", "title", "A.upper()", ("convert it to upper case", "make every letter a capital"),
        hidden_phrases=CASE, hidden_choices=("upper", "title"), own_plan="upper", other_words="write it in capitals"),
    _text("title", "upper", "A.title()", ("capitalise the first letter of each word", "use title case"),
        hidden_phrases=CASE, hidden_choices=("upper", "title"), own_plan="title",
        other_words="begin each word with a capital"),
    _text("reverse_text", "reverse_words", "A[::-1]", ("reverse the text", "write the text backwards"),
        own_plan="reverse text", other_words="read it from its last character"),
    _text("reverse_words", "reverse_text", "' '.join(A.split()[::-1])", ("reverse the order of the words",
        "write the words in reverse order"), own_plan="reverse words",
        other_words="read it word by word from the last one"),
    _text("sort_words", "reverse_words", "' '.join(sorted(A.split()))", ("sort the words alphabetically",
        "put the words in dictionary order"), own_plan="sort words", other_words="line the words up from a to z"),
    _text("no_vowels", "only_vowels", "''.join(x for x in A if x not in 'aeiou')", ("remove the vowels",
        "delete every a, e, i, o and u"), own_plan="drop vowels", other_words="throw away all vowels"),
    _text("only_vowels", "no_vowels", "''.join(x for x in A if x in 'aeiou')", ("keep only the vowels",
        "delete everything except a, e, i, o and u"), own_plan="keep vowels",
        other_words="throw away all that is no vowel"),
    _text("repeat_letters", "repeat_text", "''.join(x * {c} for x in A)", ("repeat each character {c} times",
        "write every character {c} times in a row"), constants=COUNTS,
        hidden_phrases=("repeat each character a secret number k of times",
        "write every character a hidden number k of times"), own_plan="each letter {c} times",
        other_words="write each of its characters {c} times"),
    _text("repeat_text", "repeat_letters", "A * {c}", ("repeat the whole text {c} times with nothing between",
        "write the text {c} times in a row"), constants=COUNTS,
        hidden_phrases=("repeat the whole text a secret number k of times",), own_plan="text {c} times",
        other_words="write all of it {c} times"),
    _text("dashes", "underscores", "A.replace(' ', '-')", ("replace the spaces by dashes",
        "put a dash for every space"), hidden_phrases=GLUE, hidden_choices=("dashes", "underscores"), own_plan="dashes",
        other_words="join the words with dashes"),
    _text("underscores", "dashes", "A.replace(' ', '_')", ("replace the spaces by underscores",
        "put an underscore for every space"), hidden_phrases=GLUE, hidden_choices=("dashes", "underscores"),
        own_plan="underscores", other_words="join the words with underscores"),
    _text("first_letters", "last_letters", "A[:{c}]", ("take the first {c} characters",
        "keep only the first {c} characters"), constants=COUNTS, own_plan="first {c}",
        other_words="let {c} characters stay, those in front"),
    _text("last_letters", "first_letters", "A[-{c}:]", ("take the last {c} characters",
        "keep only the last {c} characters"), constants=COUNTS, own_plan="last {c}",
        other_words="let {c} characters stay, those at the back"),
    _text_final("show", "length", "A", ("print the result", "print what you get"), own_plan="print",
        other_words="print what has become of it"),
    _text_final("length", "words", "len(A)", ("print its length", "print how many characters it has"),
        own_plan="length", other_words="print the number of its characters"),
    _text_final("words", "length", "len(A.split())", ("print the number of words", "count its words"),
        own_plan="word count", other_words="print how many words it has"),
    _text_final("vowels", "length", "sum(x in 'aeiou' for x in A)", ("print the number of vowels",
        "print how many of its letters are a, e, i, o or u"), own_plan="count vowels",
        other_words="print how many vowels it has"),
)  # fmt: skip

WIDER = (
    _filter("near", "far", "abs(x) <= {c}", ("keep only the numbers whose absolute value is at most {c}",),
        constants=WIDE),
    _filter("far", "near", "abs(x) >= {c}", ("keep only the numbers whose absolute value is at least {c}",),
        constants=WIDE),
    _map("double_more", "double_less", "2 * x + {c}", ("double each number, and add {c} to it",), constants=WIDE),
    _map("double_less", "double_more", "2 * x - {c}", ("double each number, and take {c} from it",), constants=WIDE),
    _map("complement", "distance", "{c} - x", ("replace each number by {c} minus it",), constants=WIDE),
    _map("distance", "complement", "abs({c} - x)", ("replace each number by its distance to {c}",), constants=WIDE),
    _list("pair_sums", "pair_products", "[p + q for p, q in zip(A, A[1:])]",
        ("replace the list by the sums of neighbours",), own_plan="pair sums"),
    _list("pair_products", "pair_sums", "[p * q for p, q in zip(A, A[1:])]",
        ("replace the list by the products of neighbours",), own_plan="pair products"),
    _list("mirror", "twice", "A + A[::-1]", ("append the same numbers in reverse order",), own_plan="mirror"),
    _list("twice", "mirror", "A + A", ("append the same numbers once more",), own_plan="twice"),
    _list("without_ends", "only_ends", "A[{c}:-{c}]", ("leave out {c} numbers at either end",), constants=SHIFTS,
        own_plan="without {c} at both ends"),
    _list("only_ends", "without_ends", "A[:{c}] + A[-{c}:]", ("keep nothing but {c} numbers at either end",),
        constants=SHIFTS, own_plan="only {c} at both ends"),
    _final("median", "mean", "sorted(A)[len(A) // 2] if A else 0",
        ("print the median, the larger one of two (0 if none is left)",), own_plan="median"),
    _final("mean", "median", "sum(A) // len(A) if A else 0", ("print the average, rounded down (0 if none is left)",),
        own_plan="mean"),
    _final("count_even", "count_odd", "sum(x % 2 == 0 for x in A)", ("print how many of them are even",),
        own_plan="count even"),
    _final("count_odd", "count_even", "sum(x % 2 == 1 for x in A)", ("print how many of them are odd",),
        own_plan="count odd"),
    _final("join_plus", "join_slash", "'+'.join(map(str, A))", ("print them with a plus sign between",),
        own_plan="join plus"),
    _final("join_slash", "join_plus", "'/'.join(map(str, A))", ("print them with a slash between",),
        own_plan="join slash"),
    _text("initials", "endings", "''.join(w[0] for w in A.split())", ("join the first letters of the words",),
        own_plan="initials"),
    _text("endings", "initials", "''.join(w[-1] for w in A.split())", ("join the last letters of the words",),
        own_plan="endings"),
    _text("long_words", "short_words", "' '.join(w for w in A.split() if len(w) > {c})",
        ("keep the words of more than {c} letters",), constants=LENGTHS, own_plan="words over {c}"),
    _text("short_words", "long_words", "' '.join(w for w in A.split() if len(w) <= {c})",
        ("keep the words of no more than {c} letters",), constants=LENGTHS, own_plan="words up to {c}"),
    _text("reverse_each", "sort_each", "' '.join(w[::-1] for w in A.split())", ("turn every single word around",),
        own_plan="reverse each word"),
    _text("sort_each", "reverse_each", "' '.join(''.join(sorted(w)) for w in A.split())",
        ("sort the letters within every word",), own_plan="sort each word"),
    _text_final("distinct_letters", "letters", "len(set(A))", ("print how many different characters occur",),
        own_plan="count distinct"),
    _text_final("letters", "distinct_letters", "sum(x != ' ' for x in A)", ("print how many characters are no spaces",),
        own_plan="count letters"),
)  # fmt: skip
"""Only the *wider* part of the world has these. ``research.minicode.problems`` says who meets them."""

OPERATIONS = {operation.name: operation for operation in (*_COMMON, *WIDER)}
COMMON = tuple(operation.name for operation in _COMMON)
"""Names of the operations that problems to learn from and dev problems consist of."""


def operations_of(domain: Domain, final: bool, wider: bool = False) -> tuple[Operation, ...]:
    """The final, or the middle, operations of a domain: the common ones, or those of the wider part alone."""
    operations = WIDER if wider else _COMMON
    return tuple(o for o in operations if o.domain is domain and (o.kind is Kind.FINAL) is final)
