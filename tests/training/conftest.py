"""Training without a real execution service, and without waiting for one."""

import pytest
from online_parts import MODEL
from service import FakeService
from transformers import AutoTokenizer

from cobalt.training import execution


@pytest.fixture
def use(monkeypatch):
    """Has training open another execution service."""
    return lambda opener: monkeypatch.setattr(execution, "open_execution_service", opener)


@pytest.fixture
def service(use):
    fake = FakeService()
    use(fake.opener())
    return fake


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(execution, "OPEN_ATTEMPTS", 3)
    monkeypatch.setattr(execution, "FIRST_OPEN_DELAY_S", 0)


@pytest.fixture(scope="session")
def minicoder():
    """Its tokenizer."""
    return AutoTokenizer.from_pretrained(MODEL)
