"""The arguments of what runs programs. They have a file of their own, so that checking them needs no Ray."""

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cobalt.sandbox.checkers import known_checker
from cobalt.sandbox.confinement import resolve_mode
from cobalt.sandbox.limits import Limits
from cobalt.serving.app_settings import HttpConfig


class ExecutorConfig(BaseModel):
    """Arguments of an executor; the limits as in ``cobalt.sandbox.Limits``."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    workers: int | None = None
    """Sandboxes (per replica); default: one per core of the machine, if so many fit its memory."""
    checker: Annotated[str, AfterValidator(known_checker)] = "exact"
    """How outputs are compared: ``exact``, ``lcb``, or a function of your own: ``FILE.py:NAME``."""
    mode: Annotated[str, AfterValidator(resolve_mode)] = "auto"
    """``auto`` (the first that holds), ``namespaces`` or ``landlock``; ``A`` and ``B`` are aliases of these two."""
    cpu_limit_s: float = Limits.cpu_limit_s
    suite_cpu_limit_s: float = Limits.suite_cpu_limit_s
    wall_factor: float = Limits.wall_factor
    memory_limit_mb: int = Limits.memory_limit_mb
    output_limit_mb: int = Limits.output_limit_mb
    max_threads: int = Limits.max_threads
    max_open_files: int = Limits.max_open_files

    def limits(self) -> dict[str, Any]:
        return self.model_dump(include={field.name for field in fields(Limits)})


class HttpAppConfig(HttpConfig):
    """Arguments of HTTP in front of programs."""

    max_programs: int = Field(4096, ge=1)
    """Most programs of one request."""
    max_tests: int = Field(16384, ge=1)
    """Most tests of one request, over all its programs. This bounds the answer, too."""


class EvaluatorConfig(ExecutorConfig, HttpAppConfig):
    """Arguments of the app; the limits as in ``cobalt.sandbox.Limits``."""

    replicas: int = 1
    """Replicas; each is one executor."""
    num_cpus: float | None = None
    """CPUs that a replica reserves in Ray; default: its workers. 0 shares a small machine with other Ray work."""
