"""The operations that MiniCode 3's problems are composed of: MiniCode's on numbers, and own ones.

Each takes a value of one type to another: numbers, words, or a dictionary of numbers (``TALLIES``). Its look-alike has
the same types. Those on the items of a list or a dictionary have an expression in ``x``, the others one in ``A``.
Loops are statements over ``A`` whose result is ``B``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from studies.minicode import operations as minicode


class Value(StrEnum):
    """What a step takes or gives. A tally's keys are numbers or words, its values are numbers."""

    NUMBERS = "numbers"
    WORDS = "words"
    NUMBER_TALLY = "tally of numbers"
    WORD_TALLY = "tally of words"
    OUTPUT = "output"


TALLIES = (Value.NUMBER_TALLY, Value.WORD_TALLY)
VARIABLES = {
    Value.NUMBERS: "nums",
    Value.WORDS: "words",
    Value.NUMBER_TALLY: "counts",
    Value.WORD_TALLY: "counts",
    Value.OUTPUT: "answer",
}


class Kind(StrEnum):
    """How an operation is written, and how its work is shown: by item, by what the items so far give, or not."""

    FILTER = "filter"
    MAP = "map"
    LOOP = "loop"
    FOLD = "fold"
    """A final step that could be computed item by item, such as a sum."""
    WHOLE = "whole"


@dataclass(frozen=True)
class Operation:
    """One family of statements."""

    name: str
    source: Value
    target: Value
    kind: Kind
    look_alike: str
    code: str
    """Python in ``x`` (FILTER and MAP) or ``A``; of a LOOP, statements that assign ``B``; ``{c}`` is the constant."""
    plan: str
    """Its short name in the thinking."""
    phrases: tuple[str, ...]
    """At least three ways to ask for it."""
    constants: tuple[int, ...] = ()
    vague_phrases: tuple[str, ...] = ()
    """Ways to ask for it without saying which constant, or which of ``vague_choices``, is meant."""
    vague_choices: tuple[str, ...] = ()


LARGEST_CONSTANT = 6
FACTORS, COUNTS, SHIFTS, HEADS, LENGTHS = (2, 3), (2, 3), (1, 2), (1, 2), (3, 4)
FROM_MINICODE = (
    *("greater", "at_least", "less", "at_most", "even", "odd", "multiple", "no_multiple"),
    *("add", "subtract", "multiply", "remainder", "quotient", "absolute", "negate", "cap", "lift"),
    *("sort", "sort_down", "reverse", "dedupe", "distinct", "first", "last", "skip", "chop"),
    *("sum", "max", "min", "count", "count_distinct", "spread"),
    *("join_space", "join_comma", "join_dash", "join_lines"),
)
FOLDS = ("sum", "max", "min", "count", "count_distinct", "spread")


def _from_minicode(name: str) -> Operation:
    """An operation of MiniCode's on numbers, with constants that keep numbers short."""
    old = minicode.OPERATIONS[name]
    final = old.kind is minicode.Kind.FINAL
    kinds = {minicode.Kind.FILTER: Kind.FILTER, minicode.Kind.MAP: Kind.MAP}
    largest = max(FACTORS) if name == "multiply" else LARGEST_CONSTANT
    return Operation(
        name,
        Value.NUMBERS,
        Value.OUTPUT if final else Value.NUMBERS,
        Kind.FOLD if name in FOLDS else kinds.get(old.kind, Kind.WHOLE),
        old.look_alike,
        old.expression,
        old.plan,
        (*old.phrases, old.other_words),
        tuple(constant for constant in old.constants if constant <= largest),
        old.hidden_phrases,
        old.hidden_choices,
    )


def _loop(body: str, start: str = "out = []", head: str = "for x in A:") -> str:
    return f"{start}\n{head}\n    {body}\nB = out"


def _tally(body: str, head: str = "for x in A:") -> str:
    return f"B = {{}}\n{head}\n    {body}"


