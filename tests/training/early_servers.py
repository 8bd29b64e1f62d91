"""veRL's own replica of vLLM, with vLLM's modules and Ray's processes stood in for: what becomes of early servers."""

import asyncio
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import ray

NODE = "ab" * 28


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module of vLLM."""

    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if is_vllm(fullname) else None

    def create_module(self, spec):
        module = MagicMock(name=spec.name, __spec__=spec, __path__=[], __version__="0.24.0")
        module.__name__ = spec.name
        return module

    def exec_module(self, module):
        pass


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


def is_vllm(name):
    return name.split(".")[0] == "vllm" or name == "verl.third_party.vllm"


def actor_class(kind):
    def options(**options):
        def remote(*_, **arguments):
            processes.append(Process(kind, options, arguments))
            return processes[-1]

        return SimpleNamespace(remote=remote)

    return SimpleNamespace(options=options)


version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.24.0" if name == "vllm" else version(name)
sys.meta_path.insert(0, StandIn())
nodes, names = int(sys.argv[1]), sys.argv[2:]
processes = []

from online_parts import compose  # noqa: E402
from verl.workers.rollout.llm_server import LLMServerManager  # noqa: E402

from cobalt.training.early import StandIn, start_servers  # noqa: E402

ray.remote, ray.get, ray.nodes = actor_class, lambda answer: answer, lambda: [{"NodeID": NODE}] * nodes
config = compose("trainer.n_gpus_per_node=2", *names)
start_servers(config)
started = list(processes)
workers = [Process(None, {}, {}) for _ in range(2)]
manager = LLMServerManager(config, SimpleNamespace(world_size=2, workers=workers))
asyncio.run(manager._initialize_llm_servers())
told = [
    {
        "name": process.options["name"],
        "early": process in started,
        "light": issubclass(process.kind, StandIn),
        "class": process.kind.__name__,
        "made for": process.arguments["replica_rank"],
        "workers": [workers.index(worker) for worker in process.arguments["workers"]],
        "asked": process.asked,
    }
    for process in processes
]
print(json.dumps(told))
