"""A stand-in for the execution service, where no program has to run."""

import contextlib
from collections.abc import AsyncIterator

import pytest
from commands import FakeService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    fake = FakeService()

    @contextlib.asynccontextmanager
    async def opened(executor: str, checker: str | None) -> AsyncIterator[FakeService]:
        assert executor == "local"
        yield fake

    monkeypatch.setattr("cobalt.preproc.taco.open_execution_service", opened)
    return fake
