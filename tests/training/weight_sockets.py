"""Of two trainings on one host: what comes through the sockets by which vLLM takes weights.

Run by test_weights.py in a process of its own, where a stand-in takes the place of vLLM. Both sides of the socket are
veRL's own. The argument, in JSON: ``modules`` that workers import, settings of the ``rollout``, and the environment
``variables`` of each training. Prints the weights that each took, in JSON.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import torch
from stand_in import StandIn

TRANSFERS = 20
VLLM = "0.24.0"


def main(folder: Path, modules: list[str], rollout: dict[str, Any], variables: list[dict[str, str]]) -> None:
    metadata = folder / f"vllm-{VLLM}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}\n")
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, StandIn("vllm", __version__=VLLM))  # type: ignore[arg-type]
    # of separate Rays: both are job 1
    ray.get_runtime_context = lambda: SimpleNamespace(get_job_id=lambda: "01000000")
    os.environ.update(RANK="1", RAY_LOCAL_WORLD_SIZE="2", VERL_REPLICA_RANK="1", VERL_RAY_JOB_ID="01000000")

    from verl.utils.import_utils import import_external_libs
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

    transfer.get_torch_device, transfer.is_support_ipc = lambda: torch.cpu, lambda: False
    torch.cpu.empty_cache = lambda: None  # type: ignore[attr-defined]
    import_external_libs(modules)
    names: list[str] = []
    for own in variables:
        os.environ.update(own)
        sender = get_rollout_class(rollout["name"], rollout["mode"])
        adapter = sender(SimpleNamespace(**rollout), SimpleNamespace(), None)
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
        main(Path(made), **json.loads(sys.argv[1]))
