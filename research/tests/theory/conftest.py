import pytest
from quickly import made_quickly


@pytest.fixture(scope="module", autouse=True)
def quick():
    with made_quickly():
        yield
