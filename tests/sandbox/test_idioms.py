"""Correct programs pass: every idiom gets the verdict that plain Python's output and exit code deserve."""

import asyncio

import pytest
from idioms import IDIOMS, run_idioms
from places import report


@pytest.fixture(scope="module")
def compared(mode, request) -> dict:
    """Every idiom, run once by plain Python and once in this mode."""
    if mode == "landlock":
        return report("--unprivileged", "--without", "namespaces", "--scenario", "idioms")
    request.getfixturevalue("namespaces")
    return asyncio.run(run_idioms(mode))


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom_does_what_it_does_in_plain_python(name, compared):
    plain, verdict, feedback = compared[name]
    assert verdict == plain, feedback
