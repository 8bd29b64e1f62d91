"""What decided the verdicts behind a pass rate, in one sentence for the reader of a report."""

from collections.abc import Iterable, Mapping
from typing import Any

from cobalt.evaluation.source import Source

NOT_RECORDED = "Checker and CPU limits are not recorded."


def verdict_rule(execution: Mapping[str, Any] | None) -> str:
    """From what the execution service says of itself; a suite limit decides many tests of slow programs."""
    if not execution:
        return NOT_RECORDED
    if "suite_cpu_limit_s" not in execution:
        return f"Checker `{execution['checker']}`; CPU limits are not recorded."
    return (
        f"Checker `{execution['checker']}`; `cpu_limit_s` {execution['cpu_limit_s']:g} CPU seconds per test, "
        f"`suite_cpu_limit_s` {execution['suite_cpu_limit_s']:g} for all tests of a program: later ones are not passed."
    )


def recorded_rule(sources: Iterable[Source]) -> str:
    """Of evaluated files; several sentences if they differ."""
    return " ".join(dict.fromkeys(verdict_rule(source.execution) for source in sources))
