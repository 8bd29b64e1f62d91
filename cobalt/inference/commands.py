"""The four inference commands: their flags made into a plan and an engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, replace
from pkgutil import resolve_name

from cobalt.completion import Sampling
from cobalt.errors import InputError
from cobalt.inference.driver import MethodConfig
from cobalt.inference.engine import Engine
from cobalt.inference.flags import InferenceRunConfig, LitellmConfig, MultiTurnConfig, OpenWeightConfig
from cobalt.inference.litellm_api import ApiConfig, open_litellm_engine
from cobalt.inference.run import Plan, run_inference
from cobalt.inference.vllm_serve import open_vllm_engine
from cobalt.sampler.packages import refuse_missing_packages
from cobalt.sandbox.own_files import identity_of, is_own, load_own
from cobalt.serving.execution import open_execution_service

HUGGINGFACE = "cobalt.inference.huggingface:open_huggingface_engine"
"""By name, for it brings torch, which the other engines do not need."""
TESTS_FIELDS = {"public": "public_test_cases", "perturbed": "perturbed_public_test_cases"}


@dataclass(frozen=True, kw_only=True)
class SingleTurnVllmConfig(OpenWeightConfig, InferenceRunConfig):
    """Sample programs from an open-weight model and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnVllmConfig(OpenWeightConfig, MultiTurnConfig, InferenceRunConfig):
    """Let an open-weight model repair its programs over turns, from execution feedback."""


@dataclass(frozen=True, kw_only=True)
class SingleTurnLitellmConfig(LitellmConfig, InferenceRunConfig):
    """Sample programs from a model behind an API and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnLitellmConfig(LitellmConfig, MultiTurnConfig, InferenceRunConfig):
    """Let a model behind an API repair its programs over turns, from execution feedback."""


InferenceConfig = SingleTurnVllmConfig | MultiTurnVllmConfig | SingleTurnLitellmConfig | MultiTurnLitellmConfig


def main(flags: InferenceConfig) -> None:
    """Run one of the four commands."""
    service = open_execution_service(flags.executor, flags.checker)
    asyncio.run(run_inference(_plan(flags), service, _engine(flags)))


def _plan(flags: InferenceConfig) -> Plan:
    multi = flags if isinstance(flags, MultiTurnConfig) else None
    if multi is not None and multi.from_scratch and multi.feedback_from != "own":
        raise InputError("--feedback_from other_problem takes its feedback from a single-turn file: no --from_scratch")
    sampling = Sampling(flags.temperature, flags.top_p, flags.max_tokens)
    method = MethodConfig(sampling, flags.num_completions, flags.seed, multi_turn=multi is not None)
    if multi is not None:
        method = replace(
            method,
            num_turns=multi.num_turns,
            enable_thinking=multi.enable_thinking,
            feedback_tests=multi.feedback_tests,
            feedback_from=multi.feedback_from,
        )
    litellm = isinstance(flags, LitellmConfig)
    return Plan(
        command=f"run_{'multi' if multi else 'single'}_turn_{'litellm' if litellm else 'vllm'}",
        input_file=flags.input_file,
        output_file=flags.output_file,
        method=method,
        tests_field=TESTS_FIELDS[multi.feedback_tests] if multi else "test_cases",
        first_turn_from_file=multi is not None and not multi.from_scratch,
        max_infra_rate=flags.max_infra_rate,
        skip_invalid=flags.skip_invalid,
        engine_content=_engine_content(flags),
        flags=asdict(flags),
        prompts=flags.prompt_set([flags.input_file]),
        prompts_required=flags.prompts is not None,
    )


def _engine_content(flags: InferenceConfig) -> dict[str, str]:
    if isinstance(flags, LitellmConfig):
        return {"reasoning_effort": flags.reasoning_effort}
    return {"engine": identity_of(flags.engine)} if is_own(flags.engine) else {}


def _engine(flags: InferenceConfig) -> AbstractAsyncContextManager[Engine]:
    if isinstance(flags, LitellmConfig):
        return litellm_engine(flags, flags.max_in_flight)
    return _vllm_engine(flags, flags.max_in_flight)


def _vllm_engine(flags: OpenWeightConfig, max_in_flight: int | None) -> AbstractAsyncContextManager[Engine]:
    if flags.engine == "vllm":
        return open_vllm_engine(max_in_flight, flags.model)
    if is_own(flags.engine):
        return _own_engine(flags.engine, flags.model, max_in_flight)
    if flags.engine != "hf":
        raise InputError(f"--engine must be vllm, hf or FILE.py:NAME, not {flags.engine}")
    if flags.model is None:
        raise InputError("--engine hf needs --model")
    return huggingface_engine(flags.model, flags.batch_size, max_in_flight)


def huggingface_engine(model: str, batch_size: int, max_in_flight: int | None) -> AbstractAsyncContextManager[Engine]:
    """``model`` (directory or hub name) in this process. Raises ``SetupError`` without the packages for it."""
    refuse_missing_packages()
    return resolve_name(HUGGINGFACE)(model, batch_size, max_in_flight)


@asynccontextmanager
async def _own_engine(name: str, model: str | None, max_in_flight: int | None) -> AsyncIterator[Engine]:
    """The engine that the user's function or class makes of ``--model``; an asynchronous context manager is entered."""
    try:
        made = load_own(name)(model)
    except ValueError as error:
        raise InputError(f"--engine {name}: {error}") from error
    async with made if hasattr(made, "__aenter__") else nullcontext(made) as engine:
        missing = [part for part in ("model_id", "max_in_flight", "generate") if not hasattr(engine, part)]
        if missing:
            raise InputError(f"--engine {name}: what it makes has no {', '.join(missing)}")
        if max_in_flight is not None:
            engine.max_in_flight = max_in_flight
        yield engine


def litellm_engine(flags: LitellmConfig, max_in_flight: int | None) -> AbstractAsyncContextManager[Engine]:
    """The engine that the flags describe."""
    secrets = {
        "api_key": flags.openai_api_key,
        "aws_access_key_id": flags.aws_access_key_id,
        "aws_secret_access_key": flags.aws_secret_access_key,
        "aws_region_name": flags.aws_region_name,
    }
    model = ApiConfig(
        name=flags.model_name,
        reasoning_effort=flags.reasoning_effort,
        request_timeout_s=flags.request_timeout_s,
        api_base=flags.api_base,
        secrets={name: value for name, value in secrets.items() if value},
    )
    return open_litellm_engine(model, max_in_flight)
