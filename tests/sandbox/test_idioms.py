"""Correct programs pass: every idiom gets the verdict that plain Python's output and exit code deserve."""

import asyncio
import json

import pytest
from idioms import IDIOMS, run_all_plain, run_idioms
from places import report


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, str]]:
    """What plain Python makes of each idiom."""
    return run_all_plain()


@pytest.fixture(scope="module")
def compared(mode, plain, request) -> dict:
    """Every idiom, run once by plain Python and once in this mode."""
    if mode == "landlock":
        return report("--unprivileged", "--without", "namespaces", "--scenario", "idioms", given=json.dumps(plain))
    request.getfixturevalue("namespaces")
    return asyncio.run(run_idioms(mode, plain))


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom_does_what_it_does_in_plain_python(name, compared):
    plain, verdict, feedback = compared[name]
    assert verdict == plain, feedback
