"""See ``process_settings``."""

from collections.abc import Iterator
from functools import cache

import pytest
from process_settings import pytest_collection_modifyitems  # noqa: F401 - a hook of pytest

from cobalt.sandbox import executor
from cobalt.sandbox.selftest import choose_mode


@pytest.fixture(scope="session", autouse=True)
def one_self_test() -> Iterator[None]:
    """Executors of one process share the answer to whether the sandbox holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "choose_mode", cache(choose_mode))
        yield