N, W, OUT = Value.NUMBERS, Value.WORDS, Value.OUTPUT
_PLACES = "for i, x in enumerate(A, 1):"
_OWN = (
    # Numbers.
    Operation("halve_even", N, N, Kind.MAP, "halve_odd", "x // 2 if x % 2 == 0 else x + {c}",
        "x // 2 if even else x + {c}", ("halve each even number and add {c} to each odd one",
        "divide the even values by 2 and increase the odd values by {c}",
        "make even values half as large and odd values {c} larger"), (1, 2, 3)),
    Operation("halve_odd", N, N, Kind.MAP, "halve_even", "x + {c} if x % 2 == 0 else x // 2",
        "x + {c} if even else x // 2", ("add {c} to each even number and halve each odd one, rounding down",
        "increase the even values by {c} and divide the odd values by 2, rounded down",
        "make even values {c} larger and odd values half as large, rounded down"), (1, 2, 3)),
    Operation("running_sum", N, N, Kind.LOOP, "running_max", _loop("total += x\n    out.append(total)",
        "out, total = [], 0"), "running sum", ("replace the list by its prefix sums",
        "turn the list into running totals", "to each value add all those in front of it")),
    Operation("running_max", N, N, Kind.LOOP, "running_sum", _loop("best = max(best, x)\n    out.append(best)",
        "out, best = [], -999"), "running max", ("replace each number by the largest one up to there",
        "turn the list into running maxima", "let each value become the top value so far")),
    Operation("changes", N, N, Kind.LOOP, "neighbour_sums", _loop("out.append(x - last)\n    last = x",
        "out, last = [], 0"), "x - last", ("subtract from each number the one before it, 0 before the first",
        "replace each value by how much it grew, starting from 0", "of each value, leave the step up from the last one"
        " (0 at the start)")),
    Operation("neighbour_sums", N, N, Kind.LOOP, "changes", _loop("out.append(x + last)\n    last = x",
        "out, last = [], 0"), "x + last", ("add to each number the one before it, 0 before the first",
        "replace each value by its sum with the last one, starting from 0",
        "join each value with the one in front (0 at the start) into their sum")),
    Operation("add_place", N, N, Kind.LOOP, "times_place", _loop("out.append(x + i)", head=_PLACES), "x + place",
        ("add to each number its position, counted from 1", "increase the first value by 1, the second by 2 and so on",
        "make each value as much larger as its place says")),
    Operation("times_place", N, N, Kind.LOOP, "add_place", _loop("out.append(x * i)", head=_PLACES), "x * place",
        ("multiply each number by its position, counted from 1", "scale the first value by 1, the second by 2 and so"
        " on", "make each value as many times as large as its place says")),
    Operation("count_values", N, Value.NUMBER_TALLY, Kind.LOOP, "last_places", _tally("B[x] = B.get(x, 0) + 1"),
        "count each", ("count how often each number occurs", "make a table of the values and their frequencies",
        "note for every value how many times it is there")),
    Operation("last_places", N, Value.NUMBER_TALLY, Kind.LOOP, "count_values", _tally("B[x] = i", _PLACES),
        "last place of each", ("note for each number the position, counted from 1, of its last occurrence",
        "make a table of the values and the places where they occur last",
        "for every value remember at which place it was seen last")),
    Operation("count_groups", N, Value.NUMBER_TALLY, Kind.LOOP, "sum_groups",
        _tally("B[x % {c}] = B.get(x % {c}, 0) + 1"), "count by x % {c}",
        ("count the numbers by their remainder modulo {c}", "make a table of the remainders modulo {c} and how often"
        " they occur", "note for every remainder by {c} how many values leave it"), FACTORS),
    Operation("sum_groups", N, Value.NUMBER_TALLY, Kind.LOOP, "count_groups",
        _tally("B[x % {c}] = B.get(x % {c}, 0) + x"), "sum by x % {c}",
        ("add up the numbers by their remainder modulo {c}", "make a table of the remainders modulo {c} and the sums of"
        " their numbers", "note for every remainder by {c} what the values that leave it come to"), FACTORS),
    # Words.
    Operation("longer", W, W, Kind.FILTER, "long_enough", "len(x) > {c}", "keep len > {c}",
        ("keep the words of more than {c} letters", "drop the words of {c} letters or fewer",
        "throw away every word that has not more than {c} letters"), LENGTHS),
    Operation("long_enough", W, W, Kind.FILTER, "longer", "len(x) >= {c}", "keep len >= {c}",
        ("keep the words of at least {c} letters", "drop the words of fewer than {c} letters",
        "throw away every word shorter than {c} letters"), (4, 5)),
    Operation("with_e", W, W, Kind.FILTER, "without_e", "'e' in x", "keep with e", ("keep the words that contain an e",
        "drop the words without the letter e", "throw away every word in which there is no e")),
    Operation("without_e", W, W, Kind.FILTER, "with_e", "'e' not in x", "keep without e",
        ("keep the words that contain no e", "drop the words with the letter e",
        "throw away every word in which there is an e")),
    Operation("upper", W, W, Kind.MAP, "capital", "x.upper()", "upper", ("write each word in capitals",
        "make every letter of the words upper case", "turn all words into capital letters"), (),
        ("change the case of the letters in a secret way",), ("upper", "capital")),
    Operation("capital", W, W, Kind.MAP, "upper", "x.capitalize()", "capital", ("capitalise each word",
        "make the first letter of every word upper case", "begin all words with a capital"), (),
        ("change the case of the letters in a secret way",), ("upper", "capital")),
    Operation("head", W, W, Kind.MAP, "tail", "x[:{c}]", "head {c}", ("cut each word to its first {c} letters",
        "of every word keep the first {c} letters only", "let each word be its first {c} letters"), HEADS),
    Operation("tail", W, W, Kind.MAP, "head", "x[-{c}:]", "tail {c}", ("cut each word to its last {c} letters",
        "of every word keep the last {c} letters only", "let each word be its last {c} letters"), HEADS),
    Operation("mark_behind", W, W, Kind.MAP, "mark_before", "x + '!'", "x !",
        ("put an exclamation mark behind each word", "append an exclamation mark to every word",
        "let each word end in an exclamation mark")),
    Operation("mark_before", W, W, Kind.MAP, "mark_behind", "'!' + x", "! x",
        ("put an exclamation mark before each word", "prefix every word with an exclamation mark",
        "let each word begin with an exclamation mark")),
    Operation("reverse_words", W, W, Kind.WHOLE, "rotate_words", "A[::-1]", "reverse",
        ("reverse the order of the words", "put the words in reverse order",
        "read the words from the last one to the first")),
    Operation("rotate_words", W, W, Kind.WHOLE, "reverse_words", "A[1:] + A[:1]", "rotate",
        ("move the first word to the end", "rotate the words left by one place",
        "carry the word in front to the back")),
    Operation("first_words", W, W, Kind.WHOLE, "last_words", "A[:{c}]", "first {c}", ("take the first {c} words",
        "keep only the first {c} words", "let {c} words stay, those in front"), COUNTS),
    Operation("last_words", W, W, Kind.WHOLE, "first_words", "A[-{c}:]", "last {c}", ("take the last {c} words",
        "keep only the last {c} words", "let {c} words stay, those at the back"), COUNTS),
    Operation("skip_words", W, W, Kind.WHOLE, "chop_words", "A[{c}:]", "skip {c}", ("skip the first {c} words",
        "remove {c} words at the front", "throw away {c} words in front"), SHIFTS),
    Operation("chop_words", W, W, Kind.WHOLE, "skip_words", "A[:-{c}]", "chop {c}", ("drop the last {c} words",
        "remove {c} words at the end", "throw away {c} words at the back"), SHIFTS),
    Operation("dedupe_words", W, W, Kind.LOOP, "no_echo", _loop("if x not in out:\n        out.append(x)"), "dedupe",
        ("remove repeated words but keep each first one", "drop later copies of a word seen before",
        "let every word occur only where it came first")),
    Operation("no_echo", W, W, Kind.LOOP, "dedupe_words", _loop("if not out or x != out[-1]:\n        out.append(x)"),
        "no echo", ("drop each word that equals the word kept before it",
        "shorten every run of equal words to one word",
        "let a word stay only if it differs from the last one that stayed")),
    Operation("lengths", W, N, Kind.MAP, "kinds_of_letters", "len(x)", "len", ("replace each word by its length",
        "turn every word into how many letters it has", "of each word, leave the number of letters")),
    Operation("kinds_of_letters", W, N, Kind.MAP, "lengths", "len(set(x))", "distinct letters",
        ("replace each word by its number of different letters", "turn every word into how many distinct letters it"
        " has", "of each word, leave the count of letters, equal ones once")),
    Operation("count_words", W, Value.WORD_TALLY, Kind.LOOP, "places_of_words", _tally("B[x] = B.get(x, 0) + 1"),
        "count each", ("count how often each word occurs", "make a table of the words and their frequencies",
        "note for every word how many times it is there")),
    Operation("places_of_words", W, Value.WORD_TALLY, Kind.LOOP, "count_words", _tally("B[x] = i", _PLACES),
        "last place of each", ("note for each word the position, counted from 1, of its last occurrence",
        "make a table of the words and the places where they occur last",
        "for every word remember at which place it was seen last")),
    Operation("count_initials", W, Value.WORD_TALLY, Kind.LOOP, "letters_by_initial",
        _tally("B[x[0]] = B.get(x[0], 0) + 1"), "count by x[0]", ("count the words by their first letter",
        "make a table of the first letters and how often they occur",
        "note for every first letter how many words begin with it")),
    Operation("letters_by_initial", W, Value.WORD_TALLY, Kind.LOOP, "count_initials",
        _tally("B[x[0]] = B.get(x[0], 0) + len(x)"), "sum len by x[0]",
        ("add up the lengths of the words by their first letter",
        "make a table of the first letters and the total length of their words",
        "note for every first letter how many letters its words have together")),
    Operation("join_words_space", W, OUT, Kind.WHOLE, "join_words_lines", "' '.join(A)", "join space",
        ("print the words separated by spaces", "print the words on one line with spaces",
        "print the words with a space between")),
    Operation("join_words_lines", W, OUT, Kind.WHOLE, "join_words_space", "'\\n'.join(A)", "join newline",
        ("print the words one per line", "print each word on its own line", "print the words below each other")),
    Operation("join_words_dash", W, OUT, Kind.WHOLE, "join_words_comma", "'-'.join(A)", "join dash",
        ("print the words joined with dashes", "print the words with a dash between them",
        "print the words, a dash after each but the last")),
    Operation("join_words_comma", W, OUT, Kind.WHOLE, "join_words_dash", "','.join(A)", "join comma",
        ("print the words joined with commas", "print the words with a comma between them",
        "print the words, a comma after each but the last")),
    Operation("number_of_words", W, OUT, Kind.FOLD, "number_of_letters", "len(A)", "count",
        ("print how many words there are", "print the number of words", "print how many words are left")),
    Operation("number_of_letters", W, OUT, Kind.FOLD, "number_of_words", "sum(len(x) for x in A)", "sum len",
        ("print how many characters the words have together", "print the total length of the words",
        "print the sum of the lengths of the words")),
    Operation("initials", W, OUT, Kind.FOLD, "endings", "''.join(x[0] for x in A)", "initials",
        ("print the first characters of the words as one word", "print the initials joined together",
        "print one word made of what the words begin with")),
    Operation("endings", W, OUT, Kind.FOLD, "initials", "''.join(x[-1] for x in A)", "endings",
        ("print the last characters of the words as one word", "print the endings joined together",
        "print one word made of what the words end with")),
    Operation("longest", W, OUT, Kind.FOLD, "shortest", "max(A, key=len, default='')", "longest",
        ("print the longest word, the first of several", "print the first word of greatest length",
        "print the earliest word that no other exceeds in length")),
    Operation("shortest", W, OUT, Kind.FOLD, "longest", "min(A, key=len, default='')", "shortest",
        ("print the shortest word, the first of several", "print the first word of least length",
        "print the earliest word that none is shorter than")),
)  # fmt: skip


