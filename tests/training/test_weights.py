"""Trainings on one host do not take each other's weights."""

import asyncio
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import ray
import torch
from online_parts import compose
from stand_in import StandIn, stood_in
from verl.workers.rollout import base

from cobalt.training.cluster import process_variables
from cobalt.training.config import completed

TRANSFERS = 20
VLLM = "0.24.0"


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """A stand-in for it. Both sides of the socket are veRL's own, in a process of rank 1 of job 1."""
    metadata = tmp_path / f"vllm-{VLLM}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(base._ROLLOUT_REGISTRY, ("vllm", "async"), "verl.workers.rollout.vllm_rollout.ServerAdapter")
    # of separate Rays: both are job 1
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01000000"))
    rank = {"RANK": "1", "RAY_LOCAL_WORLD_SIZE": "2", "VERL_REPLICA_RANK": "1", "VERL_RAY_JOB_ID": "01000000"}
    os.environ.update(rank)
    monkeypatch.setattr(torch.cpu, "empty_cache", lambda: None, raising=False)
    with stood_in(StandIn("vllm", __version__=VLLM)):
        yield
    sys.modules.pop("cobalt.training.weights", None)  # made from the stand-in, too


def test_each_training_sends_its_weights_to_its_own_engine(vllm, monkeypatch):
    from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer as transfer
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

    monkeypatch.setattr(transfer, "get_torch_device", lambda: torch.cpu)
    monkeypatch.setattr(transfer, "is_support_ipc", lambda: False)
    config = completed(compose())
    rollout = config.actor_rollout_ref.rollout
    for module in config.actor_rollout_ref.model.external_lib:  # which veRL's workers import
        importlib.reload(importlib.import_module(module))
    names = []
    for _training in range(2):
        os.environ.update(process_variables(config))
        adapter = base.get_rollout_class(rollout.name, rollout.mode)(rollout, SimpleNamespace(), None)
        worker = SimpleNamespace(local_rank=0, model_runner=SimpleNamespace())
        assert adapter.zmq_handle == vLLMColocateWorkerExtension._get_zmq_handle(worker)
        names.append(adapter.zmq_handle)
    assert names[0] != names[1]  # with one socket they take each other's weights, or wait for ever
    came = [[], []]

    def send(training):
        for number in range(TRANSFERS):
            weights = [("weight", torch.full((10,), float(TRANSFERS * training + number)))]
            sender = transfer.BucketedWeightSender(names[training], 1, use_shm=True)
            asyncio.run(sender.async_send_weights(iter(weights)))

    def receive(training):
        for _ in range(TRANSFERS):
            receiver = transfer.BucketedWeightReceiver(names[training], torch.device("cpu"), use_shm=True)
            receiver.receive_weights(lambda weights, _last: came[training].extend(float(w[0]) for _, w in weights))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, training) for training in range(2) for run in (send, receive)]:
            done.result()
    assert came == [[*map(float, range(20))], [*map(float, range(20, 40))]]
