"""A model that counts tokens; sandboxes that all commands share; a stand-in, where no program has to run."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from commands import FakeService, SharedExecutor
from tokenizers_for_tests import make_tokenizer

from cobalt.cli.flags import ExecutionConfig
from cobalt.serving.execution import ExecutionService


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    fake = FakeService()

    @contextlib.asynccontextmanager
    async def opened(config: ExecutionConfig) -> AsyncIterator[FakeService]:
        yield fake

    monkeypatch.setattr("cobalt.preproc.taco.service_of", opened)
    return fake


@pytest.fixture(scope="session")
def shared_executor() -> Iterator[SharedExecutor]:
    executor = SharedExecutor()
    yield executor
    executor.close()


@pytest.fixture
def sandbox(shared_executor: SharedExecutor, monkeypatch: pytest.MonkeyPatch) -> SharedExecutor:
    """Commands with ``--executor local`` run programs here: to start sandboxes takes a second each time."""

    @contextlib.asynccontextmanager
    async def opened(config: ExecutionConfig) -> AsyncIterator[ExecutionService]:
        assert (config.executor, config.checker) == ("local", None)
        yield ExecutionService(shared_executor)  # not closed with it

    monkeypatch.setattr("cobalt.preproc.taco.service_of", opened)
    monkeypatch.setattr("cobalt.preproc.trajectories.service_of", opened)
    return shared_executor
