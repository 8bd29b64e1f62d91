"""Reports in a second."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cobalt import figures, statistics


@contextmanager
def made_quickly() -> Iterator[None]:
    """Intervals of few resamples, and pictures of few dots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "RESAMPLES", 300)
        patch.setattr(figures, "DPI", 60)
        yield
