"""Mode ``landlock``, where the kernel counts tasks by user: many threads of one program cost others no verdict."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from places import Place, report

MAX_THREADS = 64


@pytest.fixture(scope="module")
def crowds() -> dict[str, dict]:
    """What the scenario finds under each server. It mostly waits: they are run side by side."""
    servers = ["ordinary", *(["root"] if os.getuid() == 0 else [])]
    with ThreadPoolExecutor() as pool:
        arguments = [[*Place("landlock", server).arguments, "--scenario", "crowd"] for server in servers]
        return dict(zip(servers, pool.map(lambda given: report(*given), arguments), strict=True))


def test_programs_wait_while_the_servers_user_has_too_many_tasks(crowds):
    found = crowds["ordinary"]
    assert found["threads"] > MAX_THREADS  # what docs/sandbox.md says
    assert found["verdicts"] == ["passed"] * 12


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, whose programs have users of their own")
def test_a_root_servers_programs_keep_to_their_threads(crowds):
    found = crowds["root"]
    assert found["threads"] <= MAX_THREADS + 1
    assert found["verdicts"] == ["passed"] * 12
