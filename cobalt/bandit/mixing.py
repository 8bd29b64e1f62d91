"""The order of the output records, and the share of perturbed ones among them."""

import random

from cobalt.errors import InputError


def mixed_counts(num_clean: int, num_perturbed: int, ratio: float) -> tuple[int, int]:
    """How many clean and perturbed records make a set with a share ``ratio`` of perturbed ones.

    As many as there are of the kind that limits; the share is met to within one record.

    >>> mixed_counts(num_clean=90, num_perturbed=50, ratio=0.1)
    (90, 10)
    >>> mixed_counts(num_clean=90, num_perturbed=5, ratio=0.5)
    (5, 5)
    """
    if ratio == 1:
        return 0, num_perturbed
    wanted = round(num_clean * ratio / (1 - ratio))
    if wanted <= num_perturbed:
        return num_clean, wanted
    return round(num_perturbed * (1 - ratio) / ratio), num_perturbed


def output_order(num_clean: int, num_perturbed: int, ratio: float, seed: int) -> list[int]:
    """Indices into clean records followed by perturbed ones: a sample that meets ``ratio``, shuffled by ``seed``.

    ``ratio`` lies in [0, 1]. Raises ``InputError`` where nothing would be written.
    """
    if ratio > 0 and num_perturbed == 0:
        raise InputError(f"the perturbed trajectories give no context: no share of {ratio} can be made of them")
    if ratio < 1 and num_clean == 0:
        raise InputError("the trajectories give no context: every problem is left out")
    rng = random.Random(seed)
    clean, perturbed = mixed_counts(num_clean, num_perturbed, ratio)
    chosen = sorted(rng.sample(range(num_clean), clean))
    chosen += sorted(rng.sample(range(num_clean, num_clean + num_perturbed), perturbed))
    rng.shuffle(chosen)
    return chosen
