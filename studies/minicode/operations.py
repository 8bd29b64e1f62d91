"""The operations that MiniCode problems are composed of: what a statement says, what a program does."""

from collections.abc import Mapping
from types import MappingProxyType

from studies.minicode.operation import (
    COUNTS,
    DIVISORS,
    SHIFTS,
    WIDE,
    Domain,
    Kind,
    Operation,
    filter_,
    final_,
    map_,
    text_,
    text_final_,
    whole_,
)
from studies.minicode.wider import WIDER

PARITY = ("keep only the numbers of one secret parity", "keep either the even or the odd numbers (find out which)")
DIRECTION = ("sort the numbers in a secret direction", "order the values either up or down (find out which)")
SUMMARY = ("print one secret summary of the numbers (sum, largest, smallest or how many)",)
SEPARATOR = ("print the numbers joined by a secret separator", "print the numbers with a hidden mark between them")
GLUE = ("replace the spaces by one secret character", "put a hidden mark in place of every space")
CASE = ("change the case of the letters in a secret way",)
SUMMARIES = ("sum", "max", "min", "count")
SEPARATORS = ("join_space", "join_comma", "join_dash", "join_lines")

_FILTERS = (
    filter_("greater", "at_least", "x > {c}",
            ["keep only the numbers greater than {c}", "drop every number that is not greater than {c}"], WIDE,
            ["keep only the numbers greater than a secret constant k", "drop every number not above a hidden limit k"]),
    filter_("at_least", "greater", "x >= {c}",
            ["keep only the numbers that are at least {c}", "drop every number smaller than {c}"], WIDE),
    filter_("less", "at_most", "x < {c}",
            ["keep only the numbers less than {c}", "drop every number that is not below {c}"], WIDE,
            ["keep only the numbers less than a secret constant k", "drop every number not below a hidden limit k"]),
    filter_("at_most", "less", "x <= {c}",
            ["keep only the numbers that are at most {c}", "drop every number larger than {c}"], WIDE),
    filter_("even", "odd", "x % 2 == 0", ["keep only the even numbers", "drop the odd numbers"], (), PARITY,
            ("even", "odd")),
    filter_("odd", "even", "x % 2 == 1", ["keep only the odd numbers", "drop the even numbers"], (), PARITY,
            ("even", "odd")),
    filter_("multiple", "no_multiple", "x % {c} == 0",
            ["keep only the multiples of {c}", "keep the numbers divisible by {c}"], DIVISORS),
    filter_("no_multiple", "multiple", "x % {c} != 0",
            ["drop the multiples of {c}", "keep the numbers not divisible by {c}"], DIVISORS),
    filter_("positive", "non_negative", "x > 0", ["keep only the positive numbers", "drop zeros and negatives"]),
    filter_("non_negative", "positive", "x >= 0", ["keep only the non-negative numbers", "drop the negative numbers"]),
)  # fmt: skip

_MAPS = (
    map_("add", "subtract", "x + {c}", ["add {c} to each number", "increase every value by {c}"], WIDE,
         ["add a secret constant k to each number", "increase every value by a hidden amount k"]),
    map_("subtract", "add", "x - {c}", ["subtract {c} from each number", "decrease every value by {c}"], WIDE,
         ["subtract a secret constant k from each number", "decrease every value by a hidden amount k"]),
    map_("multiply", "add", "x * {c}", ["multiply each number by {c}", "scale every value by {c}"], WIDE,
         ["multiply each number by a secret constant k", "scale every value by a hidden factor k"]),
    map_("remainder", "quotient", "x % {c}",
         ["replace each number by its remainder modulo {c}", "take every value modulo {c}"], DIVISORS),
    map_("quotient", "remainder", "x // {c}",
         ["divide each number by {c} and round down", "replace each number by its floor quotient by {c}"], DIVISORS),
    map_("absolute", "negate", "abs(x)",
         ["replace each number by its absolute value", "drop the sign of every value"]),
    map_("negate", "absolute", "-x", ["negate each number", "flip the sign of every value"]),
    map_("square", "cube", "x ** 2", ["square each number", "raise every value to the power two"]),
    map_("cube", "square", "x ** 3", ["cube each number", "raise every value to the power three"]),
    map_("cap", "lift", "min(x, {c})",
         ["replace every value above {c} by {c}", "limit each number to at most {c}"], WIDE),
    map_("lift", "cap", "max(x, {c})",
         ["replace every value below {c} by {c}", "raise each number to at least {c}"], WIDE),
)  # fmt: skip

