"""Training without a real execution service, and without waiting for one."""

import os
from functools import cache
from unittest import mock

import omegaconf.base
import pytest
from fake_service import FakeService
from online_parts import MODEL
from transformers import AutoTokenizer

from cobalt.serving import execution
from cobalt.training import hydra_main, scoring
from cobalt.training.composition import CONFIG_NAME, composed


@pytest.fixture(scope="session", autouse=True)
def interpolations_parsed_once():
    """They are the same in each configuration, and their grammar takes half of the time that making one does."""
    with mock.patch.object(omegaconf.base, "parse", cache(omegaconf.base.parse)):
        yield


@pytest.fixture(autouse=True)
def own_environment():
    """A training has variables of its own, which would be those of other tests."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def use(monkeypatch):
    """Has training open another execution service."""

    def use_opener(opener):
        monkeypatch.setattr(scoring, "open_execution_service", opener)

    return use_opener


@pytest.fixture
def service(use):
    fake = FakeService()
    use(fake.opener())
    return fake


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(execution, "FIRST_DELAY_S", 0.001)


@pytest.fixture(scope="session")
def minicoder():
    """Its tokenizer."""
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture
def composed_once(monkeypatch):
    """``cobalt train`` knows what was composed before. Hydra takes long, and almost all tests ask for the same."""

    def once(overrides, config_dir, config_name=CONFIG_NAME, **options):
        return known(tuple(overrides), config_dir, config_name, *options.items())

    monkeypatch.setattr(hydra_main, "composed", once)


@cache
def known(overrides, config_dir, config_name, *options):
    return composed(overrides, config_dir, config_name, **dict(options))
