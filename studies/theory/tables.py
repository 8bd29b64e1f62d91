"""The tables of ``cobalt theory report``: rewards in per cent of the turns, KL in nats; intervals are over problems."""

from collections.abc import Mapping, Sequence

import numpy as np

from cobalt.statistics import Estimate, mean_estimate
from cobalt.tables import PERCENT, Cell, Table, in_percent, show
from studies.theory.bounds import Bounds
from studies.theory.contexts import OWN, REFERENCE, SIDES
from studies.theory.failure_cost import continuations
from studies.theory.measures import Measures
from studies.theory.repair import repairs

SIDE_WORDS = {REFERENCE: "the reference's", OWN: "its own"}


def all_tables(policies: Sequence[Measures], bounds: Mapping[str, Bounds]) -> list[Table]:
    """In the order of the report; ``bounds`` by name of the policy."""
    return [
        gap_table(policies, bounds),
        bound_table(policies, bounds),
        turn_table(policies),
        distance_table(policies),
        failure_cost_table(policies),
        repair_table(policies),
    ]


def gap_table(policies: Sequence[Measures], bounds: Mapping[str, Bounds]) -> Table:
    """J beside J_step, and the constant that the bound would need."""
    rows: list[list[Cell]] = []
    for policy in policies:
        found = bounds[policy.name]
        objectives = (in_percent(estimate) for estimate in (found.multi_turn, found.stepwise, found.gap))
        constant = _in_columns(found.constant)
        rows.append([policy.name, policy.problems, policy.turns, *objectives, found.radius, *constant])
    columns = (
        "policy",
        "problems",
        "T",
        "J/T (%)",
        "J_step/T (%)",
        "gap (points)",
        "eta (nats)",
        *_columns("constant"),
    )
    note = (
        "gap = (J - J_step)/T. eta: the largest mean KL(policy||reference) of a turn. constant = (J - J_step)/"
        "(T sqrt(eta)): a bound c T sqrt(eta) holds for a policy if c is at least its absolute value; its interval is "
        "the gap's."
    )
    return Table("gap", "The two objectives", note, columns, rows)


def bound_table(policies: Sequence[Measures], bounds: Mapping[str, Bounds]) -> Table:
    """The gap beside what bounds it, from the sharpest to the paper's form."""
    rows: list[list[Cell]] = []
    for policy in policies:
        found = bounds[policy.name]
        cells = (in_percent(estimate) for estimate in (found.gap, found.shift, found.linear))
        rows.append(
            [policy.name, *cells, PERCENT * found.paper, PERCENT * found.scale, max(found.costs_T, default=0.0)]
        )
    columns = ("policy", "gap", "TV, shift", "TV, linear in T", "(2+C)sqrt(eta/2)", "sqrt(eta)", "C (turns)")
    worst = PERCENT * (1 - 1 / policies[0].turns)
    note = (
        f"All in points per turn: sqrt(eta) is T sqrt(eta) divided by T. No gap can exceed (T-1)/T, here {worst:.1f}: "
        "a bound above that says nothing. The first bound holds for the measured total variation; the other two take "
        "for C what failing costs the reference's trajectories on average, where the derivation wants the largest "
        "cost there is: estimates, no certificates."
    )
    return Table("bounds", "The gap and its bounds", note, columns, rows)


def turn_table(policies: Sequence[Measures]) -> Table:
    """Both objectives' terms, turn by turn."""
    rows: list[list[Cell]] = []
    for policy in policies:
        gap_PT = policy.own_PT - policy.step_PT
        so_far_PT = np.hstack([0 * gap_PT[:, :1], gap_PT[:, 1:].cumsum(axis=1)])
        for turn in range(policy.turns):
            columns_P = (table_PT[:, turn] for table_PT in (policy.own_PT, policy.step_PT, gap_PT, so_far_PT))
            rows.append([policy.name, turn, *(in_percent(mean_estimate(values.tolist())) for values in columns_P)])
    note = (
        "Share of programs that pass all hidden tests, in the policy's own play and on the reference's contexts. At "
        "turn 0 the contexts are the same: the difference must vanish within its interval, and J_step takes J's term. "
        "Gap so far: J - J_step of conversations that end with this turn, not divided by T."
    )
    columns = ("policy", "turn", "own (%)", "step (%)", "own - step", "gap so far")
    return Table("turns", "Turn by turn", note, columns, rows)


