"""Groups stay whole where they fit, every row comes once, and no micro-batch is too large."""

import random

import pytest

from cobalt.training.shared_batches import Group, micro_batches, rank_parts


def make_groups(sizes, prompt=10, response=5):
    """Groups of these numbers of rows, in order."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        Group(tuple(range(start, start + size)), prompt, (response,) * size)
        for start, size in zip(starts, sizes, strict=True)
    ]


def random_groups(generator):
    groups, row = [], 0
    for _ in range(generator.randint(1, 6)):
        size = generator.randint(1, 8)
        responses = tuple(generator.randint(0, 20) for _ in range(size))
        groups.append(Group(tuple(range(row, row + size)), generator.randint(1, 30), responses))
        row += size
    return groups


def shared_tokens(groups, rows):
    chosen = set(rows)
    parts = [group.part([i for i, row in enumerate(group.rows) if row in chosen]) for group in groups]
    return sum(part.tokens for part in parts if part.rows)


@pytest.mark.parametrize("seed", range(200))
def test_every_row_comes_once_and_no_micro_batch_is_too_large(seed):
    generator = random.Random(seed)
    groups = random_groups(generator)
    max_tokens = generator.randint(50, 150)
    rows = sorted(row for group in groups for row in group.rows)
    found = micro_batches(groups, max_tokens, at_least=generator.randint(1, len(rows)))
    assert sorted(row for batch in found for row in batch) == rows
    assert all(shared_tokens(groups, batch) <= max_tokens for batch in found)


@pytest.mark.parametrize("seed", range(100))
def test_groups_that_fit_stay_whole(seed):
    groups = random_groups(random.Random(seed))
    found = micro_batches(groups, max(group.tokens for group in groups))
    assert all(any(set(group.rows) <= set(batch) for batch in found) for group in groups)


@pytest.mark.parametrize("wanted", range(1, 13))
def test_as_many_micro_batches_as_other_ranks_need(wanted):
    assert len(micro_batches(make_groups([4, 4, 4]), 1000, at_least=wanted)) == wanted


def test_groups_are_cut_last_when_more_micro_batches_are_needed():
    assert micro_batches(make_groups([2, 2]), 1000, at_least=2) == [[0, 1], [2, 3]]


def test_a_group_that_does_not_fit_is_cut_into_even_parts():
    assert [len(batch) for batch in micro_batches(make_groups([6]), 10 + 4 * 5)] == [3, 3]


def test_the_costliest_micro_batch_comes_first():
    groups = [Group((0,), 5, (1,)), Group((1,), 9, (9,)), Group((2,), 7, (3,))]
    assert micro_batches(groups, 18) == [[1], [0, 2]]


def test_a_row_that_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="a row of 15 tokens"):
        micro_batches(make_groups([2]), 14)


def test_ranks_take_whole_groups_where_they_can():
    groups = make_groups([4, 4, 4, 4])
    assert rank_parts(groups, 2) == groups


@pytest.mark.parametrize(
    ("sizes", "ranks", "rows"), [([16] * 3, 2, 8), ([16] * 2, 4, 8), ([16], 16, 1), ([4, 6], 2, 1)]
)
def test_otherwise_the_largest_equal_parts(sizes, ranks, rows):
    parts = rank_parts(make_groups(sizes), ranks)
    assert {len(part.rows) for part in parts} == {rows}
    assert len(parts) % ranks == 0
    assert [row for part in parts for row in part.rows] == list(range(sum(sizes)))
