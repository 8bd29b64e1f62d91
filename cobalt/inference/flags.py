"""The flags of the inference commands."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro
from pydantic.dataclasses import dataclass

from cobalt.cli.flags import (
    AboveZero,
    CommandConfig,
    ExecutionConfig,
    InputFile,
    ModelName,
    NotNegative,
    NotNegativeFloat,
    NumCompletions,
    OptionalModelName,
    OutputFile,
    Positive,
    ReadConfig,
    TopP,
)
from cobalt.cli.prompt_flags import PromptsConfig
from cobalt.completion import Sampling
from cobalt.extraction import DEFAULT_RULE, Rule

ReasoningEffort = Annotated[str, tyro.conf.arg(aliases=["-r"])]


@dataclass(frozen=True, kw_only=True)
class InferenceRunConfig(ExecutionConfig, PromptsConfig, ReadConfig):
    """Flags of every inference command."""

    input_file: InputFile
    """Problems (JSONL); multi-turn: the output of a single-turn run, unless --from_scratch."""
    output_file: OutputFile
    """Records (JSONL); an unfinished or partly failed file is resumed."""
    num_completions: NumCompletions = 16
    """Samples per problem; with a single-turn file at most as many as it holds."""
    seed: int = 42
    """Seed of the run; each request's own seed is a hash of (seed, id, sample, turn)."""
    extraction: Rule = DEFAULT_RULE
    """How the program of a response is found: as `markdown` has it, or as the paper's release does."""

    multi_turn: ClassVar[bool] = False
    num_turns: ClassVar[int] = 0
    enable_thinking: ClassVar[bool] = False
    from_scratch: ClassVar[bool] = True
    feedback_tests: ClassVar[str] = "public"
    feedback_from: ClassVar[str] = "own"
    stop_at_success: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class MultiTurnConfig(CommandConfig):
    """Flags of the multi-turn commands."""

    multi_turn: ClassVar[bool] = True
    num_turns: NotNegative = 8
    """Turns after the first program: 8 to evaluate, 2 to collect training trajectories."""
    enable_thinking: bool = False
    """Keep only what follows the last `</think>` in the history, stripped, at most 6000 characters per response."""
    from_scratch: bool = False
    """Generate turn 0 as well, instead of taking it from a single-turn file."""
    feedback_tests: Literal["public", "perturbed"] = "public"
    """Which tests give the feedback."""
    feedback_from: Literal["own", "other_problem"] = "own"
    """`other_problem`: a control that shows another problem's feedback; gains from reading it must vanish."""
    stop_at_success: bool = False
    """End a conversation with the first program that passes all tests of the feedback, as a user would. It counts at
    every later turn."""


@dataclass(frozen=True, kw_only=True)
class OpenWeightConfig(CommandConfig):
    """Which open-weight engine answers, and how it samples."""

    engine: str = "vllm"
    """`vllm`: the server at --api_base; `hf`: the model at --model, in this process; FILE.py:NAME: your own."""
    model: OptionalModelName = None
    """Directory or hub name of the model, for --engine hf. With `vllm` the server must serve this one."""
    api_base: str | None = None
    """Address of the vLLM app, or of any OpenAI-compatible server. Default: COBALT_VLLM_URL in the environment, else
    http://127.0.0.1:8000/vllm_actor/v1."""
    max_in_flight: Positive | None = None
    """Most requests in flight; default: what the engine reports, or else as many as make it faster (64 at first)."""
    request_timeout_s: AboveZero = 1800
    """A request to the server without a whole answer after this many seconds is sent again."""
    temperature: NotNegativeFloat = Sampling.temperature
    """Sampling temperature; 0 takes the likeliest token."""
    top_p: TopP = Sampling.top_p
    """Sample from the likeliest tokens that have this probability together."""
    max_tokens: Positive = Sampling.max_tokens
    """Most tokens in one response."""
    batch_size: Positive = 128
    """Most sequences in one batch, with --engine hf."""
    fp32: bool = False
    """With --engine hf: sample in fp32. Otherwise it is bf16 on a GPU, and on a CPU fp64: there a response does not
    depend on its batch, at half the speed."""


@dataclass(frozen=True, kw_only=True)
class LitellmConfig(CommandConfig):
    """Which API answers, and how it samples. Keys are better given as environment variables."""

    model_name: ModelName = "gpt-5-mini-2025-08-07"
    """Model as LiteLLM names it: OpenAI, `bedrock/...`, or `openai/NAME` with --api_base for any compatible server."""
    api_base: str | None = None
    """Address of an OpenAI-compatible server."""
    reasoning_effort: ReasoningEffort = "medium"
    """Passed to models that take one."""
    temperature: NotNegativeFloat = 1.0
    """Sampling temperature, for models that take one."""
    top_p: TopP = 1.0
    """Sample from the likeliest tokens that have this probability together, for models that take one."""
    max_tokens: Positive = 32000
    """Most tokens in one response, reasoning included."""
    max_in_flight: Positive | None = None
    """Most requests in flight; default: 64."""
    request_timeout_s: AboveZero = 1800
    """A request without a whole answer after this many seconds is sent again."""
    openai_api_key: str | None = None
    """Key of OpenAI or of the server at --api_base; better in the environment: OPENAI_API_KEY."""
    aws_access_key_id: str | None = None
    """For Bedrock; better in the environment: AWS_ACCESS_KEY_ID."""
    aws_secret_access_key: str | None = None
    """For Bedrock; better in the environment: AWS_SECRET_ACCESS_KEY."""
    aws_region_name: str | None = None
    """For Bedrock, such as us-west-2; or AWS_REGION_NAME in the environment."""


@dataclass(frozen=True, kw_only=True)
class SingleTurnOpenWeightConfig(OpenWeightConfig, InferenceRunConfig):
    """Sample programs from an open-weight model and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnOpenWeightConfig(OpenWeightConfig, MultiTurnConfig, InferenceRunConfig):
    """Let an open-weight model repair its programs over turns, from execution feedback."""


@dataclass(frozen=True, kw_only=True)
class SingleTurnLitellmConfig(LitellmConfig, InferenceRunConfig):
    """Sample programs from a model behind an API and run them on all tests."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnLitellmConfig(LitellmConfig, MultiTurnConfig, InferenceRunConfig):
    """Let a model behind an API repair its programs over turns, from execution feedback."""


@dataclass(frozen=True, kw_only=True)
class SolveConfig(OpenWeightConfig, PromptsConfig):
    """Let a model write a program and repair it, turn by turn, until it passes the tests that it sees.

    Prints the submitted program, and on stderr how it came about. The first program that passes is submitted, or else
    the last one. Exits with 1 if it does not pass all tests.
    """

    problem: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM")]
    """The statement, as a text file or `-` (stdin), or a row of a problems file: FILE.jsonl:ID."""
    tests: Path | None = None
    """JSON file of the tests whose feedback the model sees (docs/formats.md). A row has its own: the public ones give
    feedback, the hidden ones judge."""
    turns: NotNegative = 3
    """Most turns after the first program."""
    seed: int = 42
    """Seed of the run; each request's own seed is a hash of it and of the turn."""
    checker: str | None = None
    """How outputs are compared, as in the other commands."""
    enable_thinking: bool = False
    """Keep only what follows the last `</think>` in the history, as the multi-turn commands do."""
    extraction: Rule = DEFAULT_RULE
    """How the program of a response is found: as `markdown` has it, or as the paper's release does."""


InferenceConfig = (
    SingleTurnOpenWeightConfig | MultiTurnOpenWeightConfig | SingleTurnLitellmConfig | MultiTurnLitellmConfig
)
