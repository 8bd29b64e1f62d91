"""Blocks of flags that commands are composed of, with the bounds of each value on its field.

A command's flags are a frozen, keyword-only pydantic dataclass that inherits the blocks it needs. tyro reads it.
pydantic checks types and bounds, also for a library user who builds the dataclass.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro
from annotated_types import Interval
from pydantic import AfterValidator, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from cobalt.errors import InputError, SetupError, first_line
from cobalt.records.identity import hub_errors

LARGEST = 2**63 - 1
"""What follows computes in 64 bits, or in floats."""
Positive = Annotated[int, Interval(ge=1, le=LARGEST)]
NotNegative = Annotated[int, Interval(ge=0, le=LARGEST)]
AboveZero = Annotated[float, Interval(gt=0, lt=math.inf)]
Share = Annotated[float, Interval(ge=0, le=1)]
NotNegativeFloat = Annotated[float, Interval(ge=0, lt=math.inf)]
TopP = Annotated[float, Interval(gt=0, le=1)]


def _for_output(path: Path) -> Path:
    if not path.name:  # as of an unset variable
        raise ValueError("names no file")
    if path.exists() and not path.is_file():  # a folder, a device or a pipe
        raise ValueError("exists and is no file")
    return path


_Output = Annotated[Path, AfterValidator(_for_output)]
InputFile = Annotated[Path, tyro.conf.arg(aliases=["-i"])]
OptionalInputFile = Annotated[Path | None, tyro.conf.arg(aliases=["-i"])]
OutputFile = Annotated[_Output, tyro.conf.arg(aliases=["-o"])]
OptionalOutputFile = Annotated[_Output | None, tyro.conf.arg(aliases=["-o"])]
NumCompletions = Annotated[Positive, tyro.conf.arg(aliases=["-n"])]

ModelName = Annotated[str, tyro.conf.arg(name="model", aliases=["--model_name"])]
OptionalModelName = Annotated[str | None, tyro.conf.arg(name="model", aliases=["--model_name"])]

ExecutorName = Literal["serve", "local"]


def refuse_in_one_line(cls: Any, values: Any, build: ModelWrapValidatorHandler[Any]) -> Any:
    """For ``model_validator(mode="wrap")``: what pydantic refuses is an ``InputError`` about the flag."""
    try:
        return build(values)
    except ValidationError as error:
        raise InputError.of_setting(error, "--", cls.__pydantic_fields__) from None


@dataclass(frozen=True, kw_only=True)
class CommandConfig:
    """Base of all command flags. A refused or unknown value is an ``InputError``."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", defer_build=True)  # only the command that runs is built

    _in_one_line = model_validator(mode="wrap")(refuse_in_one_line)


@dataclass(frozen=True, kw_only=True)
class ReadConfig(CommandConfig):
    """For commands that read JSONL."""

    skip_invalid: bool = False
    """Count and skip invalid input lines instead of stopping at the first."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig(CommandConfig):
    """For commands that run programs."""

    executor: ExecutorName = "serve"
    """Where programs run: the Ray Serve app `evaluator`, or sandboxes of this process."""
    checker: str | None = None
    """How outputs are compared: `exact` (the default), `lcb`, `unordered`, `float TOLERANCE` (docs/formats.md), or a
    function of your own, FILE.py:NAME. An evaluator app must have been started with it."""
    executor_args: str = ""
    """Of the sandboxes of this process, e.g. `workers=8 cpu_limit_s=1` (`python remote_reward_server.py --help`). The
    app has those that it was started with."""
    max_infra_rate: Share = 0.01
    """Exit with 3 if a larger share of the work met an infrastructure failure."""


@dataclass(frozen=True, kw_only=True)
class UploadConfig(CommandConfig):
    """For commands that build a data set."""

    push_to_hub: str | None = None
    """Also upload the set and its card to this dataset repository."""


@contextmanager
def hub_upload(repo_id: str, hint: str = "", **kind: Any) -> Iterator[Any]:
    """The hub's API, for uploads to ``repo_id``. A repository that does not exist yet is made, and is private.

    ``kind``: its ``repo_type``. A failure is a ``SetupError`` of one line that ends with ``hint``.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo_id, private=True, exist_ok=True, **kind)
        yield api
    except (*hub_errors(), ValueError) as error:  # ValueError: a name that the hub refuses
        raise SetupError(f"--push_to_hub {repo_id}: {first_line(error)}{hint}") from None
