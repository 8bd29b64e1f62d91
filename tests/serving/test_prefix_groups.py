"""Groups of requests that share a beginning: found from block tables, and attention over them is attention."""

import sys
import tomllib
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from prefix_groups import PrefixGroups, prefix_groups

EXAMPLE = Path(__file__).parents[2] / "examples" / "group_attention"
BLOCK = 4


def requests(generator: torch.Generator, prompts: list[int], samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Block tables and lengths: each of the prompts shares its first block with all, and is that of ``samples``."""
    fresh = iter((torch.randperm(5000, generator=generator) + 1).tolist())
    first, rows, lengths = next(fresh), [], []
    for blocks in prompts:
        prompt = [first, *(next(fresh) for _ in range(blocks - 1))]
        for _ in range(samples):
            more = int(torch.randint(1, 30, (1,), generator=generator))
            lengths.append(blocks * BLOCK + more)
            rows.append(prompt + [next(fresh) for _ in range(-(-more // BLOCK))])
    width = max(map(len, rows)) + 3
    # stale entries of earlier requests behind the blocks of a row: here the same in all of them
    tables = torch.tensor([row + [first] * (width - len(row)) for row in rows], dtype=torch.int32)
    order = torch.randperm(len(rows), generator=generator)
    return tables[order], torch.tensor(lengths, dtype=torch.int32)[order]


def attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of one query (D,); of no key nothing and minus infinity."""
    scores = keys @ query
    return scores.softmax(0) @ values if len(keys) else torch.zeros_like(query), scores.logsumexp(0)


def merged(groups: PrefixGroups, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What the two calls and the merge compute."""

    def seen(table: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys_T, values_T = (cache[table.long()].flatten(0, 1)[: int(tokens)] for cache in (keys, values))
        return keys_T, values_T

    shared = [
        attention(queries[request], *seen(table, tokens))
        for (start, end), table, tokens in zip(
            pairwise(groups.starts_N1.tolist()), groups.prefix_tables_NB, groups.prefix_lengths_N, strict=True
        )
        for request in groups.order_N[start:end].tolist()
    ]
    result = []
    rows = zip(queries, groups.places_N.tolist(), groups.suffix_tables_NB, groups.suffix_lengths_N, strict=True)
    for query, place, table, tokens in rows:
        own, own_sum = attention(query, *seen(table, tokens))
        weight = (shared[place][1] - own_sum).sigmoid()
        result.append(weight * shared[place][0] + (1 - weight) * own)
    return torch.stack(result)


def test_attention_over_groups_is_attention_over_each_request() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(5001, BLOCK, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    for prompts in ([9], [1], [3, 7, 12], [5, 1, 2, 8]):
        tables, lengths = requests(generator, prompts, 4)
        queries = torch.randn(len(tables), 8, generator=generator, dtype=torch.float64)
        groups = prefix_groups(tables, lengths, BLOCK)
        expected = torch.stack(
            [
                attention(query, *(cache[table.long()].flatten(0, 1)[:length] for cache in (keys, values)))[0]
                for query, table, length in zip(queries, tables, lengths.tolist(), strict=True)
            ]
        )
        torch.testing.assert_close(merged(groups, queries, keys, values), expected)


def test_requests_meet_at_the_deepest_block_that_they_share() -> None:
    tables, lengths = requests(torch.Generator().manual_seed(1), [3, 7, 12], 4)
    groups = prefix_groups(tables, lengths, BLOCK)
    assert groups.starts_N1.tolist() == [0, 4, 8] + [12] * 10
    assert sorted(groups.prefix_lengths_N.tolist()[:3]) == [3 * BLOCK, 7 * BLOCK, 12 * BLOCK]
    assert groups.prefix_lengths_N.tolist()[3:] == [0] * 9
    shared = torch.repeat_interleave(groups.prefix_lengths_N[:3], 4)[groups.places_N]
    assert torch.equal(groups.suffix_lengths_N + shared, lengths)
    assert groups.order_N[groups.places_N].tolist() == list(range(12))


def test_the_last_token_and_rows_without_a_request_are_shared_with_nobody() -> None:
    tables = torch.tensor([[7, 8, 0], [7, 8, 0], [0, 0, 0], [0, 0, 0]], dtype=torch.int32)
    groups = prefix_groups(tables, torch.tensor([8, 8, 0, 0], dtype=torch.int32), BLOCK)
    assert groups.starts_N1.tolist() == [0, 2, 3, 4, 4]
    assert groups.prefix_lengths_N.tolist() == [4, 0, 0, 0]
    assert groups.suffix_lengths_N.tolist() == [4, 4, 1, 1]
    assert groups.suffix_tables_NB[:2, 0].tolist() == [8, 8]


def test_vllm_finds_the_backend_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[tuple[Any, str]] = []
    backends: Any = ModuleType("vllm.v1.attention.backends")
    backends.registry = ModuleType("registry")
    backends.registry.AttentionBackendEnum = type("AttentionBackendEnum", (), {"CUSTOM": "custom"})
    backends.registry.register_backend = lambda *call: registered.append(call)
    for name in ("vllm", "vllm.v1", "vllm.v1.attention"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, backends.__name__, backends)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    ((name, value),) = project["project"]["entry-points"]["vllm.general_plugins"].items()
    EntryPoint(name, value, "vllm.general_plugins").load()()
    ((backend, path),) = registered
    assert backend == "custom" and path.rpartition(".")[0] in project["tool"]["setuptools"]["py-modules"]
