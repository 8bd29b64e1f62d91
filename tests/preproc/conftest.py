"""A model that counts tokens; a stand-in for the execution service, where no program has to run."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from commands import FakeService
from tokenizers_for_tests import make_tokenizer

from cobalt.cli.flags import ExecutionConfig


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
