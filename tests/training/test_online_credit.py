"""From judged programs to advantages of rows, and which rows the trainer keeps."""

import numpy as np
import pytest
import torch
from actors import RESPONSES, make_update, updated, verls_actor, worker_settings
from online_parts import make_settings
from tensordict import TensorDict
from test_shared_prompts import ROWS
from verl import DataProto

from cobalt.training.online.manager import Program, group_advantages
from cobalt.training.online.rows import (
    ADVANTAGE,
    MINI_BATCHES,
    TRAJECTORY,
    TURN,
    drop_rows_after_end,
    kept_rows,
    with_given_advantages,
)
from cobalt.training.workers import CobaltActor

__all__ = ["verls_actor"]
HALF_ROOT = 0.5**0.5


def program(reward, *passed):
    return Program({"score": reward}, tuple(map(bool, passed)))


def advantages(group, **settings):
    """``group[n]``: the programs of trajectory n; turn by turn."""
    judged = [None if None in programs else programs for programs in group]
    values_NT = group_advantages(judged, make_settings(**settings).method)
    return [value for programs, values_T in zip(group, values_NT, strict=True) for value in values_T[: len(programs)]]


GROUP = [[program(0.2, 1, 0), program(1.0, 1, 1)], [program(-0.1, 0, 0), program(-0.1, 0, 0), program(-0.1, 0, 0)]]


def test_grpo_gives_each_trajectory_one_advantage():
    assert advantages(GROUP) == pytest.approx([HALF_ROOT] * 2 + [-HALF_ROOT] * 3, abs=1e-4)


def test_grpo_scores_the_last_program_or_the_discounted_sum():
    """The last program says 1 and 0.2 of these two; the sums are 0.1 and 0.4 + 0.1."""
    group = [[program(-0.4), program(1.0)], [program(0.4), program(0.2)]]
    assert advantages(group)[0] > 0
    assert advantages(group, trajectory_score="sum", gamma=0.5)[0] < 0


def test_verpo_tells_turns_apart():
    first, second, *others = advantages(GROUP, method="verpo")
    assert first == pytest.approx(2 * HALF_ROOT, abs=1e-4)  # its return and its outcome are above the other's
    assert second == pytest.approx(2 * HALF_ROOT, abs=1e-4)
    assert others == pytest.approx([-2 * HALF_ROOT, -2 * HALF_ROOT, -HALF_ROOT], abs=1e-4)  # alone at turn 2


@pytest.mark.parametrize("method", ["grpo", "verpo"])
def test_a_failed_program_neutralises_its_trajectory_and_mostly_failed_groups_whole(method):
    failed = [[program(1.0, 1, 1), None]]
    others = [[program(1.0, 1, 1)], [program(0.0, 1, 0)], [program(0.0, 0, 1)]]
    values = advantages([*failed, *others], method=method)
    assert values[:2] == [0, 0]
    assert np.sign(values[2:]).tolist() == np.sign(advantages(others, method=method)).tolist()
    assert advantages([[None], [None], [None], [program(1.0, 1, 1)], [program(0.0, 0, 0)]], method=method) == [0] * 5


def test_rows_after_the_end_are_dropped_but_for_what_divides_evenly():
    assert kept_rows([True] * 4, 2) == [0, 1, 2, 3]
    assert kept_rows([True, False] * 3, 1) == [0, 2, 4]
    assert kept_rows([False] * 4 + [True] * 4, 3) == [4, 0, 5, 6, 1, 7]


def make_batch(lengths_BT, turns, samples):
    """Rows of problems × samples × turns, with responses of these lengths; ``responses`` hold the row's number."""
    lengths = torch.tensor(lengths_BT).flatten()
    mask = torch.arange(4) < lengths[:, None]
    numbers = torch.arange(len(lengths))[:, None].expand(-1, 4)
    batch = TensorDict({"response_mask": mask.long(), "responses": numbers}, batch_size=len(lengths))
    data = DataProto(batch=batch, non_tensor_batch={"uid": np.arange(len(lengths)) // (turns * samples)})
    return data


def test_the_rows_that_are_left_know_their_trajectory_and_turn():
    batch = make_batch([[2, 1, 0], [3, 0, 0], [1, 1, 1], [4, 0, 0]], turns=3, samples=2)
    drop_rows_after_end(batch, turns=3, rows_of_problem=6, mini_batches=1, unit=1)
    assert batch.batch["responses"][:, 0].tolist() == [0, 3, 1, 6, 9, 7, 8]  # turn by turn within a problem
    assert batch.non_tensor_batch[TRAJECTORY].tolist() == [0, 1, 0, 2, 3, 2, 2]
    assert batch.non_tensor_batch[TURN].tolist() == [0, 0, 1, 0, 0, 1, 2]
    assert batch.non_tensor_batch["uid"].tolist() == [0, 0, 0, 1, 1, 1, 1]
    alone = make_batch([[1], [2], [3], [4]], turns=1, samples=2)  # with one turn every row stays where it is
    drop_rows_after_end(alone, turns=1, rows_of_problem=2, mini_batches=2, unit=2)
    assert alone.batch["responses"][:, 0].tolist() == [0, 1, 2, 3]


def test_given_advantages_stand_at_every_token_of_a_response():
    batch = make_batch([[1], [3]], turns=1, samples=2)
    batch.non_tensor_batch[ADVANTAGE] = np.array([0.5, -2.0], dtype=object)
    given = with_given_advantages(batch).batch["advantages"]
    assert given.tolist() == [[0.5, 0, 0, 0], [-2, -2, -2, 0]]


@pytest.mark.usefixtures("verls_actor")
def test_dropped_rows_count_for_nothing_in_the_update():
    """As many steps of as many rows as if the trainer had never asked for more."""
    micro_batches = {"ppo_micro_batch_size_per_gpu": 2}
    *_, alone = updated(CobaltActor, make_update(ROWS), worker_settings(), **micro_batches)
    data = make_update([*ROWS, *ROWS])
    data.batch["response_mask"][len(ROWS) :] = 0
    data.batch["response_mask"] = data.batch["response_mask"].clone()
    for name, values in make_update(ROWS).batch.items():
        data.batch[name][: len(ROWS)] = values
    drop_rows_after_end(data, turns=1, rows_of_problem=1, mini_batches=2, unit=2)
    assert data.meta_info[MINI_BATCHES] == 2 and data.batch["responses"].shape == (len(ROWS), RESPONSES)
    *_, found = updated(CobaltActor, data, worker_settings(), ppo_mini_batch_size=8, **micro_batches)
    torch.testing.assert_close(found, alone)
