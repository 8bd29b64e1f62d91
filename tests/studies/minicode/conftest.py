"""One thread: more of them wait for each other longer than they save at these sizes."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