_LISTS = (
    whole_("sort", "sort_down", "sorted(A)", "sort up",
           ["sort the numbers in ascending order", "arrange the values from smallest to largest"], (), DIRECTION,
           ("sort", "sort_down")),
    whole_("sort_down", "sort", "sorted(A, reverse=True)", "sort down",
           ["sort the numbers in descending order", "arrange the values from largest to smallest"], (), DIRECTION,
           ("sort", "sort_down")),
    whole_("reverse", "sort_down", "A[::-1]", "reverse", ["reverse the list", "put the numbers in reverse order"]),
    whole_("dedupe", "distinct", "list(dict.fromkeys(A))", "dedupe",
           ["remove repeated values but keep each first one", "drop later copies of a value seen before"]),
    whole_("distinct", "dedupe", "sorted(set(A))", "distinct sorted",
           ["take the distinct values in ascending order", "remove duplicates and sort what is left upwards"]),
    whole_("first", "last", "A[:{c}]", "first {c}", ["take the first {c} numbers", "keep only the first {c} values"],
           COUNTS, ["take the first k numbers, where k is secret", "keep a hidden number k of values from the front"]),
    whole_("last", "first", "A[-{c}:]", "last {c}", ["take the last {c} numbers", "keep only the last {c} values"],
           COUNTS, ["take the last k numbers, where k is secret", "keep a hidden number k of values from the end"]),
    whole_("skip", "chop", "A[{c}:]", "skip {c}", ["skip the first {c} numbers", "remove {c} values at the front"],
           SHIFTS),
    whole_("chop", "skip", "A[:-{c}]", "chop {c}", ["leave out the last {c} numbers", "remove {c} values at the end"],
           SHIFTS),
    whole_("every_first", "every_second", "A[::2]", "every 2nd from 0",
           ["keep every second number, starting with the first", "keep the values at positions 1, 3, 5 and so on"]),
    whole_("every_second", "every_first", "A[1::2]", "every 2nd from 1",
           ["keep every second number, starting with the second", "keep the values at positions 2, 4, 6 and so on"]),
    whole_("rotate_left", "rotate_right", "A[{c}:] + A[:{c}]", "rotate left {c}",
           ["rotate the list left by {c} places", "move the first {c} numbers to the end"], SHIFTS),
    whole_("rotate_right", "rotate_left", "A[-{c}:] + A[:-{c}]", "rotate right {c}",
           ["rotate the list right by {c} places", "move the last {c} numbers to the front"], SHIFTS),
    whole_("running", "steps", "[sum(A[:i + 1]) for i in range(len(A))]", "running sums",
           ["replace the list by its prefix sums", "turn the list into running totals"]),
    whole_("steps", "running", "[q - p for p, q in zip(A, A[1:])]", "differences",
           ["replace the list by the differences next minus previous", "take each number minus the one before it"]),
)  # fmt: skip


_FINALS = (
    final_("sum", "count", "sum(A)", "sum", ["print the sum", "print the total of the numbers"], SUMMARY, SUMMARIES),
    final_("max", "min", "max(A, default=0)", "max",
           ["print the largest number (0 if none is left)", "print the maximum, or 0 for an empty list"], SUMMARY,
           SUMMARIES),
    final_("min", "max", "min(A, default=0)", "min",
           ["print the smallest number (0 if none is left)", "print the minimum, or 0 for an empty list"], SUMMARY,
           SUMMARIES),
    final_("count", "sum", "len(A)", "count", ["print how many numbers there are", "print the count of numbers"],
           SUMMARY, SUMMARIES),
    final_("count_distinct", "count", "len(set(A))", "count distinct",
           ["print the number of distinct values", "print how many different values there are"]),
    final_("spread", "max", "max(A, default=0) - min(A, default=0)", "max - min",
           ["print the largest minus the smallest (0 if none is left)", "print max minus min, or 0 for an empty list"]),
    final_("join_space", "join_lines", "' '.join(map(str, A))", "join space",
           ["print the numbers separated by spaces", "print the numbers on one line with spaces"], SEPARATOR,
           SEPARATORS),
    final_("join_comma", "join_dash", "','.join(map(str, A))", "join comma",
           ["print the numbers separated by commas", "print the numbers joined with commas"], SEPARATOR, SEPARATORS),
    final_("join_dash", "join_comma", "'-'.join(map(str, A))", "join dash",
           ["print the numbers joined with dashes", "print the numbers with a dash between them"], SEPARATOR,
           SEPARATORS),
    final_("join_lines", "join_space", "'\\n'.join(map(str, A))", "join newline",
           ["print the numbers one per line", "print each number on its own line"], SEPARATOR, SEPARATORS),
)  # fmt: skip


