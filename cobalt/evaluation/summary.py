"""From scores to the numbers of a report. Pure; every number is a mapping ready for JSON.

Per turn: Pass@1 and Pass@k with intervals over problems, change relative to turn 0, P(solved at t+1 | unsolved at t),
share of repeated programs. Turn t = number of feedbacks seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from cobalt.evaluation.scores import ProblemScores
from cobalt.records import id_key
from cobalt.statistics import mean_estimate, pass_at_k, ratio_estimate

GAIN_TO_TURN = 3  # as many feedbacks as training contexts hold
Numbers = dict[str, Any]
NOTHING: Numbers = {"value": None, "low": None, "high": None}
"""The estimate of what was not measured."""


def summarise(problems: Sequence[ProblemScores]) -> Numbers:
    """All numbers of one evaluated file."""
    scored = [problem for problem in problems if problem.solved_NT]
    turns = max((problem.turns for problem in scored), default=0)
    samples = max((len(problem.solved_NT) for problem in scored), default=0)
    return {
        "problems": len(problems),
        "problems_without_samples": len(problems) - len(scored),
        "samples": sum(len(problem.solved_NT) for problem in scored),
        "excluded_infra": sum(problem.excluded for problem in problems),
        "turns": turns,
        "pass_at_1": pass_at_1(scored, turns),
        "pass_at_k": {str(k): _pass_at_k(scored, turns, k) for k in _ks(samples)},
        "gain": gain(scored, turns),
        "solved_after_unsolved": [_solved_after_unsolved(scored, turn) for turn in range(1, turns)],
        "repeats": [_repeats(scored, turn) for turn in range(1, turns)],
        "by_difficulty": _breakdown(scored, turns, lambda problem: problem.difficulty),
        "by_platform": _breakdown(scored, turns, lambda problem: problem.platform),
    }


def _ks(samples: int) -> list[int]:
    """1, 2, 4, ... and the number of samples itself."""
    powers = [1 << power for power in range(samples.bit_length()) if 1 << power <= samples]
    return sorted({*powers, samples} - {0})


def _rate(problem: ProblemScores, turn: int, k: int = 1) -> float:
    solved = problem.solved_at(turn)
    return pass_at_k(len(solved), sum(solved), k)


def _at(problems: Sequence[ProblemScores], turn: int, k: int = 1) -> list[ProblemScores]:
    """Problems that have turn ``turn`` and at least k samples."""
    return [problem for problem in problems if problem.turns > turn and len(problem.solved_NT) >= k]


def pass_at_1(problems: Sequence[ProblemScores], turns: int) -> list[Numbers]:
    """Pass@1 per turn, with the change relative to turn 0 (None where turn 0 is 0)."""
    rows = _pass_at_k(problems, turns, 1)
    for row in rows:
        first = rows[0]["value"]
        row["relative_change"] = row["value"] / first - 1 if first else None
    return rows


def _pass_at_k(problems: Sequence[ProblemScores], turns: int, k: int) -> list[Numbers]:
    rows = []
    for turn in range(turns):
        there = _at(problems, turn, k)
        rows.append({"turn": turn, **_mean([_rate(problem, turn, k) for problem in there]), "problems": len(there)})
    return rows


def _mean(values_P: Sequence[float]) -> Numbers:
    return asdict(mean_estimate(values_P)) if values_P else NOTHING


def gain(problems: Sequence[ProblemScores], turns: int) -> Numbers | None:
    """Pass@1 at turn 3 (or the last one before) minus at turn 0; None with a single turn."""
    last = min(GAIN_TO_TURN, turns - 1)
    if last < 1:
        return None
    estimate = mean_estimate([_rate(problem, last) - _rate(problem, 0) for problem in _at(problems, last)])
    return {"from_turn": 0, "to_turn": last, **asdict(estimate)}


def _share(problems: Sequence[ProblemScores], counts: Callable[[ProblemScores], tuple[int, int]]) -> Numbers:
    """Part of a whole, both counted per problem; ``value`` None where the whole is empty."""
    counted = [counts(problem) for problem in problems]
    whole = sum(whole for _, whole in counted)
    if not whole:
        return {**NOTHING, "count": 0}
    return {**asdict(ratio_estimate([part for part, _ in counted], [whole for _, whole in counted])), "count": whole}


def _solved_after_unsolved(problems: Sequence[ProblemScores], turn: int) -> Numbers:
    def counts(problem: ProblemScores) -> tuple[int, int]:
        unsolved = [solved for solved in problem.solved_NT if not solved[turn - 1]]
        return sum(solved[turn] for solved in unsolved), len(unsolved)

    return {"turn": turn, **_share(_at(problems, turn), counts)}


def _repeats(problems: Sequence[ProblemScores], turn: int) -> Numbers:
    def among_all(problem: ProblemScores) -> tuple[int, int]:
        return sum(repeats[turn] for repeats in problem.repeats_NT), len(problem.repeats_NT)

    def among_failed(problem: ProblemScores) -> tuple[int, int]:
        failed = [
            repeats[turn]
            for solved, repeats in zip(problem.solved_NT, problem.repeats_NT, strict=True)
            if not solved[turn - 1]
        ]
        return sum(failed), len(failed)

    there = _at(problems, turn)
    return {"turn": turn, "all": _share(there, among_all), "after_failure": _share(there, among_failed)}


def _breakdown(
    problems: Sequence[ProblemScores], turns: int, key: Callable[[ProblemScores], str]
) -> dict[str, list[Numbers]]:
    groups: dict[str, list[ProblemScores]] = {}
    for problem in problems:
        groups.setdefault(key(problem), []).append(problem)
    return {name: _pass_at_k(groups[name], turns, 1) for name in sorted(groups)}


def compare(ours: Sequence[ProblemScores], others: Sequence[ProblemScores]) -> Numbers:
    """Differences (ours − other) on the problems that both have, paired by id."""
    by_id = {id_key(problem.id): problem for problem in others if problem.solved_NT}
    pairs = [(ours_, by_id[id_key(ours_.id)]) for ours_ in ours if ours_.solved_NT and id_key(ours_.id) in by_id]
    turns = min((min(a.turns, b.turns) for a, b in pairs), default=0)
    rows = []
    for turn in range(turns):
        differences = [_rate(a, turn) - _rate(b, turn) for a, b in pairs]
        rows.append({"turn": turn, **asdict(mean_estimate(differences))})
    return {"problems": len(pairs), "unpaired": len(ours) + len(others) - 2 * len(pairs), "pass_at_1": rows}
