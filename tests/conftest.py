"""See ``process_settings``."""

from process_settings import pytest_collection_modifyitems  # noqa: F401 - a hook of pytest
