"""The bounds hold where everything can be enumerated, one of them with equality; estimates come near exact values."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from toy import ACTIONS, Context, Policy, Toy, all_contexts, random_toy

from cobalt.errors import InputError
from cobalt.records import write_jsonl
from cobalt.statistics import Estimate
from research.theory.bound import (
    OWN,
    REFERENCE,
    bounds_of,
    linear_terms,
    radius,
    read_measures,
    shift_weights,
    total_variation,
)  # fmt: skip


def gap(toy: Toy) -> float:
    own, step = toy.objective(toy.policy, toy.policy), toy.objective(toy.reference, toy.policy)
    return float(own.sum() - step.sum())


@pytest.mark.parametrize("difference", [0.05, 0.5, 3.0])
def test_the_bounds_hold(difference: float) -> None:
    for seed in range(40):
        toy = random_toy(seed, difference=difference)
        on_reference, on_own = (np.array([toy.tv_T(visitor)]) for visitor in (toy.reference, toy.policy))
        costs = toy.costs_T()
        eta = radius([toy.kl_T(toy.reference), toy.kl_T(toy.policy)])
        shift = float(on_reference[0] @ shift_weights(toy.turns))
        linear = float(linear_terms(on_reference, on_own, costs)[0])
        assert 0 < abs(gap(toy)) <= min(shift, linear) + 1e-12
        assert linear <= (2 + max(costs)) * toy.turns * math.sqrt(eta / 2)
    toy = random_toy(3, turns=1)
    tv = np.array([toy.tv_T(toy.reference)])
    assert gap(toy) == 0 == tv[0] @ shift_weights(1) == linear_terms(tv, tv, toy.costs_T())[0]


def test_the_shift_bound_can_be_attained() -> None:
    """The first action decides all later rewards."""
    toy = random_toy(0)
    rewards = {context: np.full(ACTIONS, float(context[:1] == (0,))) for context in toy.rewards}
    first = {(): np.array([0.2, 0.4, 0.4])}
    decided = Toy(toy.turns, rewards, {**toy.reference, (): np.array([0.7, 0.2, 0.1])}, {**toy.reference, **first})
    bound = decided.tv_T(decided.reference) @ shift_weights(decided.turns)
    assert gap(decided) == pytest.approx(bound) == pytest.approx(1.0)


def test_an_optimal_policy_that_recovers_at_once_does_not_make_the_gap_linear() -> None:
    """The right action is the same in every context, so A* = r - 1; a reference that repeats itself is what costs."""
    right, wrong, small = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]), 1e-4
    gaps = []
    for turns in (2, 4, 6):
        of_contexts = all_contexts(turns)
        reference = {context: np.eye(ACTIONS)[context[-1]] if context else wrong for context in of_contexts}
        policy = {context: (1 - small) * reference[context] + small * right for context in of_contexts}
        toy = Toy(turns, dict.fromkeys(of_contexts, right), policy, reference)
        gaps.append(gap(toy) / small)
        assert gap(toy) == pytest.approx(toy.tv_T(reference) @ shift_weights(turns), rel=1e-2)
        assert max(toy.costs_T()) == turns - 1
    assert gaps == pytest.approx([1, 6, 15], rel=1e-2)


def record(toy: Toy, id_: int, samples: int, rng: np.random.Generator) -> dict:
    """What ``python -m research theory measure`` writes of one problem."""
    turns = range(toy.turns)

    def draw(context: Context, policy: Policy) -> int:
        return int(rng.choice(ACTIONS, p=policy[context]))

    def play(policy: Policy) -> Context:
        context: Context = ()
        for _ in turns:
            context = (*context, draw(context, policy))
        return context

    played = {side: [play(of) for _ in range(samples)] for side, of in ((REFERENCE, toy.reference), (OWN, toy.policy))}
    # Contexts, and a fresh answer of the policy to each.
    fresh = {
        side: [[(actions[:turn], draw(actions[:turn], toy.policy)) for turn in turns] for actions in of]
        for side, of in played.items()
    }

    def rates(actions: Context) -> list[float]:
        return [float(toy.rewards[actions[:turn]][actions[turn]]) for turn in turns]

    def by_side(value) -> dict[str, list[list[float]]]:
        return {side: [[value(*pair) for pair in row] for row in of] for side, of in fresh.items()}

    return {
        "id": id_,
        "own_pass_rates": [rates(actions) for actions in played[OWN]],
        "reference_pass_rates": [rates(actions) for actions in played[REFERENCE]],
        "step_pass_rates": by_side(lambda context, action: float(toy.rewards[context][action]))[REFERENCE],
        "log_ratio": by_side(lambda c, action: math.log(toy.policy[c][action] / toy.reference[c][action])),
        "kl": by_side(lambda c, _: float(toy.policy[c] @ np.log(toy.policy[c] / toy.reference[c]))),
    }


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, Path]:
    toy, rng = random_toy(4, difference=0.7), np.random.default_rng(0)
    path = tmp_path_factory.mktemp("toy") / "toy.jsonl"
    write_jsonl(path, [record(toy, number, 25, rng) for number in range(60)])
    return toy, path


def near(estimate: Estimate, exact: float) -> bool:
    """Within twice the interval's width to either side, which honest intervals miss once in 10,000."""
    assert estimate.low is not None and estimate.high is not None
    return abs(estimate.value - exact) <= estimate.high - estimate.low


