"""``constraints/train-gpu.txt`` holds together: for each Python, every requirement of every package in it is met.

What the packages require is read from ``constraints/train-gpu.metadata.json``, which ``constraints/lock.py`` copies
from the packages' own metadata: nothing is downloaded or installed. Exempt are requirements on the packages that
``train-gpu.overrides.txt`` names.
"""

import json
from collections.abc import Sequence

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from constraints.lock import (
    CORE,
    EXTRAS,
    INPUT,
    LIGHT,
    LOCK,
    METADATA,
    OVERRIDES,
    PYTHONS,
    ROOT,
    VERIFIED,
    Pin,
    applies,
    lock_of,
    read_pins,
    read_requirements,
)

PACKAGES = json.loads(METADATA.read_text())
OVERRIDES_BY_NAME = {canonicalize_name(requirement.name): requirement for requirement in read_requirements(OVERRIDES)}
for_each_python = pytest.mark.parametrize("python", PYTHONS)

Pins = dict[str, Pin]
Need = tuple[str, Requirement]
"""A requirement, and whose it is."""


def _needs(pins: Pins, python: str) -> list[Need]:
    """What each locked package requires; of one without metadata, nothing."""
    needs = []
    for name, pin in pins.items():
        owner = f"{name}=={pin.version}"
        requirements = map(Requirement, PACKAGES.get(owner, {"requires_dist": []})["requires_dist"])
        needs += [(owner, requirement) for requirement in requirements if applies(requirement, python, pin.extras)]
    return needs


def _own_needs() -> list[Need]:
    """What the lock is for: this project with its extras, and the lines of ``train-gpu.in``."""
    return [*_needs_of(EXTRAS), *(("train-gpu.in", requirement) for requirement in read_requirements(INPUT))]


def _needs_of(extras: Sequence[str]) -> list[Need]:
    """What this project requires with some of its extras."""
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements, wanted = list(map(Requirement, project["dependencies"])), list(extras)
    for extra in wanted:  # grows: an extra may name others as cobalt-rl[...]
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            wanted += requirement.extras if requirement.name == project["name"] else []
            requirements += [requirement] if requirement.name != project["name"] else []
    return [(project["name"], requirement) for requirement in requirements]


def _is_met(requirement: Requirement, pins: Pins) -> bool:
    pin = pins.get(canonicalize_name(requirement.name))
    extras = {canonicalize_name(extra) for extra in requirement.extras}
    return pin is not None and requirement.specifier.contains(pin.version, prereleases=True) and extras <= pin.extras


def _unmet(needs: list[Need], pins: Pins) -> list[str]:
    """Exceptions aside."""
    return [
        f"{owner} asks for {requirement}, the lock has {pins.get(canonicalize_name(requirement.name))}"
        for owner, requirement in needs
        if canonicalize_name(requirement.name) not in OVERRIDES_BY_NAME and not _is_met(requirement, pins)
    ]


@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("extra", LIGHT)
def test_each_light_extra_has_a_lock_with_the_verified_versions(extra: str, python: str) -> None:
    pins, verified = read_pins(lock_of(extra), python), read_pins(VERIFIED, python)
    for _, requirement in _needs_of([] if extra == CORE else [extra]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)].version), requirement
    assert not any(pin.extras for pin in pins.values()), "pip refuses extras in constraints"
    assert {name: pin.version for name, pin in pins.items() if name in verified} == {
        name: verified[name].version for name in pins if name in verified
    }


@pytest.mark.parametrize("extra", LIGHT)
def test_the_index_of_the_pages_names_the_lock_of_each_extra(extra: str) -> None:
    assert f"constraints/{extra}.txt" in (ROOT / "docs" / "README.md").read_text()


@for_each_python
def test_what_the_packages_require_is_in_the_lock(python: str) -> None:
    pins = read_pins(LOCK, python)
    assert _unmet(_needs(pins, python), pins) == []


@for_each_python
def test_what_the_project_requires_is_in_the_lock(python: str) -> None:
    assert _unmet(_own_needs(), read_pins(LOCK, python)) == []


@for_each_python
def test_the_packages_run_on_this_python(python: str) -> None:
    for name, pin in read_pins(LOCK, python).items():
        wanted = SpecifierSet(PACKAGES[f"{name}=={pin.version}"]["requires_python"])
        assert wanted.contains(f"{python}.0"), f"{name} {pin.version} asks for Python {wanted}"


@for_each_python
def test_nothing_is_locked_that_nobody_requires(python: str) -> None:
    pins = read_pins(LOCK, python)
    required = {canonicalize_name(need.name) for _, need in _needs(pins, python) + _own_needs()}
    assert set(pins) - required == set()


def test_the_metadata_is_that_of_the_locked_packages() -> None:
    locked = {f"{name}=={pin.version}" for python in PYTHONS for name, pin in read_pins(LOCK, python).items()}
    assert set(PACKAGES) == locked, "run constraints/lock.py"


@for_each_python
def test_the_overrides_are_in_force_and_all_of_them_needed(python: str) -> None:
    pins = read_pins(LOCK, python)
    refused = {canonicalize_name(need.name) for _, need in _needs(pins, python) if not _is_met(need, pins)}
    assert all(_is_met(requirement, pins) for requirement in OVERRIDES_BY_NAME.values())
    assert refused == set(OVERRIDES_BY_NAME)


@pytest.mark.parametrize(
    ("package", "version", "complaint"),
    [
        ("tensordict", "0.6.2", "verl==0.5.0 asks for tensordict"),
        ("numpy", "2.1.0", "verl==0.5.0 asks for numpy"),
        ("transformers", "4.50.0", "vllm==0.8.5.post1 asks for transformers"),
        ("torch", "2.7.0", "xformers==0.0.29.post2 asks for torch"),
    ],
)
def test_a_pin_that_breaks_a_requirement_is_noticed(package: str, version: str, complaint: str) -> None:
    pins = read_pins(LOCK, "3.12")
    pins[package] = Pin(version, pins[package].extras)
    assert any(line.startswith(complaint) for line in _unmet(_needs(pins, "3.12"), pins))


def test_a_missing_package_of_an_extra_is_noticed() -> None:
    pins = read_pins(LOCK, "3.12")
    del pins["py-spy"]
    assert any(line.startswith("ray==2.49.2 asks for py-spy") for line in _unmet(_needs(pins, "3.12"), pins))
