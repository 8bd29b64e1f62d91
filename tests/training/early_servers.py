"""veRL's own replicas, with the engines' modules and Ray's processes stood in for: what becomes of early servers."""

import asyncio
import importlib.metadata
import json
import sys
from types import SimpleNamespace

import ray
from stand_in import StandIn

NODE = "ab" * 28


class Process:
    """An actor: what it was started with, and what was asked of it, in order."""

    def __init__(self, kind, options, arguments):
        self.kind, self.options, self.arguments, self.asked = kind, options, arguments, []

    def __getattr__(self, method):
        def remote(*args, **kwargs):
            self.asked.append(method)
            if method == "connect":
                self.arguments = kwargs
                return "connected"
            answer = asyncio.get_running_loop().create_future()
            answer.set_result((NODE, "1", 2)[: 3 if method == "get_master_address" else 2])
            return answer

        return SimpleNamespace(remote=remote)


def actor_class(kind):
    def options(**options):
        def remote(*_, **arguments):
            processes.append(Process(kind, options, arguments))
            return processes[-1]

        return SimpleNamespace(remote=remote)

    return SimpleNamespace(options=options)


version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.24.0" if name == "vllm" else version(name)
sys.meta_path[:0] = StandIn("vllm", __version__="0.24.0"), StandIn("sglang", __version__="0.5.12")
processes = []

from online_parts import compose  # noqa: E402
from verl.workers.rollout.llm_server import LLMServerManager  # noqa: E402

from cobalt.training.early import LightActor, start_servers  # noqa: E402

ray.remote, ray.get = actor_class, lambda answer: answer


def told(nodes, *overrides):
    """Of each server: who made it, with what, and what was asked of it."""
    processes.clear()
    ray.nodes = lambda: [{"NodeID": NODE}] * nodes
    config = compose("trainer.n_gpus_per_node=2", *overrides)
    start_servers(config)
    started = list(processes)
    workers = [Process(None, {}, {}) for _ in range(2)]
    manager = LLMServerManager(config, SimpleNamespace(world_size=2, workers=workers))
    asyncio.run(manager._initialize_llm_servers())
    return [
        {
            "name": process.options["name"],
            "early": process in started,
            "light": issubclass(process.kind, LightActor),
            "class": process.kind.__name__,
            "made for": process.arguments["replica_rank"],
            "workers": [workers.index(worker) for worker in process.arguments["workers"]],
            "asked": process.asked,
        }
        for process in processes
    ]


print(json.dumps([told(*case) for case in json.loads(sys.argv[1])]))
