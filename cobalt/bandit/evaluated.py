"""Reading one evaluated problem: n trajectories of T turns with their pass rates (docs/formats.md, "Evaluation").

Accepts this project's evaluation files and the released trajectory files alike. Within a problem all arrays must agree
on n and T; anything else is a ``ValueError`` that names the id and the field. A trajectory with a null rate (an
infrastructure failure) carries no verdict and is left out; its conversation may end early.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MinLen

from cobalt.records.jsonl import Record
from cobalt.records.rows import Rates, Tests, Trajectories

EVALUATED_FIELDS = ("id", "test_cases", "public_test_cases", "conversations", "public_pass_rates", "all_pass_rates")
OPENING_ROLES = ("system", "user")
TURN_ROLES = ("assistant", "user")
OPENING_MESSAGES = len(OPENING_ROLES)
MESSAGES_PER_TURN = len(TURN_ROLES)

Conversation = Sequence[Mapping[str, str]]


class EvaluatedRow(Trajectories):
    """What is read of a row. ``exec_results``: the single-turn results, if there are any."""

    test_cases: Tests
    public_test_cases: Tests
    public_pass_rates: Annotated[Rates, MinLen(1)]
    all_pass_rates: Rates
    clean_public_pass_rates: Rates | None = None
    exec_results: Any = None


@dataclass(frozen=True)
class Trajectory:
    """One trajectory: ``index`` in the file, its conversation and its pass rate on all tests after each turn."""

    index: int
    conversation: Conversation
    pass_rates_T: tuple[float, ...]
    first_solved: bool | None = None
    """Whether the single-turn run saw the first program pass all tests; None: the row does not say."""

    @property
    def solved_at_once(self) -> bool:
        """Whether the single-turn run solved it. It judged the whole response; the history may lack its end."""
        return self.pass_rates_T[0] == 1 if self.first_solved is None else self.first_solved

    @property
    def spread(self) -> float:
        """max − min pass rate over all turns: d of the down-sampling."""
        return max(self.pass_rates_T) - min(self.pass_rates_T)


@dataclass(frozen=True)
class EvaluatedProblem:
    """One problem with its valid trajectories, in file order; ``infra_dropped`` others had a null rate."""

    id: Any
    difficulty: Any
    test_cases: str
    source: Any
    trajectories: tuple[Trajectory, ...]
    infra_dropped: int
    perturbed: bool = False
    """The trajectories were shown wrong feedback."""


def combined_pass_rate(hidden: float, public: float, num_tests: int, num_public: int) -> float:
    """(hidden·(N−P) + public·P)/N, with counts of passed tests freed from floating-point noise.

    >>> combined_pass_rate(hidden=0.5, public=1.0, num_tests=20, num_public=4)
    0.6
    """
    counts = hidden * (num_tests - num_public), public * num_public
    # 15/22·22 is 14.999999999999998 in floats: a whole number of tests is meant.
    passed = [round(count) if math.isclose(count, round(count), abs_tol=1e-9) else count for count in counts]
    return sum(passed) / num_tests


def parse_problem(row: Record, perturbed: bool = False, hidden_only: bool = False) -> EvaluatedProblem:
    """Check one row and compute its pass rates.

    With ``perturbed`` the feedback came from perturbed tests: the public rates are then ``clean_public_pass_rates``.
    With ``hidden_only`` public tests do not count: pass rates and ``test_cases`` are those of the hidden ones.
    Raises ``ValueError`` naming id and field for ragged arrays, rates outside [0, 1], unusable tests or none, and
    feedback of another kind.
    """
    try:
        # Labels that tell of other feedback are refused; released files carry no labels.
        shown = "perturbed" if perturbed else "public"
        if row.get("feedback_tests", shown) != shown:
            raise ValueError(f"'feedback_tests' is {row['feedback_tests']!r} where {shown!r} is expected")
        if row.get("feedback_from", "own") != "own":
            raise ValueError("'feedback_from' is not 'own': a control run, shown feedback to other programs")

        read = EvaluatedRow.read(row)
        tests, public = read.test_cases, read.public_test_cases
        if len(public) >= len(tests):
            raise ValueError(
                f"field 'test_cases' has {len(tests)} tests, 'public_test_cases' {len(public)}: none is hidden"
            )
        public_field = "clean_public_pass_rates" if perturbed else "public_pass_rates"
        public_TN, hidden_NT = getattr(read, public_field), read.all_pass_rates
        if public_TN is None:
            raise ValueError(f"missing field '{public_field}' (run the hidden-test evaluation on this file first)")
        num_trajectories, num_turns = len(read.conversations), len(read.public_pass_rates)
        trajectories = []
        roles = [*OPENING_ROLES, *TURN_ROLES * num_turns]
        for i, conversation in enumerate(row["conversations"]):
            pairs_T = zip(hidden_NT[i], [public_N[i] for public_N in public_TN], strict=True)
            rates_T = tuple(
                on_hidden if hidden_only else combined_pass_rate(on_hidden, on_public, len(tests), len(public))
                for on_hidden, on_public in pairs_T
                if on_hidden is not None and on_public is not None
            )
            # An infrastructure failure may have ended a conversation early.
            is_complete, said = len(rates_T) == num_turns, [message["role"] for message in conversation]
            played = (len(said) - OPENING_MESSAGES) // MESSAGES_PER_TURN
            if read.stop_at_success and is_complete and played > 0:
                rates_T = rates_T[:played]  # there were no turns after it
            wanted = OPENING_MESSAGES + MESSAGES_PER_TURN * len(rates_T)
            if said != roles[: len(said)] or (is_complete and len(said) != wanted):
                raise ValueError(
                    f"field 'conversations'[{i}] has {len(said)} messages, but {num_turns} turns in "
                    f"'public_pass_rates' need {len(roles)}, of the roles {', '.join(roles)}"
                )
            if not is_complete:
                continue
            # The single-turn results tell whether the first program solved the problem.
            first_solved, results = None, None if hidden_only else read.exec_results
            if results is not None:
                result = results[i] if isinstance(results, list) and i < len(results) else None
                if not isinstance(result, dict) or not isinstance(result.get("passing"), list):
                    raise ValueError(f"field 'exec_results' holds no result of conversation {i}")
                if result.get("infra_error") is None:
                    first_solved = bool(result["passing"]) and all(result["passing"])
            trajectories.append(Trajectory(i, conversation, rates_T, first_solved))
    except ValueError as error:
        raise ValueError(f"problem {row['id']!r}: {error}") from None

    test_cases = row["test_cases"]
    if hidden_only:
        pairs = set(zip(public.inputs_K, public.outputs_K, strict=True))
        numbers = [k for k, pair in enumerate(zip(tests.inputs_K, tests.outputs_K, strict=True)) if pair not in pairs]
        if not numbers:
            raise ValueError(f"problem {row['id']!r}: no hidden test is left to score, each repeats a public one")
        test_cases = tests.select(numbers).to_json()
    return EvaluatedProblem(
        id=row["id"],
        difficulty=row.get("difficulty"),
        test_cases=test_cases,
        source=row.get("source"),
        trajectories=tuple(trajectories),
        infra_dropped=num_trajectories - len(trajectories),
        perturbed=perturbed,
    )
