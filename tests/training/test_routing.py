"""Which of the engine's servers a request goes to."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import pytest
from online_parts import compose
from verl.workers.rollout.replica import TokenOutput

from cobalt.training.rollouts import GroupClient
from cobalt.training.trainer import CobaltTrainerSync


def client_of(servers: int) -> GroupClient:
    handles = {}
    for number in range(servers):

        async def generate(number=number, **request):
            handles[f"server {number}"].asked.append(request["prompt_ids"])
            await asyncio.sleep(0)  # until all others have asked
            return TokenOutput(token_ids=[1], extra_fields={})

        remote = SimpleNamespace(remote=generate)
        handles[f"server {number}"] = SimpleNamespace(generate=remote, asked=[])
    return GroupClient(compose(), handles)


def asked(client: GroupClient) -> list[list[list[int]]]:
    """The prompts that each server has got."""
    return [server.asked for _, server in client._servers]


async def ask(client: GroupClient, *prompts: list[int], request_id: str | None = None) -> None:
    requests = [(request_id or uuid4().hex, prompt) for prompt in prompts]
    await asyncio.gather(*[client.generate(name, prompt_ids=prompt, sampling_params={}) for name, prompt in requests])


async def test_a_problems_requests_go_to_one_server_and_problems_to_all_in_turn():
    client = client_of(2)
    await ask(client, *[[problem] for problem in range(6) for _sample in range(4)])
    assert asked(client) == [[[0]] * 4 + [[2]] * 4 + [[4]] * 4, [[1]] * 4 + [[3]] * 4 + [[5]] * 4]


async def test_a_later_step_does_not_depend_on_where_its_problems_went_before():
    client = client_of(2)
    await ask(client, [0], [1], [2], [3])
    await ask(client, [0], [2], [0], [2])  # both were the first server's
    assert asked(client)[0][2:] == [[0], [0]]
    assert asked(client)[1][2:] == [[2], [2]]


async def test_later_turns_go_where_the_first_one_went():
    client = client_of(3)
    for turn in range(3):
        await asyncio.gather(*[ask(client, [problem, turn], request_id=f"of {problem}") for problem in (0, 1)])
    assert asked(client) == [[[0, turn] for turn in range(3)], [[1, turn] for turn in range(3)], []]


async def test_a_server_that_fails_gives_its_place_back():
    client = client_of(2)
    works, client._servers[0][1].generate.remote = client._servers[0][1].generate.remote, AsyncMock(side_effect=OSError)
    with pytest.raises(OSError):
        await ask(client, [0])
    client._servers[0][1].generate.remote = works
    await ask(client, [0])
    assert asked(client) == [[], [[0]]]


async def test_the_processes_begin_with_different_servers():
    first = client_of(4)
    for number in range(8):
        await ask(first.of_process(number), [number], [number + 8])
    assert [len(prompts) for prompts in asked(first)] == [4] * 4


@pytest.mark.parametrize(
    ("setting", "servers"),
    [
        ("actor_rollout_ref.rollout.router_config_path=router.yaml", 2),
        ("actor_rollout_ref.rollout.full_determinism=true", 2),
        ("data.train_batch_size=6", 4),
        ("data.train_batch_size=2", 4),
    ],
)
def test_verls_routing_is_taken_where_it_is_asked_for_or_balances_better(setting, servers):
    names = [f"server {number}" for number in range(servers)]
    trainer = object.__new__(CobaltTrainerSync)
    trainer.llm_server_manager = manager = Mock(server_addresses=names, server_handles=names)
    trainer.parameter_sync_step, trainer.config = 1, compose(setting)
    trainer.get_llm_client()
    manager.get_client.assert_called_once_with()
    trainer.config = compose("data.train_batch_size=8")
    trainer.get_llm_client()
    manager.get_client.assert_called_with(GroupClient, servers=dict(zip(names, names, strict=True)))
