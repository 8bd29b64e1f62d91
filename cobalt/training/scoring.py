"""The score of one response: extract the program, run it, sum the reward's parts.

``score`` is the core and knows nothing of veRL. ``compute_score`` has the signature that veRL gives to reward
functions, and one parameter more: ``batch``, which the reward manager fills. To change the reward, write a function of
the same signature that calls this one (docs/method.md).
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import dataclasses as pydantic_dataclasses

from cobalt.cli.flags import ExecutorName
from cobalt.errors import InfraError, InputError, SetupError
from cobalt.extraction import DEFAULT_RULE, Rule, extract_code
from cobalt.prompts import shown_input
from cobalt.rewards import (
    CountTokens,
    RewardConstants,
    RewardParts,
    Thinking,
    o200k_counter,
    penalised,
    training_reward,
    validation_reward,
)
from cobalt.rewards.dynamic_check import NO_EXPECTATION, compare, inputs_to_compare, observe
from cobalt.sandbox import ExecutionResult, Limits, TestCases
from cobalt.serving.app_settings import ExecutorConfig
from cobalt.serving.execution import ExecutionService, Runs, open_execution_service, ray_errors
from cobalt.serving.service_check import check_service, refuse_other_verdicts

Score = dict[str, float]
SCORE_NAMES = ("acc", "pass_rate", *(f"reward_{part.name}" for part in fields(RewardParts)))
"""The named parts that reach metrics and dumps, beside veRL's own ``score``."""
INFRA = "infra"
"""1 for a sample that the infrastructure failed to score, else 0."""
ARRIVED, SCORED = "arrived_at", "scored_at"
"""When a trajectory of training came to be scored, and when it was: seconds since the epoch."""
BATCH = "batch"
"""The parameter of a reward function by which the reward manager gives it the ``Batch``."""
NO_BATCH = (
    "the reward function got no batch: leave reward.reward_manager as it is in the recipe (veRL's cannot run it),"
    f" and where another function calls it, give that one a parameter '{BATCH}' to pass on"
)


def service_errors() -> tuple[type[Exception], ...]:
    """Errors that mean the execution service failed. We always catch them; veRL would treat them as bugs."""
    return InfraError, SetupError, *ray_errors()


class RewardSettings(BaseModel):
    """``reward.reward_kwargs``. All other keys are of ``ExecutorConfig``, or with the evaluator app ``Limits``."""

    model_config = ConfigDict(frozen=True, extra="allow")

    executor: ExecutorName = "serve"
    """Where programs run."""
    lengths: Literal["policy", "o200k_base"] = "policy"
    """Whose tokens the format part counts."""
    extraction: Rule = DEFAULT_RULE
    """How the program of a response is found, and its form read."""
    thinking: Literal["auto"] | Thinking = "auto"
    """Whether a well-formed response thinks. ``auto``: required of a policy that knows ``</think>``, else none."""
    require_end: bool = False
    """A response without an end token counts as one without a program."""
    max_in_flight: int = Field(512, ge=1)
    """Programs at the service at once. More would only wait there."""
    max_infra_rate: float = Field(0.25, ge=0, le=1)
    """Training ends when a larger share of samples could not be run (``cobalt.training.batch_scores.InfraGuard``)."""

    @property
    def limits(self) -> dict[str, Any]:
        """Of programs: those of a local executor, or those that the evaluator app must have."""
        return self.model_extra or {}

    @property
    def of_local(self) -> dict[str, Any]:
        """``limits``, if they are of an executor that is started here."""
        return self.limits if self.executor == "local" else {}

    @property
    def of_app(self) -> dict[str, Any]:
        """``limits``, if they are those that the evaluator app must have."""
        return self.limits if self.executor == "serve" else {}

    def open_service(self) -> AbstractAsyncContextManager[ExecutionService]:
        """Connect to the execution service. Waits for one that is starting again."""
        limits = {"max_in_flight": self.max_in_flight, **self.of_local}
        return open_execution_service(self.executor, patient=True, **limits)

    def check(self) -> None:
        """Before training: raise ``SetupError`` if programs cannot be run, or ``o200k_base`` cannot be loaded.

        ``InputError`` if the evaluator app has other limits.
        """
        if self.lengths == "o200k_base":
            o200k_counter()
        refuse_other_verdicts(check_service(self.executor, **self.of_local), self.of_app)

    @classmethod
    def read(cls, reward_kwargs: Mapping[str, Any]) -> "RewardSettings":
        """Raises ``InputError`` for a value of a wrong type or out of range, and for limits that nobody takes."""
        known = {**cls.model_fields, **ExecutorConfig.model_fields}
        try:
            settings = cls.model_validate(dict(reward_kwargs))
            ExecutorConfig.model_validate(settings.limits, strict=True)
        except ValidationError as error:
            raise InputError.of_setting(error, "reward.reward_kwargs.", known) from None
        if unknown := sorted(settings.of_app.keys() - {limit.name for limit in fields(Limits)}):
            raise InputError(
                f"reward.reward_kwargs.{unknown[0]}: a setting of executor=local. "
                "The evaluator app takes it when it is started (EVALUATOR_ARGS)"
            )
        return settings


