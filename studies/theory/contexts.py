"""The trajectories that a measurement starts from: the reference's and the policy's own, paired by problem. Pure.

Both files are outputs of ``eval_multi_turn.py``. Trajectories with an infrastructure failure are left out. A *side*
says whose conversation a context is from: that of the reference or the policy's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cobalt.bandit.evaluated import (
    EVALUATED_FIELDS,
    MESSAGES_PER_TURN,
    OPENING_MESSAGES,
    EvaluatedProblem,
    parse_problem,
)
from cobalt.completion import Message
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
class Trajectories:
    """A problem's trajectories by one policy; ``num_turns`` T of each, the first included."""

    problem: EvaluatedProblem
    num_turns: int
    row_hash: str

    def contexts(self, num_turns: int) -> list[list[Message]]:
        """What was shown before each of the first ``num_turns`` turns, trajectory by trajectory."""
        return [
            [dict(message) for message in trajectory.conversation[: OPENING_MESSAGES + MESSAGES_PER_TURN * turn]]
            for trajectory in self.problem.trajectories
            for turn in range(num_turns)
        ]

    def pass_rates(self, num_turns: int) -> Rates:
        """Of the first ``num_turns`` turns."""
        return [list(trajectory.pass_rates_T[:num_turns]) for trajectory in self.problem.trajectories]


@dataclass(frozen=True)
class PairedProblem:
    """One problem: the reference's trajectories, which give the bandit its contexts, and the policy's own."""

    reference: Trajectories
    own: Trajectories

    @property
    def id(self) -> Any:
        return self.reference.problem.id

    @property
    def sides(self) -> dict[str, Trajectories]:
        """By the name of the side."""
        return {REFERENCE: self.reference, OWN: self.own}

    @property
    def input_hash(self) -> str:
        """Changes with either row."""
        return row_hash({"reference": self.reference.row_hash, "own": self.own.row_hash})


@dataclass(frozen=True)
class PairedProblems:
    """Problems that both files hold, ``unpaired`` others, and the turns T that are measured."""

    problems: Sequence[PairedProblem]
    unpaired: int
    num_turns: int


def read_pairs(contexts: Path, own: Path, enable_thinking: bool) -> PairedProblems:
    """Read both files. T is that of the shorter conversations. Raises ``InputError``."""
    reference_of, own_of = (_read(path, enable_thinking) for path in (contexts, own))
    shared = [key for key in reference_of if key in own_of]
    if not shared:
        raise InputError.at(own, None, f"no valid trajectory of a problem in {contexts}")
    turns = min(next(iter(of.values())).num_turns for of in (reference_of, own_of))
    pairs = [PairedProblem(reference_of[key], own_of[key]) for key in shared]
    return PairedProblems(pairs, len(reference_of.keys() ^ own_of.keys()), turns)


def _read(path: Path, enable_thinking: bool) -> dict[str, Trajectories]:
    """By id; problems without a valid trajectory are left out."""
    parse = partial(_trajectories, enable_thinking=enable_thinking)
    found = [row for row in read_jsonl(path, EVALUATED_FIELDS, parse=parse) if row.problem.trajectories]
    for row in found:
        if row.num_turns != found[0].num_turns:
            raise InputError.at(
                path, None, f"problem {row.problem.id!r} has {row.num_turns} turns, others {found[0].num_turns}"
            )
    return {id_key(row.problem.id): row for row in found}


def _trajectories(row: Record, enable_thinking: bool) -> Trajectories:
    problem = parse_problem(row, hidden_only=True)
    responses_TN = raw_responses(row)
    for trajectory in problem.trajectories:
        answers = trajectory.conversation[OPENING_MESSAGES::MESSAGES_PER_TURN]
        for turn, answer in enumerate(answers):
            if history_text(responses_TN[turn][trajectory.index], enable_thinking) != answer["content"]:
                wanted = "without" if enable_thinking else "with"
                raise ValueError(f"problem {row['id']!r} was sampled {wanted} --enable_thinking")
    return Trajectories(problem, len(row["public_pass_rates"]), row_hash(row))
