"""Processes of Ray that start beside others: veRL's own replicas take them, and who asks them imports little."""

import asyncio
import importlib.metadata
import os
import sys
from types import SimpleNamespace

import pytest
import ray
from heavy_actor import Heavy
from online_parts import compose
from ray.exceptions import ActorDiedError
from stand_in import StandIn, stood_in
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import RolloutReplicaRegistry

from cobalt.training.cluster import first_killed
from cobalt.training.early import LightActor, StartedServers, light_actor, start_servers

NODE = "ab" * 28


class Process:
    """In the place of an actor: what it was started with, and what was asked of it, in order."""

    def __init__(self, kind, options, arguments):
        self.kind, self.options, self.arguments, self.asked = kind, options, arguments, []

    def __getattr__(self, method):
        def remote(*args, **kwargs):
            self.asked.append(method)
            if method == "connect":
                self.arguments = kwargs
                return lambda: self.asked.append("waited")  # for ``ray.get``
            answer = asyncio.get_running_loop().create_future()
            answer.set_result((NODE, "1", 2)[: 3 if method == "get_master_address" else 2])
            return answer

        return SimpleNamespace(remote=remote)


@pytest.fixture
def processes(monkeypatch):
    """In the place of Ray's and of the engines, which are not installed: all processes that were made."""
    made = []

    def actor_class(kind):
        def options(**options):
            def remote(*_, **arguments):
                made.append(Process(kind, options, arguments))
                return made[-1]

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(options=options)

    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.24.0" if name == "vllm" else version(name))
    monkeypatch.setattr(RolloutReplicaRegistry, "_registry", {**RolloutReplicaRegistry._registry})
    monkeypatch.setattr(ray, "remote", actor_class)
    monkeypatch.setattr(ray, "get", lambda answer: answer())
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": NODE}])
    with stood_in(StandIn("vllm", __version__="0.24.0"), StandIn("sglang", __version__="0.5.12")):
        yield made


@pytest.mark.parametrize(
    ("nodes", "engine", "parallel", "workers_of_servers"),
    [
        (1, "vllm", 1, [[0], [1]]),
        (1, "vllm", 2, [[0, 1]]),
        (2, "vllm", 1, [[0], [1]]),
        (1, "sglang", 1, [[0], [1]]),
    ],
)
def test_servers_of_engines_start_while_models_load(
    processes, monkeypatch, nodes, engine, parallel, workers_of_servers
):
    """Their imports take as long as the models. veRL's own replica is what makes them afterwards."""
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": NODE}] * nodes)
    rollout = "actor_rollout_ref.rollout"
    settings = [f"{rollout}.name={engine}", f"{rollout}.tensor_model_parallel_size={parallel}"]
    config = compose("trainer.n_gpus_per_node=2", *settings)
    start_servers(config)
    assert len(processes) == (len(workers_of_servers) if nodes == 1 else 0)
    workers = [Process(None, {}, {}) for _ in range(2)]
    manager = LLMServerManager(config, SimpleNamespace(world_size=2, workers=workers))
    asyncio.run(manager._initialize_llm_servers())
    assert len(processes) == len(workers_of_servers)
    usual = [*["get_master_address"] * (engine == "vllm"), "launch_server", "get_server_address"]
    title = {"vllm": "vLLMHttpServer", "sglang": "SGLangHttpServer"}[engine]
    for rank, (server, of_server) in enumerate(zip(processes, workers_of_servers, strict=True)):
        assert (server.options["name"], server.kind.__name__) == (f"{engine}_server_{rank}_0", title)
        assert issubclass(server.kind, LightActor)
        assert server.arguments["replica_rank"] == rank
        assert [workers.index(worker) for worker in server.arguments["workers"]] == of_server
        assert server.asked == (["connect", "waited", *usual] if nodes == 1 else usual)


def test_a_server_is_not_made_with_settings_it_was_not_started_with(processes):
    servers = StartedServers(object)
    servers.start("server", max_concurrency=1)
    with pytest.raises(ValueError, match=r"server was started with .* and is to have"):
        servers.options(name="server", scheduling_strategy=None, max_concurrency=2)


async def test_a_light_actor_is_made_as_it_starts_or_later(monkeypatch):
    monkeypatch.setattr(ray, "remote", lambda kind: kind)
    kind = light_actor(Heavy)
    now, later = kind(value=1), kind()
    later.connect(2)
    assert [now.now(), await now.later(), later.now(), await later.later()] == [1, 1, 2, 2]


@pytest.fixture
def own_ray(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("own_ray")
def test_whoever_asks_a_server_does_not_import_what_it_does_and_it_ends_with_its_engine():
    """Ray sends the class with the handle. In each process that asked for its first response, vLLM took 12 s.

    A server that stays answers each request with the same error, and its traceback grows.
    """

    def ask(server):
        return ray.get([server.later.remote(), server.now.remote()]), "heavy_actor" in sys.modules

    servers = StartedServers(Heavy)
    servers.start("early", max_concurrency=2)
    server = servers.options(name="early", scheduling_strategy=None, max_concurrency=2).remote(value=7)
    assert ray.get(ray.remote(ask).remote(server)) == ([7, 7], False)
    with pytest.raises(ActorDiedError):
        ray.get(server.generate.remote())
    killed = first_killed()
    assert killed is not None and killed[0] == "Heavy"
