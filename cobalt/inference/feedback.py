"""Which feedback a conversation is shown.

``own``: the feedback to its own program. ``other_problem``: a control. Problem i is shown, whatever its program did,
feedback that belongs to another problem: to one of that problem's first programs (sample (s + t) mod n, so that it
varies over turns). Gains that come from reading the feedback vanish under it. The donors are a seeded derangement.
"""

import random
from collections.abc import Sequence
from typing import Any, Protocol

from cobalt.errors import InfraError, InputError
from cobalt.extraction import extract_code
from cobalt.inference.conversation import Turn
from cobalt.inference.trajectories import ProblemRow
from cobalt.prompts import PromptSet, feedback_to_policy, with_feedback
from cobalt.records import id_key
from cobalt.serving.execution import ExecutionService, Runs


class FeedbackSource(Protocol):
    """Gives the text shown after turn ``number`` of sample ``sample``; raises ``InfraError``."""

    async def feedback(self, problem: ProblemRow, sample: int, number: int, turn: Turn) -> str: ...


class OwnFeedback:
    """The feedback to the conversation's own program."""

    def __init__(self, prompts: PromptSet):
        self._prompts = prompts

    async def feedback(self, problem: ProblemRow, sample: int, number: int, turn: Turn) -> str:
        return feedback_to_policy(turn.result, self._prompts)


def derangement(ids: Sequence[Any], seed: int) -> list[tuple[Any, Any]]:
    """Pairs (id, donor id): a random cycle through all ids, so that none is its own donor.

    >>> sorted(derangement(["a", "b"], 0))
    [('a', 'b'), ('b', 'a')]
    """
    if len(ids) < 2:
        raise InputError("--feedback_from other_problem needs at least two problems")
    cycle = random.Random(seed).sample(list(ids), len(ids))
    return list(zip(cycle, cycle[1:] + cycle[:1], strict=True))


class OtherProblemFeedback:
    """The control. Holds every problem of the input in memory."""

    def __init__(self, problems: Sequence[ProblemRow], seed: int, execution: ExecutionService, prompts: PromptSet):
        self._prompts = prompts
        by_id = {id_key(problem.id): problem for problem in problems}
        pairs = derangement([problem.id for problem in problems], seed)
        self._donors = {id_key(id_): by_id[id_key(donor)] for id_, donor in pairs}
        self._execution = execution
        self._runs: Runs = {}

    async def feedback(self, problem: ProblemRow, sample: int, number: int, turn: Turn) -> str:
        donor = self._donors[id_key(problem.id)]
        assert donor.first_responses_N is not None
        response = donor.first_responses_N[(sample + number) % len(donor.first_responses_N)]
        result = await self._execution.run(extract_code(response.text) if response else None, donor.tests, self._runs)
        if result.infra_error is not None:
            raise InfraError(f"feedback of problem {donor.id!r}: {result.infra_error}")
        return feedback_to_policy(with_feedback(result, donor.tests), self._prompts)
