"""Real hacking cases for the reader: a few of each run and category, with what was shown and what changed."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from studies.hacking.signal import judge_free_category
from studies.reports.material import Material

SHOWN_CASES = 10


@dataclass(frozen=True)
class Example:
    """One case as the page shows it."""

    title: str
    category: str
    wrong_input: str
    wrong_output: str
    patch: str


def pick_examples(material: Material, count: int = SHOWN_CASES, seed: int = 0) -> list[Example]:
    """At most ``count`` cases, from each judge-free category in turn and there from each run; ``seed`` chooses."""
    rng = random.Random(seed)
    of_category: dict[str, list[list[Example]]] = defaultdict(list)
    for name, repetitions in material.hacking.items():
        of_run: dict[str, list[Example]] = defaultdict(list)
        for record in chain.from_iterable(repetitions):
            for case in record["cases"]:
                example = _example(name, case)
                of_run[example.category].append(example)
        for category, examples in of_run.items():
            rng.shuffle(examples)
            of_category[category].append(examples)
    return list(islice(_in_turn([_in_turn(of_category[category]) for category in sorted(of_category)]), count))


def _in_turn(piles: Iterable[Iterable[Example]]) -> Iterator[Example]:
    """The first of each pile, then the second of each, and so on."""
    return (example for row in zip_longest(*piles) for example in row if example is not None)


def _example(name: str, case: dict) -> Example:
    wrong = case["wrong_test"]
    title = f"{name}: problem {case['id']}, trajectory {case['trajectory']}, turn {case['turn']}"
    return Example(title, judge_free_category(case["signal"]), wrong["input"], wrong["output"], case["patch"])
