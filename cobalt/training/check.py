"""``python -m cobalt.training.check``: whether programs can be run: exit code 0, or 3 and one line on why."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from cobalt.errors import SetupError
from cobalt.records import TestCases
from cobalt.serving.execution import open_execution_service

CODE = "print(int(input()) + 1)"
TESTS = TestCases(("1", "2"), ("2", "0"))
EXPECTED = (True, False)


@dataclass(frozen=True)
class CheckConfig:
    """Run one small program on two tests, one right and one wrong."""

    executor: Literal["serve", "local"] = "serve"
    """Where programs run."""


def check_service(executor: Literal["serve", "local"], **limits: Any) -> None:
    """Raise ``SetupError`` unless a program runs and is judged as it should be."""

    async def run_one() -> None:
        async with open_execution_service(executor, **limits) as service:
            result = await service.run(CODE, TESTS)
        if result.passing != EXPECTED:
            raise SetupError(f"the execution service ({executor}) misjudges: {result.infra_error or result.verdicts}")

    asyncio.run(run_one())


def main(config: CheckConfig) -> None:
    """See ``CheckConfig``."""
    check_service(config.executor)
    print(f"execution service ({config.executor}): healthy")


if __name__ == "__main__":
    from cobalt.cli import run

    run(CheckConfig, main)
