"""The rows of each kind of file, typed (docs/formats.md). The reader checks them once.

``read_rows`` yields them. ``row`` is the row as it stands in the file, with the fields that have no name here.
Shapes: N samples of one problem, T turns, the first included.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from annotated_types import Interval, MinLen
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from cobalt.errors import InputError
from cobalt.extraction import Rule
from cobalt.records.jsonl import Record, read_jsonl, refuse_half_characters
from cobalt.sandbox.checkers import usable_tests
from cobalt.sandbox.tests import TestCases

Tests = Annotated[TestCases, PlainValidator(usable_tests)]
Rate = Annotated[float, Interval(ge=0, le=1)]
Rates = list[list[Rate | None]]
"""Pass rates; None: a turn that was not taken, or an infrastructure failure."""
RULE_OF_OLD_FILES: Rule = "released"
"""How programs were found in files that do not say it: the release's, and those of earlier versions."""
LIVECODEBENCH = "livecodebench"
"""``source`` of its problems."""
TABLES_TN = ("public_pass_rates", "clean_public_pass_rates", "public_exec_results", "raw_responses", "usage")
TABLES = {**dict.fromkeys(TABLES_TN, "TN"), "all_pass_rates": "NT"}
"""The axes of the nested lists of a row with trajectories."""


class Message(TypedDict):
    """One message of a conversation."""

    role: str
    content: str


TokenCount = Annotated[int, Interval(ge=0, lt=2**53)]


