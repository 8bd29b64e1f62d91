"""Of two trainings on one host: what comes through the sockets by which vLLM takes weights.

Run by test_weights.py in a process of its own, where a stand-in takes the place of vLLM. Both sides of the socket are
veRL's own. Prints the weights that each took, in JSON.
"""

import asyncio
import importlib.machinery
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import hydra
import ray
import torch

ROOT = Path(__file__).resolve().parents[2]
TRAININGS, TRANSFERS = 2, 20
VLLM = "0.24.0"


class StandIn:
    """Any module of vLLM, with any names."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        if name.split(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> Any:
        module = MagicMock()
        module.__path__, module.__spec__, module.__version__ = [], spec, VLLM
        return module

    def exec_module(self, _module: Any) -> None: ...


def main(folder: Path) -> None:
    metadata = folder / f"vllm-{VLLM}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}\n")
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, StandIn())  # type: ignore[arg-type]
    # of separate Rays: both are job 1
    ray.get_runtime_context = lambda: SimpleNamespace(get_job_id=lambda: "01000000")
    os.environ.update(RANK="1", RAY_LOCAL_WORLD_SIZE="2", VERL_REPLICA_RANK="1", VERL_RAY_JOB_ID="01000000")

    from verl.utils.import_utils import import_external_libs
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

    from cobalt.training.verl09.config import adapted
    from cobalt.training.verl09.runner import runtime_environment

    transfer.get_torch_device, transfer.is_support_ipc = lambda: torch.cpu, lambda: False
    torch.cpu.empty_cache = lambda: None  # type: ignore[attr-defined]
    search = f"hydra.searchpath=[file://{ROOT}/verl/config]"
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = adapted(hydra.compose("ppo_trainer", [search, "+recipe=multi_turn", "+preset=one-gpu-vllm"]))
    import_external_libs(list(config.actor_rollout_ref.model.external_lib))
    rollout = config.actor_rollout_ref.rollout
    sizes = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    settings = SimpleNamespace(**{name: rollout[name] for name in (*sizes, "layered_summon")})
    names = []
    for _ in range(TRAININGS):
        os.environ.update(runtime_environment(config)["env_vars"])
        adapter = get_rollout_class(rollout.name, rollout.mode)(settings, SimpleNamespace(), None)
        worker = SimpleNamespace(local_rank=0, model_runner=SimpleNamespace())
        sent, taken = adapter.zmq_handle, vLLMColocateWorkerExtension._get_zmq_handle(worker)
        assert sent == taken and sent not in names, (sent, taken, names)  # else what follows waits for ever
        names.append(sent)

    came: list[list[float]] = [[] for _ in names]

    def send(training: int, name: str) -> None:
        for number in range(TRANSFERS):
            weights = [("weight", torch.full((10,), float(TRANSFERS * training + number)))]
            asyncio.run(transfer.BucketedWeightSender(name, 1, use_shm=True).async_send_weights(iter(weights)))

    def receive(training: int, name: str) -> None:
        for _ in range(TRANSFERS):
            receiver = transfer.BucketedWeightReceiver(name, torch.device("cpu"), use_shm=True)
            receiver.receive_weights(lambda weights, _last: came[training].extend(float(w[0]) for _, w in weights))

    threads = [
        threading.Thread(target=run, args=(training, name), daemon=True)
        for training, name in enumerate(names)
        for run in (send, receive)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(came))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
