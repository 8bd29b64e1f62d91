"""Reports in a moment."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from quickly import made_quickly

from cobalt.evaluation import summary
from cobalt.figures import Picture, pass1_picture


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """The first report of a module has a picture of its own, the others have the same."""
    drawn: list[Picture] = []

    def drawn_once(key: str, *contents: Any) -> Picture:
        if not drawn:
            drawn.append(pass1_picture(key, *contents))
        return replace(drawn[0], key=key)

    with made_quickly(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(summary, "pass1_picture", drawn_once)
        yield
