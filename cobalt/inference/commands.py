"""The four inference commands: their flags made into a plan and an engine."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from cobalt.errors import InputError
from cobalt.inference.driver import Method
from cobalt.inference.engine import Engine, Sampling
from cobalt.inference.flags import LitellmFlags, MultiTurnFlags, RunFlags, VllmFlags
from cobalt.inference.run import Plan, run_inference
from cobalt.serving.execution import open_execution_service

TESTS_FIELDS = {"public": "public_test_cases", "perturbed": "perturbed_public_test_cases"}


@dataclass(frozen=True, kw_only=True)
class SingleTurnVllm(VllmFlags, RunFlags):
    """Sample programs from an open-weight model and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnVllm(VllmFlags, MultiTurnFlags, RunFlags):
    """Let an open-weight model repair its programs over turns, from execution feedback."""


@dataclass(frozen=True, kw_only=True)
class SingleTurnLitellm(LitellmFlags, RunFlags):
    """Sample programs from a model behind an API and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnLitellm(LitellmFlags, MultiTurnFlags, RunFlags):
    """Let a model behind an API repair its programs over turns, from execution feedback."""


Flags = SingleTurnVllm | MultiTurnVllm | SingleTurnLitellm | MultiTurnLitellm


def main(flags: Flags) -> None:
    """Run one of the four commands."""
    asyncio.run(run_inference(_plan(flags), open_execution_service(flags.executor), _engine(flags)))


def _plan(flags: Flags) -> Plan:
    multi = flags if isinstance(flags, MultiTurnFlags) else None
    _check(flags, multi)
    sampling = Sampling(flags.temperature, flags.top_p, flags.max_tokens)
    method = Method(sampling, flags.num_completions, flags.seed, multi_turn=multi is not None)
    if multi is not None:
        method = replace(
            method,
            num_turns=multi.num_turns,
            enable_thinking=multi.enable_thinking,
            feedback_tests=multi.feedback_tests,
            feedback_from=multi.feedback_from,
        )
    litellm = isinstance(flags, LitellmFlags)
    return Plan(
        command=f"run_{'multi' if multi else 'single'}_turn_{'litellm' if litellm else 'vllm'}",
        input_file=flags.input_file,
        output_file=flags.output_file,
        method=method,
        tests_field=TESTS_FIELDS[multi.feedback_tests] if multi else "test_cases",
        first_turn_from_file=multi is not None and not multi.from_scratch,
        max_infra_rate=flags.max_infra_rate,
        skip_invalid=flags.skip_invalid,
        engine_content={"reasoning_effort": flags.reasoning_effort} if litellm else {},
        flags=asdict(flags),
    )


def _check(flags: Flags, multi: MultiTurnFlags | None) -> None:
    positive: dict[str, Any] = {"num_completions": flags.num_completions, "max_tokens": flags.max_tokens}
    if flags.max_in_flight is not None:
        positive["max_in_flight"] = flags.max_in_flight
    for name, value in positive.items():
        if value < 1:
            raise InputError(f"--{name} must be at least 1")
    if flags.temperature < 0 or not 0 < flags.top_p <= 1:
        raise InputError("--temperature must be at least 0 and --top_p in (0, 1]")
    if multi is not None and multi.num_turns < 0:
        raise InputError("--num_turns must be at least 0")
    if multi is not None and multi.from_scratch and multi.feedback_from != "own":
        raise InputError("--feedback_from other_problem takes its feedback from a single-turn file: no --from_scratch")


def _engine(flags: Flags) -> AbstractAsyncContextManager[Engine]:
    return litellm_engine(flags, flags.max_in_flight) if isinstance(flags, LitellmFlags) else _vllm_engine(flags)


def _vllm_engine(flags: SingleTurnVllm | MultiTurnVllm) -> AbstractAsyncContextManager[Engine]:
    from cobalt.inference.huggingface import open_huggingface_engine
    from cobalt.inference.vllm_serve import open_vllm_engine

    if flags.engine == "vllm":
        return open_vllm_engine(flags.max_in_flight, flags.model)
    if flags.model is None:
        raise InputError("--engine hf needs --model")
    return open_huggingface_engine(flags.model, flags.batch_size, flags.max_in_flight)


def litellm_engine(flags: LitellmFlags, max_in_flight: int | None) -> AbstractAsyncContextManager[Engine]:
    """The engine that the flags describe."""
    from cobalt.inference.litellm_api import ApiModel, open_litellm_engine

    secrets = {
        "api_key": flags.openai_api_key,
        "aws_access_key_id": flags.aws_access_key_id,
        "aws_secret_access_key": flags.aws_secret_access_key,
        "aws_region_name": flags.aws_region_name,
    }
    model = ApiModel(
        name=flags.model_name,
        reasoning_effort=flags.reasoning_effort,
        request_timeout_s=flags.request_timeout_s,
        api_base=flags.api_base,
        secrets={name: value for name, value in secrets.items() if value},
    )
    return open_litellm_engine(model, max_in_flight)