def distance_table(policies: Sequence[Measures]) -> Table:
    """KL and total variation to the reference, by turn and side."""
    rows: list[list[Cell]] = []
    for policy in policies:
        for side in SIDES:
            for turn in range(policy.turns):
                tables = (policy.kl_PT[side], policy.log_ratio_PT[side], policy.tv_PT[side])
                kl, log_ratio, tv = (mean_estimate(table[:, turn].tolist()) for table in tables)
                pinsker = PERCENT * (max(0.0, kl.value) / 2) ** 0.5
                cells = [*_in_columns(kl), *_in_columns(log_ratio), in_percent(tv), pinsker]
                rows.append([policy.name, SIDE_WORDS[side], turn, *cells])
    columns = ("policy", "contexts", "turn", *_columns("KL"), *_columns("log-ratio"), "TV (%)", "sqrt(KL/2) (%)")
    note = (
        "Of whole responses, sampled from the policy. KL and log-ratio estimate the same number without bias, the "
        "first with less noise (it adds up the KL of each next token). TV <= sqrt(KL/2) by Pinsker's inequality."
    )
    return Table("distance", "Distance to the reference", note, columns, rows)


def failure_cost_table(policies: Sequence[Measures]) -> Table:
    """What a failed program costs later, in each policy's own trajectories."""
    rows: list[list[Cell]] = []
    for policy in policies:
        for row in continuations(policy.own_solved):
            means = (row.after_pass, row.after_failure, row.cost)
            bests = (row.best_after_pass, row.best_after_failure, row.best_cost)
            cells = [in_percent(estimate) for estimate in (*means, *bests)]
            rows.append([policy.name, row.turn, row.turns_left, row.problems, *cells])
    columns = ("policy", "turn", "turns left", "problems", "after a pass", "after a failure", "cost")
    columns += ("best after a pass", "best after a failure", "cost, best")
    note = (
        "Pass rate over the turns left, in per cent. Of trajectories in which nothing passed before this turn: its "
        "program passed, or failed too; problems that have both. 'best': of as many trajectories as the smaller group "
        "has. The cost comes on top of the lost turn. The cost of a failure is bounded if cost times turns left is, "
        "whatever T is."
    )
    return Table("failure_cost", "What a failed program costs later", note, columns, rows)


def repair_table(policies: Sequence[Measures]) -> Table:
    """Policy and reference in the same contexts, those in which the reference had solved nothing yet."""
    rows: list[list[Cell]] = []
    for policy in policies:
        for row in repairs(policy):
            cells = [in_percent(estimate) for estimate in (row.policy, row.reference, row.difference)]
            rows.append([policy.name, row.turn, row.problems, row.contexts, *cells])
    columns = ("policy", "turn", "problems", "contexts", "policy (%)", "reference (%)", "policy - reference")
    note = (
        "Share of programs that pass all hidden tests in contexts that hold failed programs only, written by the "
        "reference. Policy and reference answer the same contexts, so neither meets harder failures than the other."
    )
    return Table("repair", "Repair on common failing contexts", note, columns, rows)


def in_words(found: Bounds) -> dict[str, str]:
    """For the summary of a measurement."""
    return {
        "J/T (%)": show(in_percent(found.multi_turn)),
        "J_step/T (%)": show(in_percent(found.stepwise)),
        "gap (points)": show(in_percent(found.gap)),
        "eta (nats)": show(found.radius),
        "constant": "–" if found.constant is None else show(found.constant.value),
    }


def _columns(name: str) -> tuple[str, str, str]:
    return name, f"{name} low", f"{name} high"


def _in_columns(estimate: Estimate | None) -> list[Cell]:
    """Value and bounds as numbers: estimates are shown to a decimal only."""
    return [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]
