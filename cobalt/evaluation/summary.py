"""From scores to the numbers of a report. Pure.

Per turn: Pass@1 and Pass@k with intervals over problems, change relative to turn 0, P(solved at t+1 | unsolved at t),
share of repeated programs. Turn t = number of feedbacks seen. Estimates are shares in [0, 1], or differences of shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cobalt.evaluation.scores import ProblemScores
from cobalt.records import id_key
from cobalt.statistics import Estimate, mean_estimate, pass_at_k, ratio_estimate

GAIN_TO_TURN = 3  # as many feedbacks as training contexts hold
NOTHING = {"value": None, "low": None, "high": None}
"""The JSON of an estimate of what was not measured."""


@dataclass(frozen=True)
class TurnRate:
    """Pass@k at one turn, over the problems that have this turn and at least k samples; None: there are none."""

    turn: int
    estimate: Estimate | None
    problems: int


@dataclass(frozen=True)
class PassAt1(TurnRate):
    """Pass@1 of all problems at one turn that at least one of them has."""

    estimate: Estimate
    relative_change: float | None
    """To turn 0; None where that is 0."""


@dataclass(frozen=True)
class Share:
    """Part of a whole of ``count``; ``estimate`` is None where the whole is empty."""

    estimate: Estimate | None
    count: int


@dataclass(frozen=True)
class TurnShare:
    """A ``Share`` at one turn."""

    turn: int
    estimate: Estimate | None
    count: int


@dataclass(frozen=True)
class Repeats:
    """Which programs of a turn are those of the turn before."""

    turn: int
    all: Share
    after_failure: Share
    """Of the programs that follow an unsolved turn."""


@dataclass(frozen=True)
class Gain:
    """Pass@1 at a later turn minus Pass@1 at turn 0."""

    from_turn: int
    to_turn: int
    estimate: Estimate


@dataclass(frozen=True)
class Summary:
    """All numbers of one evaluated file."""

    problems: int
    problems_without_samples: int
    """All of their samples met an infrastructure failure."""
    samples: int
    excluded_infra: int
    """Samples left out after an infrastructure failure."""
    turns: int
    """The first included; 0 if no sample is left."""
    pass_at_1: list[PassAt1]
    pass_at_k: dict[int, list[TurnRate]]
    """By k, per turn."""
    gain: Gain | None
    """None with a single turn."""
    solved_after_unsolved: list[TurnShare]
    """From turn 1 on: P(solved at t | unsolved at t - 1)."""
    repeats: list[Repeats]
    """From turn 1 on."""
    by_difficulty: dict[str, list[TurnRate]]
    """Pass@1 per turn of each group."""
    by_platform: dict[str, list[TurnRate]]


@dataclass(frozen=True)
class Difference:
    """Pass@1 of one file minus that of another at one turn."""

    turn: int
    estimate: Estimate


@dataclass(frozen=True)
class Comparison:
    """Differences on the problems that two files both have, paired by id."""

    other: str
    """Name of what was subtracted."""
    problems: int
    unpaired: int
    pass_at_1: list[Difference]


def to_json(record: Summary | Comparison) -> dict[str, Any]:
    """The record as JSON holds it: ``value``, ``low`` and ``high`` of an estimate stand among the fields of its row."""
    return asdict(record, dict_factory=_flat)


def _flat(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in fields:
        row |= (value or NOTHING) if name == "estimate" else {name: value}
    return row


def summarise(problems: Sequence[ProblemScores]) -> Summary:
    """All numbers of one evaluated file."""
    scored = [problem for problem in problems if problem.samples]
    turns = max((problem.turns for problem in scored), default=0)
    samples = max((problem.samples for problem in scored), default=0)
    pass_at_k = {k: _pass_at_k(scored, turns, k) for k in _ks(samples)}
    return Summary(
        problems=len(problems),
        problems_without_samples=len(problems) - len(scored),
        samples=sum(problem.samples for problem in scored),
        excluded_infra=sum(problem.excluded for problem in problems),
        turns=turns,
        pass_at_1=_pass_at_1(pass_at_k.get(1, [])),
        pass_at_k=pass_at_k,
        gain=_gain(scored, turns),
        solved_after_unsolved=[_solved_after_unsolved(scored, turn) for turn in range(1, turns)],
        repeats=[repeats_at(scored, turn) for turn in range(1, turns)],
        by_difficulty=_breakdown(scored, turns, lambda problem: problem.difficulty),
        by_platform=_breakdown(scored, turns, lambda problem: problem.platform),
    )


def compare(ours: Sequence[ProblemScores], others: Sequence[ProblemScores], other: str) -> Comparison:
    """Differences (ours − others), paired by id; ``other`` names the others."""
    by_id = {id_key(problem.id): problem for problem in others if problem.samples}
    pairs = [(ours_, by_id[id_key(ours_.id)]) for ours_ in ours if ours_.samples and id_key(ours_.id) in by_id]
    turns = min((min(a.turns, b.turns) for a, b in pairs), default=0)
    differences = [
        Difference(turn, mean_estimate([_rate(a, turn) - _rate(b, turn) for a, b in pairs])) for turn in range(turns)
    ]
    return Comparison(other, len(pairs), len(ours) + len(others) - 2 * len(pairs), differences)


def _ks(samples: int) -> list[int]:
    """1, 2, 4, ... and the number of samples itself."""
    powers = [1 << power for power in range(samples.bit_length()) if 1 << power <= samples]
    return sorted({*powers, samples} - {0})


def _rate(problem: ProblemScores, turn: int, k: int = 1) -> float:
    return pass_at_k(problem.samples, problem.solved_T[turn], k)


def _at(problems: Sequence[ProblemScores], turn: int, k: int = 1) -> list[ProblemScores]:
    """Problems that have turn ``turn`` and at least k samples."""
    return [problem for problem in problems if problem.turns > turn and problem.samples >= k]


def _pass_at_1(rates_T: Sequence[TurnRate]) -> list[PassAt1]:
    rows: list[PassAt1] = []
    for rate in rates_T:
        assert rate.estimate is not None, "some problem has every turn"
        first = rows[0].estimate.value if rows else rate.estimate.value
        change = rate.estimate.value / first - 1 if first else None
        rows.append(PassAt1(rate.turn, rate.estimate, rate.problems, change))
    return rows


def _pass_at_k(problems: Sequence[ProblemScores], turns: int, k: int) -> list[TurnRate]:
    rows = []
    for turn in range(turns):
        there = _at(problems, turn, k)
        estimate = mean_estimate([_rate(problem, turn, k) for problem in there]) if there else None
        rows.append(TurnRate(turn, estimate, len(there)))
    return rows


def _gain(problems: Sequence[ProblemScores], turns: int) -> Gain | None:
    """At turn ``GAIN_TO_TURN``, or the last one before."""
    last = min(GAIN_TO_TURN, turns - 1)
    if last < 1:
        return None
    there = _at(problems, last)
    return Gain(0, last, mean_estimate([_rate(problem, last) - _rate(problem, 0) for problem in there]))


def _share(problems: Sequence[ProblemScores], counts: Callable[[ProblemScores], tuple[int, int]]) -> Share:
    """``counts``: part and whole of one problem."""
    counted = [counts(problem) for problem in problems]
    whole = sum(whole for _, whole in counted)
    if not whole:
        return Share(None, 0)
    return Share(ratio_estimate([part for part, _ in counted], [whole for _, whole in counted]), whole)


def _solved_after_unsolved(problems: Sequence[ProblemScores], turn: int) -> TurnShare:
    def counts(problem: ProblemScores) -> tuple[int, int]:
        return problem.repaired_T[turn], problem.unsolved_before(turn)

    share = _share(_at(problems, turn), counts)
    return TurnShare(turn, share.estimate, share.count)


def repeats_at(problems: Sequence[ProblemScores], turn: int) -> Repeats:
    """Of a turn that is not the first."""

    def among_all(problem: ProblemScores) -> tuple[int, int]:
        return problem.repeats_T[turn], problem.samples

    def among_failed(problem: ProblemScores) -> tuple[int, int]:
        return problem.failed_repeats_T[turn], problem.unsolved_before(turn)

    there = _at(problems, turn)
    return Repeats(turn, _share(there, among_all), _share(there, among_failed))


def _breakdown(
    problems: Sequence[ProblemScores], turns: int, key: Callable[[ProblemScores], str]
) -> dict[str, list[TurnRate]]:
    groups: dict[str, list[ProblemScores]] = {}
    for problem in problems:
        groups.setdefault(key(problem), []).append(problem)
    return {name: _pass_at_k(groups[name], turns, 1) for name in sorted(groups)}
