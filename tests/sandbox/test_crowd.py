"""Mode ``landlock``, where the kernel counts tasks by user: many threads of one program cost others no verdict."""

import os

import pytest
from places import report

MAX_THREADS = 64


def test_programs_wait_while_the_servers_user_has_too_many_tasks():
    found = report("--mode", "landlock", "--unprivileged", "--scenario", "crowd")
    assert found["threads"] > MAX_THREADS  # what docs/sandbox.md says
    assert found["verdicts"] == ["passed"] * 12


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, whose programs have users of their own")
def test_a_root_servers_programs_keep_to_their_threads():
    found = report("--mode", "landlock", "--scenario", "crowd")
    assert found["threads"] <= MAX_THREADS + 1
    assert found["verdicts"] == ["passed"] * 12
