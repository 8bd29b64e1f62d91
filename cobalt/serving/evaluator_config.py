"""The arguments of the evaluator app. They have a file of their own, so that checking them needs no Ray."""

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict

from cobalt.sandbox.checkers import known_checker
from cobalt.sandbox.confinement import resolve_mode
from cobalt.sandbox.limits import Limits
from cobalt.serving.app_settings import HttpConfig


class EvaluatorConfig(HttpConfig):
    """Arguments of the app; the limits as in ``cobalt.sandbox.Limits``."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    replicas: int = 1
    """Replicas; each is one executor."""
    workers: int | None = None
    """Sandboxes per replica; default: one per core of the machine that starts the app, if so many fit its memory."""
    num_cpus: float | None = None
    """CPUs that a replica reserves in Ray; default: its workers. 0 shares a small machine with other Ray work."""
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
        """The fields of ``Limits``."""
        return self.model_dump(include={field.name for field in fields(Limits)})
