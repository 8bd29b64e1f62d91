"""Processes of Ray that start, and import what they need, beside others: what they are made of comes later."""

import inspect
import os
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cobalt.training.cluster import ENGINE_ERROR
from cobalt.training.config import SGLANG, VLLM

SERVERS = {
    VLLM: ("verl.workers.rollout.vllm_rollout.vllm_async_server", "vLLMHttpServer", "vLLMReplica"),
    SGLANG: ("verl.workers.rollout.sglang_rollout.async_sglang_server", "SGLangHttpServer", "SGLangReplica"),
}
"""Engine: veRL's module, and its classes there of a server and of a replica's servers."""


class LightActor:
    """An actor of a class whose modules only its own process imports, as it starts. ``connect`` makes it.

    Ray sends an actor's class along with its handle. A handle of vLLM's server would bring vLLM, which takes 12 s to
    import, into every process that asks it for something.
    """

    of: tuple[str, str]
    """Module and name of the class."""

    def __init__(self, *_early: Any, **arguments: Any) -> None:
        """``arguments``, if there are any, make it now."""
        module, name = self.of
        self._kind: Any = getattr(import_module(module), name)
        if arguments:
            self.connect(**arguments)

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Make the actor."""
        self.made = self._kind(*args, **kwargs)


def light_actor(kind: type) -> Any:
    """Ray's class of actors that are ``LightActor``s of ``kind``: with its public methods, which the actor answers."""

    def asked(name: str, method: Any) -> Any:
        async def wait(self: LightActor, *args: Any, **kwargs: Any) -> Any:
            try:
                return await getattr(self.made, name)(*args, **kwargs)
            except Exception as error:
                if type(error).__name__ == ENGINE_ERROR:
                    # It is one object for all requests, whose traceback grows with each: 512 took a minute. The end
                    # of this process ends the training
                    os._exit(1)
                raise

        def call(self: LightActor, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.made, name)(*args, **kwargs)

        return wait if inspect.iscoroutinefunction(method) else call

    functions = inspect.getmembers(kind, inspect.isfunction)
    methods = {name: asked(name, method) for name, method in functions if not name.startswith("_")}
    return ray.remote(type(kind.__name__, (LightActor,), {"of": (kind.__module__, kind.__name__), **methods}))


class StartedServers:
    """In the place of Ray's class of an engine's server: whoever makes one with a started name gets that process."""

    def __init__(self, kind: type) -> None:
        self._class = light_actor(kind)
        self._processes: dict[str, tuple[Any, dict[str, Any]]] = {}

    def start(self, name: str, **options: Any) -> None:
        """Start a process. ``options``: Ray's, those that the server is made with later, but for its place."""
        (node,) = ray.nodes()
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        process = self._class.options(name=name, scheduling_strategy=place, **options).remote()
        self._processes[name] = process, options

    def options(self, *, name: str, scheduling_strategy: Any, **options: Any) -> Any:
        """As that of Ray's class."""
        process, started_with = self._processes.pop(name, (None, None))
        if process is None:
            return self._class.options(name=name, scheduling_strategy=scheduling_strategy, **options)
        if options != started_with:
            raise ValueError(f"{name} was started with {started_with} and is to have {options}")

        def remote(**arguments: Any) -> Any:
            ray.get(process.connect.remote(**arguments))  # before anything else is asked of it
            return process

        return SimpleNamespace(remote=remote)


def start_servers(config: Any) -> None:
    """Start the processes of the engine's servers. On several nodes they start later, as theirs are not known yet.

    To be called while the models are loaded: it imports the engine here, too, as veRL would afterwards.
    """
    from verl.plugin.platform import get_platform
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    rollout = config.actor_rollout_ref.rollout
    if rollout.name not in SERVERS or rollout.disaggregation.enabled:
        return
    module, server, of_verl = SERVERS[rollout.name]
    engine: Any = import_module(module)
    servers = StartedServers(getattr(engine, server))

    class EarlyReplica(getattr(engine, of_verl)):
        """veRL's, of such servers."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = servers

    RolloutReplicaRegistry.register(rollout.name, lambda: EarlyReplica)
    if len(ray.nodes()) > 1:
        return
    gpus, platform = config.trainer.n_gpus_per_node, get_platform()
    replica = EarlyReplica(0, rollout, config.actor_rollout_ref.model, gpus)
    variables = {**dict.fromkeys(platform.ray_noset_envvars(), "1"), **platform.rollout_env_vars()}
    for rank in range(gpus // replica.world_size):
        name = f"{rollout.name}_server_{rank}_0"
        servers.start(name, runtime_env={"env_vars": variables}, max_concurrency=replica.max_concurrency)
