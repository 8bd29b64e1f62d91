"""The scores of a batch: means and costs for the logs, and responses that the infrastructure failed to score.

A response without a score teaches the policy nothing, and too many of them end training. GRPO normalises rewards
within a group of responses to one prompt. A failed sample gets the mean of its group's valid ones, which makes its
advantage 0. That shrinks the group's standard deviation and so inflates the other advantages, so a group with fewer
than half of its samples valid is neutralised whole.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cobalt.errors import SetupError
from cobalt.training.responses import REPEATS, SOLVED_BEFORE, TURN
from cobalt.training.scoring import ARRIVED, INFRA, SCORE_NAMES, SCORED
from cobalt.training.training_log import JUDGING

PART_PREFIX = "reward_"
MIN_VALID_SHARE = 0.5
WINDOW_STEPS = 4
"""Steps over which the share of infra failures is taken. With the default limit a step that is lost whole (a restart of
the service) is survived, and a second one within the window ends training."""


def reward_metrics(
    named_scores: Mapping[str, Any], trajectories: Sequence[Sequence[int]] = (), lost: int = 0
) -> dict[str, float]:
    """``reward/<name>``: means over the scored samples of a step; ``reward/infra``: the share that was not scored.

    The names are our own, and any other number that a reward function calls ``reward_<name>``. ``lost``: samples that
    never came back from the rollout. ``trajectories``: online, the rows of each, turn by turn. A sample is then a
    trajectory, scored by its last turn, and ``reward/<name>_over_turns`` is the mean over all turns.
    """
    if trajectories:
        over_turns = reward_metrics(named_scores)
        last = [rows[-1] for rows in trajectories]
        samples = {name: [values[row] for row in last] for name, values in named_scores.items()}
        means = {f"{name}_over_turns": mean for name, mean in over_turns.items() if name != f"reward/{INFRA}"}
        return {**reward_metrics(samples, lost=lost), **means}
    if INFRA not in named_scores:
        return {}
    infra_B = np.asarray(named_scores[INFRA], dtype=float)
    scored_B = infra_B == 0
    metrics = {f"reward/{INFRA}": float((infra_B.sum() + lost) / (len(infra_B) + lost))}
    for name, values in named_scores.items():
        values_B = np.asarray(values)
        is_score = name in SCORE_NAMES or name.startswith(PART_PREFIX)
        if is_score and np.issubdtype(values_B.dtype, np.number) and scored_B.any():
            metrics[f"reward/{name.removeprefix(PART_PREFIX)}"] = float(values_B[scored_B].mean())
    return metrics


def judging_metrics(infos: Iterable[Mapping[str, Any]], passes_end: float | None) -> dict[str, float]:
    """``JUDGING``, or nothing where nothing was scored by our reward manager.

    Its seconds begin with the last response's arrival at the reward, a part of ``timing_s/gen``, or at ``passes_end``
    (seconds since the epoch) where log-probabilities are computed meanwhile, a part of ``timing_s/adv``. ``infos``:
    ``reward_extra_info`` of each row.
    """
    times = [(info[ARRIVED], info[SCORED]) for info in infos if SCORED in info]
    if not times:
        return {}
    arrived, scored = map(max, zip(*times, strict=True))
    return {JUDGING: max(0.0, scored - (passes_end or arrived))}


def turn_metrics(named_scores: Mapping[str, Any]) -> dict[str, float]:
    """``turn_T/<name>``: shares of the scored responses that follow T programs.

    ``solved``: right; ``kept`` and ``broken``: right and wrong, of those that follow a right one; ``repaired``: right,
    of the others; ``repeated``: with the program before. Empty without ``acc``, or where nothing tells the turns.
    """
    names = "acc", INFRA, TURN, SOLVED_BEFORE, REPEATS
    if not named_scores.keys() >= {*names}:
        return {}
    acc_B, infra_B, turns_B, solved_B, repeats_B = (np.asarray(named_scores[name], dtype=float) for name in names)
    metrics = {}
    for turn in np.unique(turns_B[infra_B == 0]):
        at_B = (infra_B == 0) & (turns_B == turn)
        shares = {"solved": (acc_B, at_B)}
        if turn:
            after_right_B, after_wrong_B = (at_B & (solved_B == value) for value in (1, 0))
            shares |= {"kept": (acc_B, after_right_B), "broken": (1 - acc_B, after_right_B)}
            shares |= {"repaired": (acc_B, after_wrong_B), "repeated": (repeats_B, at_B)}
        for name, (values_B, of_B) in shares.items():
            if of_B.any():
                metrics[f"turn_{turn:.0f}/{name}"] = float(values_B[of_B].mean())
    return metrics


def neutralise_groups(scores_B: Sequence[float | None], groups_B: Sequence[Hashable]) -> list[float]:
    """Training: ``scores_B`` with each None replaced by its group's mean, and 0 for groups that are mostly None."""
    rows_of_group: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(groups_B):
        rows_of_group[group].append(row)
    rewards_B = [0.0] * len(scores_B)
    for rows in rows_of_group.values():
        scores = [scores_B[row] for row in rows]
        if sum(score is not None for score in scores) >= MIN_VALID_SHARE * len(rows):
            for row, reward in zip(rows, fill_with_mean(scores), strict=True):
                rewards_B[row] = reward
    return rewards_B


def fill_with_mean(scores_B: Sequence[float | None]) -> list[float]:
    """Validation and logs: each None becomes the mean of the others, which leaves their mean as it is (none: NaN)."""
    valid = [score for score in scores_B if score is not None]
    mean = sum(valid) / len(valid) if valid else float("nan")
    return [mean if score is None else score for score in scores_B]


class InfraGuard:
    """Ends training when too many samples could not be scored."""

    def __init__(self, max_infra_rate: float):
        """``max_infra_rate``: share in [0, 1] of samples over the last ``WINDOW_STEPS`` steps that may fail."""
        self.max_infra_rate = max_infra_rate
        # Steps before the first count as free of failures: else one bad step at the start would be the whole window.
        self._shares: deque[float] = deque([0.0] * WINDOW_STEPS, maxlen=WINDOW_STEPS)

    def note(self, share: float) -> None:
        """``share`` in [0, 1] of a step's samples could not be scored. Raises ``SetupError`` above the limit."""
        self._shares.append(share)
        share = sum(self._shares) / WINDOW_STEPS
        if share > self.max_infra_rate:
            raise SetupError(
                f"stopped: {share:.0%} of the samples of the last {WINDOW_STEPS} steps were lost or could not be run "
                f"(reward.reward_kwargs.max_infra_rate={self.max_infra_rate}); "
                "restore the execution service and start again: training goes on from the last checkpoint, if any"
            )
