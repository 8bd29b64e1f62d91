"""Processes of Ray that start, and import what they need, beside others: what they are made of comes later."""

from types import SimpleNamespace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.plugin.platform import get_platform
from verl.workers.rollout.replica import RolloutReplicaRegistry

from cobalt.training.config import VLLM


class Waiting:
    """First base of an actor whose process starts without its arguments. ``connect`` brings them, and makes it."""

    def __init__(self, *_settings_alone: Any) -> None: ...

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Make the actor."""
        super().__init__(*args, **kwargs)


class StartedServers:
    """Stands for Ray's class of vLLM's server: whoever makes one with the name of a waiting process gets that one."""

    def __init__(self, kind: type) -> None:
        self._usual: Any = ray.remote(kind)
        self._waiting: Any = ray.remote(type(kind.__name__, (Waiting, kind), {}))
        self._processes: dict[str, tuple[Any, dict[str, Any]]] = {}

    def start(self, name: str, **options: Any) -> None:
        """Start a process. ``options``: Ray's, those that the server is made with later, but for its place."""
        (node,) = ray.nodes()
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        process = self._waiting.options(name=name, scheduling_strategy=place, **options).remote()
        self._processes[name] = process, options

    def options(self, *, name: str, scheduling_strategy: Any, **options: Any) -> Any:
        """As that of Ray's class."""
        process, started_with = self._processes.pop(name, (None, None))
        if process is None:
            return self._usual.options(name=name, scheduling_strategy=scheduling_strategy, **options)
        if options != started_with:
            raise ValueError(f"{name} was started with {started_with} and is to have {options}")

        def remote(**arguments: Any) -> Any:
            ray.get(process.connect.remote(**arguments))  # before anything else is asked of it
            return process

        return SimpleNamespace(remote=remote)


def start_servers(config: Any) -> None:
    """Start the processes of vLLM's servers, on a cluster of one node: elsewhere their nodes are not known yet.

    To be called while the models are loaded: it imports vLLM here, too, as veRL would afterwards.
    """
    rollout = config.actor_rollout_ref.rollout
    if rollout.name != VLLM or rollout.disaggregation.enabled or len(ray.nodes()) > 1:
        return
    from verl.workers.rollout.vllm_rollout import vllm_async_server

    servers = StartedServers(vllm_async_server.vLLMHttpServer)

    class EarlyReplica(vllm_async_server.vLLMReplica):
        """veRL's, of servers whose processes have been started."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.server_class = servers

    RolloutReplicaRegistry.register(VLLM, lambda: EarlyReplica)
    gpus, platform = config.trainer.n_gpus_per_node, get_platform()
    replica = EarlyReplica(0, rollout, config.actor_rollout_ref.model, gpus)
    variables = {**dict.fromkeys(platform.ray_noset_envvars(), "1"), **platform.rollout_env_vars()}
    for rank in range(gpus // replica.world_size):
        name = f"{replica._get_server_name_prefix()}server_{rank}_0"
        servers.start(name, runtime_env={"env_vars": variables}, max_concurrency=replica.max_concurrency)