def test_estimates_come_near_what_is_exact(sampled: tuple[Toy, Path]) -> None:
    toy, path = sampled
    measures = read_measures(path)
    found = bounds_of(measures)
    own, step = toy.objective(toy.policy, toy.policy), toy.objective(toy.reference, toy.policy)
    assert near(found.multi_turn, own.mean()) and near(found.stepwise, step.mean())
    assert near(found.gap, gap(toy) / toy.turns)
    tolerance = 5 / math.sqrt(measures.problems * 25)
    for side, visitor in ((REFERENCE, toy.reference), (OWN, toy.policy)):
        assert measures.kl_PT[side].mean(axis=0) == pytest.approx(toy.kl_T(visitor), rel=0.1)
        assert measures.log_ratio_PT[side].mean(axis=0) == pytest.approx(toy.kl_T(visitor), abs=tolerance)
        assert measures.tv_PT[side].mean(axis=0) == pytest.approx(toy.tv_T(visitor), abs=tolerance)
    assert near(found.shift, toy.tv_T(toy.reference) @ shift_weights(toy.turns) / toy.turns)
    assert found.radius == pytest.approx(radius([toy.kl_T(toy.reference), toy.kl_T(toy.policy)]), rel=0.1)
    assert found.constant is not None
    assert found.constant.value == pytest.approx(found.gap.value / math.sqrt(found.radius))


def test_total_variation_is_the_mean_over_the_policys_responses() -> None:
    for seed in range(20):
        toy = random_toy(seed, turns=1, difference=2.0)
        p, q = toy.policy[()], toy.reference[()]
        mean = sum(p[a] * total_variation(math.log(p[a] / q[a])) for a in range(ACTIONS))
        assert mean == pytest.approx(float(np.abs(p - q).sum() / 2))
    assert total_variation(-1e6) == 0 and total_variation(1e6) == 1


def test_a_turn_whose_programs_could_not_be_run_leaves_its_problem_out(sampled: tuple[Toy, Path], tmp_path) -> None:
    rows = [json.loads(line) for line in sampled[1].read_text().splitlines()[:3]]
    rows[0]["step_pass_rates"] = [[None, *rates[1:]] for rates in rows[0]["step_pass_rates"]]
    rows[1]["step_pass_rates"][0][0] = None
    write_jsonl(tmp_path / "holes.jsonl", rows)
    assert read_measures(tmp_path / "holes.jsonl").problems == 2
    write_jsonl(tmp_path / "none.jsonl", rows[:1])
    with pytest.raises(InputError, match="no problem has a reward at every turn"):
        read_measures(tmp_path / "none.jsonl")