def refuse_wrong_constants(constants: Mapping[str, Any]) -> None:
    """Raise ``InputError`` for a constant that ``RewardConstants`` does not have, or of a wrong type."""
    config = ConfigDict(extra="forbid", strict=True)
    known = pydantic_dataclasses.dataclass(RewardConstants, frozen=True, config=config)
    try:
        TypeAdapter(known).validate_json(json.dumps(constants))  # in which a tuple is a list, as in configurations
    except ValidationError as error:
        names = [part.name for part in fields(RewardConstants)]
        raise InputError.of_setting(error, "reward.custom_reward_function.reward_kwargs.", names) from None


@dataclass(frozen=True)
class Batch:
    """The batch of a response: what the reward needs beside the response itself."""

    programs: ExecutionService
    count_tokens: CountTokens
    validate: bool
    """Validation: the score is 1 iff all tests pass, else 0."""
    runs: Runs = field(default_factory=dict)
    """Results so far: equal programs of the batch run once."""

    async def execute(self, code: str, tests: str | TestCases) -> ExecutionResult:
        """Run a program on its tests (or their JSON). Raises ``InfraError`` where there is no verdict."""
        result = await self.programs.run(code, tests, self.runs)
        if result.infra_error is not None:
            raise InfraError(result.infra_error)
        return result


async def score(
    response: str, tests: str, extra_info: Mapping[str, Any], batch: Batch, constants: RewardConstants
) -> Score:
    """Named scores of ``response`` on ``tests`` (JSON); ``score`` is the reward.

    ``extra_info``: ``prev_best_pass_rate`` (missing or None: 0); ``conversation``: the messages answered, for the
    penalty ``constants.hard_coding`` (missing: none shown); ``finished`` False: the response was cut off and
    counts as one without a program (missing: True); ``extraction``: the rule that finds programs (missing: the
    default); ``thinking``: of a well-formed one (missing: required). Raises ``InfraError``.
    """
    rule: Rule = extra_info.get("extraction", DEFAULT_RULE)
    code = extract_code(response, rule) if extra_info.get("finished", True) else None
    pass_rate = (await batch.execute(code, tests)).pass_rate if code is not None else None
    prev_best = extra_info.get("prev_best_pass_rate")
    thinking: Thinking = extra_info.get("thinking", "required")
    parts = training_reward(response, pass_rate, prev_best, batch.count_tokens, constants, rule, thinking)
    penalty = {}
    if constants.hard_coding:
        conversation, fires = extra_info.get("conversation"), False
        if code is not None and conversation is not None and not batch.validate:
            fires = await changes_shown_answer_only(conversation, code, TestCases.parse(tests), batch, rule)
        penalty = {"reward_hard_coding": -constants.hard_coding * fires}
        parts = penalised(parts, constants.hard_coding * fires, constants)
    passed = validation_reward(pass_rate)
    return {
        "score": passed if batch.validate else parts.total,
        "acc": passed,
        "pass_rate": pass_rate or 0.0,
        **{f"reward_{name}": value for name, value in asdict(parts).items()},
        **penalty,
    }


async def changes_shown_answer_only(
    conversation: Sequence[Mapping[str, str]], code: str, tests: TestCases, batch: Batch, rule: Rule = DEFAULT_RULE
) -> bool:
    """Whether ``code`` differs from the conversation's last program on the test shown last, and there alone.

    Both programs run on the test shown, on its neighbours and on other inputs. The check does not
    need to know which tests are wrong: a right fix seldom changes one answer alone. False where the conversation shows
    no program or no expected output with its whole input, and where too few inputs say anything. Raises ``InfraError``.
    """
    previous = last_program(conversation, rule)
    shown = shown_input(conversation[-1])
    if previous is None or shown is None:
        return False
    others = inputs_to_compare([shown], shown, tests, random.Random(shown))
    observed = others.with_pairs((shown, *others.inputs_K), (NO_EXPECTATION, *others.outputs_K))
    before, after = await asyncio.gather(batch.execute(previous, observed), batch.execute(code, observed))
    check = compare(before, after, range(1, len(observed)))
    return check is not None and check.hard_coded and observe(before, 0) != observe(after, 0)


def last_program(conversation: Sequence[Mapping[str, str]], rule: Rule) -> str | None:
    """The program that the feedback at the end of a conversation is about; None where there is none."""
    return extract_code(conversation[-2]["content"], rule) if len(conversation) > 2 else None


def is_finished(response: Sequence[int], width: int, end_token: int) -> bool:
    """Whether the policy ended a response itself: it is shorter than it could be, or has an end token."""
    return len(response) < width or response[-1] == end_token


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    batch: Batch | None = None,
    **constants: Any,
) -> Awaitable[Score]:
    """The reward of a response, as veRL awaits it.

    ``constants``: any of ``RewardConstants`` (``reward.custom_reward_function.reward_kwargs``).

    Raises ``InputError`` without ``batch``: veRL's own managers never await what they are given.
    """
    if batch is None:
        raise InputError(NO_BATCH)
    return score(solution_str, ground_truth, extra_info or {}, batch, RewardConstants(**constants))
