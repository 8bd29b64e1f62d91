"""The trajectories that a measurement starts from: the reference's and the policy's own, paired by problem. Pure.

Both files are outputs of ``eval_multi_turn.py``. Trajectories with an infrastructure failure are left out. A *side*
says whose conversation a context is from: that of the reference or the policy's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cobalt.bandit.evaluated import (
    EVALUATED_FIELDS,
    MESSAGES_PER_TURN,
    OPENING_MESSAGES,
    Conversation,
    EvaluatedProblem,
    parse_problem,
)
from cobalt.errors import InputError
from cobalt.inference.conversation import history_text
from cobalt.records import id_key, read_jsonl, row_hash
from cobalt.records.jsonl import Record
from cobalt.records.rows import raw_responses

REFERENCE, OWN = "reference", "own"
SIDES = (REFERENCE, OWN)

Rates = list[list[float | None]]
"""Hidden-test pass rates ``[trajectory][turn]``; None: an infrastructure failure."""


@dataclass(frozen=True)
class PairedProblem:
    """One problem: the reference's trajectories, which give the bandit its contexts, and the policy's own."""

    id: Any
    test_cases: str
    contexts: Mapping[str, list[list[Conversation]]]
    """By side, ``[trajectory][turn]``: what was shown before the turn."""
    pass_rates: Mapping[str, Rates]
    """By side."""
    input_hash: str
    """Changes with either row."""


@dataclass(frozen=True)
class PairedProblems:
    """Problems that both files hold, ``unpaired`` others, and the turns T that are measured."""

    problems: Sequence[PairedProblem]
    unpaired: int
    num_turns: int


def read_pairs(contexts: Path, own: Path, enable_thinking: bool) -> PairedProblems:
    """Read both files. T is that of the shorter conversations. Raises ``InputError``."""
    rows = {side: _read(path, enable_thinking) for side, path in ((REFERENCE, contexts), (OWN, own))}
    shared = [key for key in rows[REFERENCE] if key in rows[OWN]]
    if not shared:
        raise InputError.at(own, None, f"no valid trajectory of a problem in {contexts}")
    turns = min(next(iter(of_side.values())).num_turns for of_side in rows.values())
    pairs = []
    for key in shared:
        found = {side: of_side[key] for side, of_side in rows.items()}
        problem = found[REFERENCE].problem
        shown = {
            side: [
                [played.conversation[: OPENING_MESSAGES + MESSAGES_PER_TURN * turn] for turn in range(turns)]
                for played in row.problem.trajectories
            ]
            for side, row in found.items()
        }
        rates: dict[str, Rates] = {
            side: [list(played.pass_rates_T[:turns]) for played in row.problem.trajectories]
            for side, row in found.items()
        }
        hashes = row_hash({side: row.row_hash for side, row in found.items()})
        pairs.append(PairedProblem(problem.id, problem.test_cases, shown, rates, hashes))
    return PairedProblems(pairs, len(rows[REFERENCE].keys() ^ rows[OWN].keys()), turns)


@dataclass(frozen=True)
class _Row:
    problem: EvaluatedProblem
    num_turns: int
    row_hash: str


def _read(path: Path, enable_thinking: bool) -> dict[str, _Row]:
    """By id; problems without a valid trajectory are left out."""

    def parse(row: Record) -> _Row:
        problem = parse_problem(row, hidden_only=True)
        responses_TN = raw_responses(row)
        for trajectory in problem.trajectories:
            for turn, answer in enumerate(trajectory.conversation[OPENING_MESSAGES::MESSAGES_PER_TURN]):
                if history_text(responses_TN[turn][trajectory.index], enable_thinking) != answer["content"]:
                    wanted = "without" if enable_thinking else "with"
                    raise ValueError(f"problem {row['id']!r} was sampled {wanted} --enable_thinking")
        return _Row(problem, len(row["public_pass_rates"]), row_hash(row))

    found = [row for row in read_jsonl(path, EVALUATED_FIELDS, parse=parse) if row.problem.trajectories]
    for row in found:
        if row.num_turns != found[0].num_turns:
            problem = f"problem {row.problem.id!r} has {row.num_turns} turns"
            raise InputError.at(path, None, f"{problem}, others {found[0].num_turns}")
    return {id_key(row.problem.id): row for row in found}
