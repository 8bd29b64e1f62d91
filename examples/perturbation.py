"""A perturbation of one's own: one number off by one. ``--perturbation examples/perturbation.py:off_by_one``."""

import random


def off_by_one(inputs: list[str], outputs: list[str], rng: random.Random) -> list[str] | None:
    """The outputs to be shown, one of them wrong; None, if none is a whole number: the problem is then dropped."""
    whole = [place for place, output in enumerate(outputs) if output.strip().lstrip("-").isdigit()]
    if not whole:
        return None
    chosen = rng.choice(whole)
    return [str(int(output) + 1) if place == chosen else output for place, output in enumerate(outputs)]