def _of_tallies() -> Iterator[Operation]:
    """The operations on both kinds of tally; their names end in the kind of key."""
    for tally, keys, ending in ((Value.NUMBER_TALLY, N, "_of_numbers"), (Value.WORD_TALLY, W, "_of_words")):
        own = (
            Operation("entries_above", tally, tally, Kind.FILTER, "entries_from", "x > {c}", "keep entry > {c}",
                ("keep the entries with a value greater than {c}", "drop the entries whose value is {c} or less",
                "throw away every entry that does not exceed {c}"), (1, 2, 3)),
            Operation("entries_from", tally, tally, Kind.FILTER, "entries_above", "x >= {c}", "keep entry >= {c}",
                ("keep the entries with a value of at least {c}", "drop the entries whose value is below {c}",
                "throw away every entry that does not reach {c}"), (2, 3)),
            Operation("more_entries", tally, tally, Kind.MAP, "times_entries", "x + {c}", "entry + {c}",
                ("add {c} to the value of each entry", "increase the value of every entry by {c}",
                "make what each entry says {c} larger"), (2, 3, 4)),
            Operation("times_entries", tally, tally, Kind.MAP, "more_entries", "x * {c}", "entry * {c}",
                ("multiply the value of each entry by {c}", "scale the value of every entry by {c}",
                "make what each entry says {c} times as large"), (2, 3)),
            Operation("values", tally, N, Kind.WHOLE, "values_up", "list(A.values())", "values",
                ("take the values of the entries in their order", "go on with the list of the entries' values",
                "let only what the entries say stay, as a list")),
            Operation("values_up", tally, N, Kind.WHOLE, "values", "sorted(A.values())", "values sorted",
                ("take the values of the entries in ascending order", "go on with the sorted list of the entries'"
                " values", "let only what the entries say stay, from low to high")),
            Operation("keys", tally, keys, Kind.WHOLE, "keys_back", "list(A)", "keys",
                ("take the keys of the entries in their order", "go on with the list of the entries' keys",
                "let only the names of the entries stay, as a list")),
            Operation("keys_back", tally, keys, Kind.WHOLE, "keys", "list(A)[::-1]", "keys reversed",
                ("take the keys of the entries in reverse order", "go on with the list of the entries' keys, the last"
                " one first", "let only the names of the entries stay, read from the end")),
            Operation("pairs", tally, OUT, Kind.WHOLE, "pair_lines", "' '.join(f'{k}:{x}' for k, x in A.items())",
                "key:value space", ("print the entries as key:value, separated by spaces",
                "print key:value for each entry on one line", "print the whole table as key:value with spaces")),
            Operation("pair_lines", tally, OUT, Kind.WHOLE, "pairs", "'\\n'.join(f'{k}:{x}' for k, x in A.items())",
                "key:value newline", ("print the entries as key:value, one per line",
                "print key:value for each entry on its own line", "print the whole table as key:value below each"
                " other")),
            Operation("top_key", tally, OUT, Kind.FOLD, "low_key", "max(A, key=A.get, default='')", "key of max",
                ("print the key with the largest value, the first of several", "print the first key of greatest value",
                "print the name of the earliest top entry")),
            Operation("low_key", tally, OUT, Kind.FOLD, "top_key", "min(A, key=A.get, default='')", "key of min",
                ("print the key with the smallest value, the first of several", "print the first key of least value",
                "print the name of the earliest bottom entry")),
            Operation("total", tally, OUT, Kind.FOLD, "size", "sum(A.values())", "sum of values",
                ("print the sum of the entries' values", "print the total of all entries",
                "print what the entries come to")),
            Operation("size", tally, OUT, Kind.FOLD, "total", "len(A)", "count entries",
                ("print how many entries there are", "print the number of keys", "print how many entries are left")),
        )  # fmt: skip
        for operation in own:
            yield replace(operation, name=operation.name + ending, look_alike=operation.look_alike + ending)


OPERATIONS = {o.name: o for o in (*map(_from_minicode, FROM_MINICODE), *_OWN, *_of_tallies())}