_TEXTS = (
    text_("upper", "title", "A.upper()", "upper", ["convert it to upper case", "make every letter a capital"], (), CASE,
          ("upper", "title")),
    text_("title", "upper", "A.title()", "title", ["capitalise the first letter of each word", "use title case"], (),
          CASE, ("upper", "title")),
    text_("reverse_text", "reverse_words", "A[::-1]", "reverse text", ["reverse the text", "write the text backwards"]),
    text_("reverse_words", "reverse_text", "' '.join(A.split()[::-1])", "reverse words",
          ["reverse the order of the words", "write the words in reverse order"]),
    text_("sort_words", "reverse_words", "' '.join(sorted(A.split()))", "sort words",
          ["sort the words alphabetically", "put the words in dictionary order"]),
    text_("no_vowels", "only_vowels", "''.join(x for x in A if x not in 'aeiou')", "drop vowels",
          ["remove the vowels", "delete every a, e, i, o and u"]),
    text_("only_vowels", "no_vowels", "''.join(x for x in A if x in 'aeiou')", "keep vowels",
          ["keep only the vowels", "delete everything except a, e, i, o and u"]),
    text_("repeat_letters", "repeat_text", "''.join(x * {c} for x in A)", "each letter {c} times",
          ["repeat each character {c} times", "write every character {c} times in a row"], COUNTS,
          ["repeat each character a secret number k of times", "write every character a hidden number k of times"]),
    text_("repeat_text", "repeat_letters", "A * {c}", "text {c} times",
          ["repeat the whole text {c} times with nothing between", "write the text {c} times in a row"], COUNTS,
          ["repeat the whole text a secret number k of times"]),
    text_("dashes", "underscores", "A.replace(' ', '-')", "dashes",
          ["replace the spaces by dashes", "put a dash for every space"], (), GLUE,
          ("dashes", "underscores")),
    text_("underscores", "dashes", "A.replace(' ', '_')", "underscores",
          ["replace the spaces by underscores", "put an underscore for every space"], (), GLUE,
          ("dashes", "underscores")),
    text_("first_letters", "last_letters", "A[:{c}]", "first {c}",
          ["take the first {c} characters", "keep only the first {c} characters"], COUNTS),
    text_("last_letters", "first_letters", "A[-{c}:]", "last {c}",
          ["take the last {c} characters", "keep only the last {c} characters"], COUNTS),
    text_final_("show", "length", "A", "print", ["print the result", "print what you get"]),
    text_final_("length", "words", "len(A)", "length", ["print its length", "print how many characters it has"]),
    text_final_("words", "length", "len(A.split())", "word count", ["print the number of words", "count its words"]),
    text_final_("vowels", "length", "sum(x in 'aeiou' for x in A)", "count vowels",
                ["print the number of vowels", "print how many of its letters are a, e, i, o or u"]),
)  # fmt: skip

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {operation.name: operation for operation in (*_FILTERS, *_MAPS, *_LISTS, *_FINALS, *_TEXTS, *WIDER)}
)
COMMON = tuple(name for name in OPERATIONS if name not in {operation.name for operation in WIDER})
"""Names of the operations that problems to learn from and dev problems consist of."""


def operations_of(domain: Domain, final: bool, wider: bool = False) -> tuple[Operation, ...]:
    """The final, or the middle, operations of a domain: the common ones, or those of the wider part alone."""
    return tuple(
        operation
        for name, operation in OPERATIONS.items()
        if operation.domain is domain and (operation.kind is Kind.FINAL) is final and (name not in COMMON) is wider
    )