class Usage(TypedDict, total=False):
    """What is read of the usage of one response."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    prompt_tokens: TokenCount
    completion_tokens: TokenCount


class Row(BaseModel):
    """What all rows have in common."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    id: Any
    _row: Record = PrivateAttr(default_factory=dict)

    @property
    def row(self) -> Record:
        """As it stands in the file."""
        return self._row

    @classmethod
    def read(cls, row: Record) -> Self:
        """The row, checked. Raises ``ValueError`` that names the field."""
        try:
            parsed = cls.model_validate(row)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = "".join(f"[{part!r}]" if place else f"field '{part}'" for place, part in enumerate(first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{field}: {message}" if field else message) from None
        parsed._row = row
        return parsed


R = TypeVar("R", bound=Row)


def read_rows(
    path: str | Path,
    kind: type[R],
    on_invalid: Callable[[InputError], None] | None = None,
    unique: str | None = "id",
) -> Iterator[R]:
    """The rows of a JSONL file, see ``read_jsonl``."""
    required = [field.alias or name for name, field in kind.model_fields.items() if field.is_required()]
    return read_jsonl(path, required, unique, kind.read, on_invalid)


class Prompt(Row):
    """A context, as ``process_multi_turn_taco.py`` writes it."""

    id: Any = Field(alias="example_id")
    conversation: Annotated[list[Message], MinLen(1)]

    @model_validator(mode="after")
    def _tokenizers_take_its_texts(self) -> Self:
        refuse_half_characters(*(value for _, value in self))
        return self


class Problem(Row):
    """A problem with its instruction and tests."""

    instruction: str
    test_cases: Tests
    public_test_cases: Tests
    hidden_test_cases: Tests
    perturbed_public_test_cases: Tests = None  # type: ignore[assignment]  # null is refused, to lack it is not

    @model_validator(mode="after")
    def _some_tests_are_hidden(self) -> Self:
        if len(self.public_test_cases) >= len(self.test_cases):
            raise ValueError("field 'public_test_cases' has as many tests as 'test_cases': none is hidden")
        return self


class SingleTurn(Problem):
    """A problem with its responses."""

    responses: Annotated[list[str], MinLen(1)]
    usage: list[Usage | None] | None = None
    """None instead of a usage: the engine failed. Released runs of vLLM have no usage."""
    exec_results: list[dict[str, Any]] = None  # type: ignore[assignment]  # null is refused, to lack it is not

    @field_validator("usage", mode="before")
    @classmethod
    def _has_one_turn(cls, usage: Any) -> Any:
        if isinstance(usage, list) and any(isinstance(turn, list) for turn in usage):
            raise ValueError("has several turns; wanted is a file of run_single_turn_*.py")
        return usage

    @model_validator(mode="after")
    def _each_response_has_its_usage_and_result(self) -> Self:
        for name in ("usage", "exec_results"):
            if (column := getattr(self, name)) is not None and len(column) != len(self.responses):
                raise ValueError(f"fields '{name}' and 'responses' differ in length")
        return self


class Trajectories(Row):
    """What all rows with trajectories of a problem have in common."""

    conversations: Annotated[list[list[Message]], MinLen(1)]
    raw_responses: list[list[str]] = None  # type: ignore[assignment]  # null is refused, to lack it is not
    """[T][N]; "" for a turn that was not taken. Released runs of APIs have none, see ``raw_responses``."""
    usage: list[list[Usage | None]] | None = None
    """[T][N]; null: not taken. Released runs of vLLM and imported trajectories have no usage."""
    feedback_tests: str | None = None
    """The tests that feedback came from, public or perturbed; released files do not say."""
    feedback_from: str | None = None
    """Whose programs got it, own or other_problem."""
    extraction: Rule = RULE_OF_OLD_FILES
    stop_at_success: bool = False
    """A conversation ends with the first program that passes the feedback's tests, which counts at the turns after."""

    @property
    def feedback(self) -> tuple[str | None, str | None]:
        """``feedback_tests`` and ``feedback_from``."""
        return self.feedback_tests, self.feedback_from

    @model_validator(mode="after")
    def _tables_have_all_turns_and_samples(self) -> Self:
        sizes = {"N": len(self.conversations)}
        for field, axes in TABLES.items():
            if (table := getattr(self, field, None)) is None:
                continue
            sizes.setdefault("T", len(table if axes == "TN" else next(iter(table), ())))
            outer, inner = (sizes[axis] for axis in axes)
            parts = [("", table, outer), *((f"[{i}]", part, inner) for i, part in enumerate(table))]
            for place, part, wanted in parts:
                if len(part) != wanted:
                    raise ValueError(f"field '{field}'{place} has {len(part)} entries where {wanted} are expected")
        return self


class MultiTurn(Trajectories):
    """Trajectories of a problem, ready for the hidden tests."""

    public_pass_rates: Annotated[Rates, MinLen(1)]
    """[T][N]"""
    hidden_test_cases: Tests
    public_test_cases: Tests = None  # type: ignore[assignment]  # null is refused, to lack it is not

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        for texts, *rates_T in zip(self.texts_N, *self.public_pass_rates, strict=True):
            taken = sum(rate is not None for rate in rates_T)
            if len(texts) > len(rates_T):
                raise ValueError("a conversation has more programs than 'public_pass_rates' has turns")
            if len(texts) < (min(taken, 1) if self.stop_at_success else taken):
                raise ValueError(f"a conversation has {len(texts)} programs, and 'public_pass_rates' {taken} for it")
        if self.is_perturbed and "public_test_cases" not in self.model_fields_set:
            raise ValueError("missing field 'public_test_cases'")
        return self

    @property
    def texts_N(self) -> list[list[str]]:
        """The responses as they stand in ``conversations``, for the turns that were taken."""
        return [responses_of(messages) for messages in self.conversations]

    @property
    def is_perturbed(self) -> bool:
        """Whether the feedback came from the perturbed public tests."""
        return self.feedback_tests == "perturbed"


class Evaluated(Trajectories):
    """Trajectories of a problem with the pass rates on its hidden tests."""

    all_pass_rates: list[Annotated[list[Rate | None], MinLen(1)]]
    """[N][T]"""
    public_pass_rates: Rates | None = None
    """[T][N] of the feedback's tests; released files may lack it."""
    difficulty: Any = None
    platform: Any = None


def responses_of(messages: list[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


def raw_responses(record: Mapping[str, Any]) -> list[list[str]]:
    """[T][N] ``raw_responses`` of a multi-turn record; "" for a turn that was not taken.

    Released runs of APIs have none: there the assistant messages count.
    """
    if "raw_responses" in record:
        return record["raw_responses"]
    texts_N = [responses_of(messages) for messages in record["conversations"]]
    turns = range(len(record["public_pass_rates"]))
    return [[texts[turn] if turn < len(texts) else "" for texts in texts_N] for turn in turns]
