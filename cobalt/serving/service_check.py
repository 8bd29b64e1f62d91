"""``cobalt service check``: exits with 0 if programs can be run, else says in one line why not."""

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic.dataclasses import dataclass

from cobalt.cli.flags import CommandConfig, ExecutorName
from cobalt.errors import InputError, SetupError
from cobalt.records import TestCases
from cobalt.sandbox.checkers import checker_identity
from cobalt.serving.app_settings import EvaluatorConfig, parse_arguments
from cobalt.serving.execution import open_execution_service
from cobalt.serving.handles import cluster_address

CODE = "print(int(input()) + 1)"
TESTS = TestCases(("1", "2"), ("2", "0"), checker="exact")
"""They name their checker, as a user's own one may not know what to make of them."""
EXPECTED = (True, False)


@dataclass(frozen=True, kw_only=True)
class ServiceCheckConfig(CommandConfig):
    """Run one small program on two tests, one right and one wrong; print what decides verdicts."""

    executor: ExecutorName = "serve"
    """Where programs run."""
    evaluator_args: str = ""
    """Arguments of the evaluator app, as for ``serve run``. An app with others for verdicts is refused (code 2)."""
    cluster_only: bool = False
    """Only ask whether a Ray cluster answers."""
    arguments_only: bool = False
    """Only check ``evaluator_args``."""


def check_service(executor: ExecutorName, **limits: Any) -> dict[str, Any]:
    """What decides verdicts there. Raises ``SetupError`` unless a program runs and is judged as it should be."""

    async def run_one() -> dict[str, Any]:
        async with open_execution_service(executor, **limits) as service:
            result = await service.run(CODE, TESTS)
            if result.passing != EXPECTED:
                reason = result.infra_error or result.verdicts
                raise SetupError(f"the execution service ({executor}) misjudges: {reason}")
            return await service.describe()

    return asyncio.run(run_one())


def parse_evaluator_args(text: str) -> dict[str, Any]:
    """The arguments that are given, by name. Raises ``InputError`` for those that the app would not take."""
    given = parse_arguments(text, EvaluatorConfig, "EVALUATOR_ARGS")
    return {**given, "checker": checker_identity(given["checker"])} if "checker" in given else given


def refuse_other_verdicts(running: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ``InputError`` if the running service decides verdicts by other settings than those that are wanted."""
    different = [name for name in running if name in wanted and running[name] != wanted[name]]
    if different:
        settings = ", ".join(f"{name}={running[name]}, not {wanted[name]}" for name in different)
        knobs = "EVALUATOR_ARGS, in training also reward.reward_kwargs"
        raise InputError(f"an evaluator is running with {settings}: stop it, or ask for what it has ({knobs})")


def main(config: ServiceCheckConfig) -> None:
    wanted = parse_evaluator_args(config.evaluator_args)
    if config.arguments_only:
        return
    if config.cluster_only:
        print(f"Ray cluster: {cluster_address()}")
        return
    running = check_service(config.executor)
    refuse_other_verdicts(running, wanted)
    print(f"execution service ({config.executor}): healthy; {', '.join(f'{k}={v}' for k, v in running.items())}")
