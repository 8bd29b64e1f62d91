"""From scores to the report of one evaluated file: numbers, Markdown, JSON and a figure with Pass@1 per turn.

Per turn: what a user gets (the submitted program: the first that passes the feedback's tests, or else this turn's), the
tokens that it took; Pass@1 and Pass@k with intervals over problems, change relative to turn 0, shares of kept, repaired
and repeated programs. Turn t = number of feedbacks seen. Estimates are shares in [0, 1], or differences of shares.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cobalt.evaluation.files import ProblemScores, verdict_rule
from cobalt.figures import Curve, pass1_picture
from cobalt.records import id_key
from cobalt.records.jsonl import write_whole
from cobalt.statistics import Estimate, mean_estimate, pass_at_k, ratio_estimate
from cobalt.tables import PERCENT, in_percent, markdown_table, show

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
    """Part of a whole of ``count`` at one turn; ``estimate`` is None where the whole is empty."""

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
    submitted: list[TurnRate]
    """Pass@1 of the submitted program; empty where the file does not tell which that is."""
    tokens: list[float]
    """Mean over samples of the tokens sampled until then; empty where the file does not tell."""
    pass_at_1: list[PassAt1]
    pass_at_k: dict[int, list[TurnRate]]
    """By k, per turn."""
    gain: Gain | None
    """None with a single turn."""
    kept: list[Share]
    """From turn 1 on: P(solved at t | solved at t - 1)."""
    solved_after_unsolved: list[Share]
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
    submitted: list[Difference]
    """Empty where one of the files does not tell."""


def to_json(record: Summary | Comparison) -> dict[str, Any]:
    """The record as JSON holds it: ``value``, ``low`` and ``high`` of an estimate stand among the fields of its row."""

    def flat(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, value in fields:
            row |= (value or NOTHING) if name == "estimate" else {name: value}
        return row

    return asdict(record, dict_factory=flat)


def summarise(problems: Sequence[ProblemScores]) -> Summary:
    scored = [problem for problem in problems if problem.samples]
    turns = max((problem.turns for problem in scored), default=0)
    samples = max((problem.samples for problem in scored), default=0)
    ks = sorted({*(1 << power for power in range(samples.bit_length())), samples} - {0})  # 1, 2, 4, ... and all
    pass_at_k = {k: _by_turn(scored, turns, partial(_rate, k=k), k) for k in ks}

    pass_at_1: list[PassAt1] = []
    for rate in pass_at_k.get(1, []):
        assert rate.estimate is not None, "some problem has every turn"
        first = pass_at_1[0].estimate.value if pass_at_1 else rate.estimate.value
        change = rate.estimate.value / first - 1 if first else None
        pass_at_1.append(PassAt1(rate.turn, rate.estimate, rate.problems, change))

    gain, last = None, min(GAIN_TO_TURN, turns - 1)
    if last >= 1:
        gain = Gain(0, last, mean_estimate([_rate(p, last) - _rate(p, 0) for p in scored if p.turns > last]))
    submitted, tokens = [], []
    if all(problem.submitted_T is not None for problem in scored):
        submitted = _by_turn(scored, turns, _submitted_rate)
    if all(problem.tokens_T is not None for problem in scored):
        for turn in range(turns):
            there = [problem for problem in scored if problem.turns > turn]
            tokens.append(sum(p.tokens_T[turn] for p in there if p.tokens_T) / sum(p.samples for p in there))

    def shares(of: Callable[[ProblemScores, int], tuple[int, int]]) -> list[Share]:
        return [_share(turn, [of(p, turn) for p in scored if p.turns > turn]) for turn in range(1, turns)]

    def breakdown(group: str) -> dict[str, list[TurnRate]]:
        names = sorted({getattr(problem, group) for problem in scored})
        return {name: _by_turn([p for p in scored if getattr(p, group) == name], turns, _rate) for name in names}

    return Summary(
        problems=len(problems),
        problems_without_samples=len(problems) - len(scored),
        samples=sum(problem.samples for problem in scored),
        excluded_infra=sum(problem.excluded for problem in problems),
        turns=turns,
        submitted=submitted,
        tokens=tokens,
        pass_at_1=pass_at_1,
        pass_at_k=pass_at_k,
        gain=gain,
        kept=shares(lambda p, turn: (p.kept(turn), p.solved_T[turn - 1])),
        solved_after_unsolved=shares(lambda p, turn: (p.repaired_T[turn], p.unsolved_before(turn))),
        repeats=[repeats_at(scored, turn) for turn in range(1, turns)],
        by_difficulty=breakdown("difficulty"),
        by_platform=breakdown("platform"),
    )


def compare(ours: Sequence[ProblemScores], others: Sequence[ProblemScores], other: str) -> Comparison:
    """Differences (ours − others), paired by id; ``other`` names the others."""
    by_id = {id_key(problem.id): problem for problem in others if problem.samples}
    pairs = [(ours_, by_id[id_key(ours_.id)]) for ours_ in ours if ours_.samples and id_key(ours_.id) in by_id]
    turns = min((min(a.turns, b.turns) for a, b in pairs), default=0)

    def differences(rate: Callable[[ProblemScores, int], float]) -> list[Difference]:
        paired_TP = [[rate(a, turn) - rate(b, turn) for a, b in pairs] for turn in range(turns)]
        return [Difference(turn, mean_estimate(paired_P)) for turn, paired_P in enumerate(paired_TP)]

    both_tell = all(problem.submitted_T is not None for pair in pairs for problem in pair)
    submitted = differences(_submitted_rate) if both_tell else []
    return Comparison(other, len(pairs), len(ours) + len(others) - 2 * len(pairs), differences(_rate), submitted)


def repeats_at(problems: Sequence[ProblemScores], turn: int) -> Repeats:
    """``Repeats`` of a turn after the first."""
    there = [problem for problem in problems if problem.turns > turn and problem.samples]
    asked = [p.samples if p.asked_T is None else p.asked_T[turn] for p in there]
    failed = [p.unsolved_before(turn) if p.failed_asked_T is None else p.failed_asked_T[turn] for p in there]
    among_all = _share(turn, [*zip((p.repeats_T[turn] for p in there), asked, strict=True)])
    among_failed = _share(turn, [*zip((p.failed_repeats_T[turn] for p in there), failed, strict=True)])
    return Repeats(turn, among_all, among_failed)


def _rate(problem: ProblemScores, turn: int, k: int = 1) -> float:
    return pass_at_k(problem.samples, problem.solved_T[turn], k)


def _submitted_rate(problem: ProblemScores, turn: int) -> float:
    assert problem.submitted_T is not None
    return problem.submitted_T[turn] / problem.samples


def _by_turn(
    problems: Sequence[ProblemScores], turns: int, rate: Callable[[ProblemScores, int], float], samples: int = 1
) -> list[TurnRate]:
    """Over the problems that have so many samples."""
    there_T = [[p for p in problems if p.turns > turn and p.samples >= samples] for turn in range(turns)]
    return [
        TurnRate(turn, mean_estimate([rate(p, turn) for p in there]) if there else None, len(there))
        for turn, there in enumerate(there_T)
    ]


def _share(turn: int, counts: Sequence[tuple[int, int]]) -> Share:
    """Part of the whole over all problems, from both counts of each."""
    parts, wholes = [part for part, _ in counts], [whole for _, whole in counts]
    return Share(turn, ratio_estimate(parts, wholes) if sum(wholes) else None, sum(wholes))


def write_report(output: Path, execution: dict[str, Any], summary: Summary, compared: Comparison | None = None) -> str:
    """Write ``<output>.report.{md,json,png,svg}``; returns the Markdown.

    ``execution``: what decided the verdicts, as the execution service says it of itself.
    """
    compare_part = {"compare": to_json(compared)} if compared else {}
    numbers = {"file": output.name, "execution": execution, **to_json(summary), **compare_part}
    write_whole(output.with_name(f"{output.name}.report.json"), json.dumps(numbers, indent=2) + "\n")
    markdown = render_markdown(output.name, execution, summary, compared)
    write_whole(output.with_name(f"{output.name}.report.md"), markdown)
    curve = Curve(output.name, [in_percent(row.estimate) for row in summary.pass_at_1])
    pass1_picture(f"{output.name}.report", "Pass@1 by turn", curve, output.name).write(output.parent)
    return markdown


def render_markdown(
    file: str, execution: Mapping[str, Any], summary: Summary, compared: Comparison | None = None
) -> str:
    """All tables; Pass@1 and shares in percent, differences in points, with 95 % intervals over problems."""

    def percent(estimate: Estimate | None) -> str:
        return show(in_percent(estimate))

    def points(difference: Estimate) -> str:
        text = f"{PERCENT * difference.value:+.1f}"
        if difference.low is None or difference.high is None:
            return text
        return f"{text} [{PERCENT * difference.low:+.1f}, {PERCENT * difference.high:+.1f}]"

    def values(rates_T: Sequence[TurnRate]) -> list[str]:
        """The same in percent, without intervals."""
        return [percent(rate.estimate and replace(rate.estimate, low=None, high=None)) for rate in rates_T]

    def change(row: PassAt1) -> str:
        return "–" if row.relative_change is None else f"{PERCENT * row.relative_change:+.0f} %"

    shares = [[""] * 4] + [
        [
            percent(kept.estimate),
            percent(solved.estimate),
            percent(again.all.estimate),
            percent(again.after_failure.estimate),
        ]
        for kept, solved, again in zip(summary.kept, summary.solved_after_unsolved, summary.repeats, strict=True)
    ]
    by_turn = []
    for turn, (row, share) in enumerate(zip(summary.pass_at_1, shares, strict=False)):
        submitted = percent(summary.submitted[turn].estimate) if summary.submitted else "–"
        tokens = f"{summary.tokens[turn]:,.0f}" if summary.tokens else "–"
        by_turn.append([str(row.turn), submitted, tokens, percent(row.estimate), change(row), *share])
    headings = [
        "Turn",
        "submitted program",
        "tokens until then",
        "Pass@1",
        "vs turn 0",
        "kept",
        "repaired",
        "repeated program",
        "repeated, if it failed",
    ]
    parts = [
        f"# {file}",
        f"{summary.problems} problems, {summary.samples} samples, {summary.turns} turns; "
        f"{summary.excluded_infra} samples excluded after infrastructure failures. {verdict_rule(execution)} "
        "Turn t = number of feedbacks seen; 95 % bootstrap intervals over problems. The submitted program is the first "
        "that passes all tests of the feedback, or else this turn's. Kept and repaired: solved, of those solved and "
        "unsolved at the turn before. Repeated: of the conversations that have this turn.",
        markdown_table(headings, by_turn),
    ]
    if gain := summary.gain:
        parts.append(f"Gain from turn {gain.from_turn} to turn {gain.to_turn}: {points(gain.estimate)} points.")
    if compared:
        submitted = [points(row.estimate) for row in compared.submitted] or ["–"] * len(compared.pass_at_1)
        rows = [[str(row.turn), submitted[row.turn], points(row.estimate)] for row in compared.pass_at_1]
        parts.append(f"Difference to {compared.other} ({compared.problems} common problems), in points")
        parts.append(markdown_table(["Turn", "submitted program", "Pass@1"], rows))
    turns = [f"turn {turn}" for turn in range(summary.turns)]
    all_problems = summary.pass_at_1[0].problems if summary.pass_at_1 else 0
    rows = []
    for k, rates_T in summary.pass_at_k.items():
        some = rates_T[0].problems  # those with as many samples
        shown = f"Pass@{k}" if some == all_problems else f"Pass@{k} ({some} of {all_problems} problems)"
        rows.append([shown, *values(rates_T)])
    parts.append(markdown_table(["", *turns], rows))
    for title, groups in (("Difficulty", summary.by_difficulty), ("Platform", summary.by_platform)):
        rows = [[name, str(rates_T[0].problems), *values(rates_T)] for name, rates_T in groups.items()]
        parts.append(markdown_table([title, "problems", *turns], rows))
    return "\n\n".join(parts) + "\n"
