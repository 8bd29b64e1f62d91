"""How training comes to Ray: with our task runner, only where there is all that it would wait for, and how it ends."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
import torch
import transfer_queue
from online_parts import LOCAL, ROOT, compose
from ray.core.generated.common_pb2 import ActorDeathCause, ActorDiedErrorContext
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError

from cobalt.errors import CobaltError, InputError, SetupError
from cobalt.training import cluster, runner, scoring
from cobalt.training.config import completed


def no_actor(name, namespace):
    raise ValueError(f"no actor {name}")


@pytest.fixture
def cluster_of(monkeypatch):
    """Stands in for Ray, with these free resources by node. Gives the settings that it was started with."""
    started = []
    monkeypatch.setattr(runner.ray, "init", lambda **settings: started.append(settings))
    monkeypatch.setattr(runner.ray, "get_actor", no_actor)
    monkeypatch.setattr(runner, "cluster_address", lambda: "there:1")
    monkeypatch.setattr(scoring, "check_service", lambda *_, **__: {})
    monkeypatch.setenv("RAY_ADDRESS", "there:1")

    def run(*nodes):
        totals = {"GPU": sum(node["GPU"] for node in nodes)}
        by_node = dict(enumerate(nodes))
        monkeypatch.setattr(runner.ray, "cluster_resources", lambda: totals)
        monkeypatch.setattr(runner.ray._private.state, "available_resources_per_node", lambda: by_node)
        return started

    return run


def connect(config):
    return runner.connect_and_prepare(config, cluster.process_variables(config))


def test_training_starts_only_with_enough_gpus_and_where_programs_are_run(cluster_of, monkeypatch):
    started = cluster_of({"GPU": 1.0, "CPU": 5.0})
    monkeypatch.setenv("WANDB_DIR", "/somewhere")
    monkeypatch.delenv("RAY_ADDRESS")
    config = completed(compose(LOCAL, "ray_kwargs.ray_init.num_cpus=6"))
    trains = connect(config)
    assert (trains.func, *trains.args) == (runner.train, config)
    assert (started[0]["address"], started[0]["num_cpus"]) == ("local", 6)
    assert "py_executable" not in started[0]["runtime_env"]
    variables = started[0]["runtime_env"]["env_vars"]
    assert variables["WANDB_DIR"] == "/somewhere"
    folder = os.path.abspath(config.trainer.default_local_dir)
    assert variables["MLFLOW_TRACKING_URI"] == f"sqlite:///{folder}/mlflow.db"
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    with pytest.raises(InputError, match=r"ray_init\.num_cpus=6: the Ray at RAY_ADDRESS"):
        connect(config)
    config.ray_kwargs.ray_init.num_cpus = None
    config.trainer.n_gpus_per_node = 2
    with pytest.raises(SetupError, match=r"N_GPUS times N_NODES\): 2, in the Ray cluster: 1"):
        connect(config)
    config.trainer.n_gpus_per_node = 1
    config.reward.reward_kwargs = {"executor": "local", "no_such_limit": 1}
    with pytest.raises(InputError, match=r"reward\.reward_kwargs\.no_such_limit: no such"):
        connect(config)


@pytest.mark.parametrize("address", [None, "there:1"])
def test_ray_is_started_or_joined_as_asked(cluster_of, monkeypatch, address):
    started = cluster_of({"GPU": 1.0, "CPU": 5.0})
    monkeypatch.setenv("RAY_ADDRESS", address) if address else monkeypatch.delenv("RAY_ADDRESS")
    prefix = "ray_kwargs.ray_init"
    asked = f"+{prefix}.runtime_env.env_vars.NCCL_DEBUG=1", f"+{prefix}.log_to_driver=false"
    config = completed(compose(LOCAL, *asked, f"{prefix}.runtime_env.py_executable=python9", preset="one-gpu-coder"))
    connect(config)
    environment = started[0]["runtime_env"]
    assert environment["py_executable"] == "python9" and started[0]["log_to_driver"] is False
    variables = environment["env_vars"]
    assert (variables["NCCL_DEBUG"], variables["VLLM_USE_V2_MODEL_RUNNER"]) == ("1", "1")
    assert variables["TRANSFER_QUEUE_ENABLE"] == "1"
    with pytest.raises(InputError, match="give it as RAY_ADDRESS"):
        completed(compose(LOCAL, f"+{prefix}.address=there:1"))
    config = completed(compose(LOCAL, f"{prefix}.runtime_env=null"))
    assert "py_executable" not in runner.runtime_environment(config, {})


def test_a_ray_with_the_queue_of_another_training_is_refused(cluster_of, monkeypatch):
    cluster_of({"GPU": 1.0, "CPU": 5.0})
    asked = []
    monkeypatch.setattr(runner.ray, "get_actor", lambda *names: asked.append(names))
    with pytest.raises(SetupError, match="another training runs in the Ray at RAY_ADDRESS: wait"):
        connect(completed(compose(LOCAL)))

    def not_there(name, namespace):
        asked.append((name, namespace))
        raise ValueError

    monkeypatch.setattr(runner.ray, "get_actor", not_there)
    assert not transfer_queue.interface._init_from_existing()
    assert asked[0] == asked[1]  # the one that veRL's queue would attach to


def test_the_papers_token_counts_are_looked_up_before_training(cluster_of, monkeypatch):
    cluster_of({"GPU": 1.0, "CPU": 5.0})

    def offline(_name):
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "tiktoken", SimpleNamespace(get_encoding=offline))
    with pytest.raises(SetupError, match=r"lengths=o200k_base .* cannot be downloaded"):
        connect(completed(compose(LOCAL, "reward.reward_kwargs.lengths=o200k_base")))


@pytest.mark.parametrize(
    ("cpus", "told"),
    [
        ([16, 11], "16 CPUs and 4 GPUs, 11 CPUs and 4 GPUs"),  # the second node cannot hold its GPUs' part
        ([12, 14], "12 CPUs and 4 GPUs, 14 CPUs and 4 GPUs"),  # and here nothing is left for the queue
        ([12, 15], None),
    ],
)
def test_cpus_that_verl_would_wait_for_are_missed_before_training(cluster_of, cpus, told):
    cluster_of(*[{"GPU": 4.0, "CPU": free} for free in cpus])
    config = completed(compose(LOCAL, "trainer.n_gpus_per_node=4", "trainer.nnodes=2"))
    told = f"3 CPUs with each GPU, on its node, and for 3 more.*: {told}" if told else ""
    with pytest.raises(SetupError, match=told) if told else nullcontext():
        connect(config)


def test_a_local_ray_has_the_logical_cpus_that_verl_asks_for(cluster_of, monkeypatch):
    started = cluster_of({"GPU": 4.0, "CPU": 64.0})
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1})
    connect(completed(compose(LOCAL, "trainer.n_gpus_per_node=4")))
    assert started[0]["num_cpus"] == 4 * 3 + 2


@pytest.mark.parametrize(("limit", "told"), [(2, None), (3, "cpu_limit_s=2.0, not 3: .* reward.reward_kwargs")])
def test_programs_have_the_limits_of_the_configuration_or_training_does_not_begin(cluster_of, monkeypatch, limit, told):
    cluster_of({"GPU": 1.0, "CPU": 5.0})
    monkeypatch.setattr(scoring, "check_service", lambda *_, **__: {"cpu_limit_s": 2.0, "checker": "exact"})
    config = completed(compose(LOCAL, "trainer.n_gpus_per_node=1", f"+reward.reward_kwargs.cpu_limit_s={limit}"))
    config.reward.reward_kwargs.executor = "serve"
    with pytest.raises(InputError, match=told) if told else nullcontext():
        connect(config)


SLURM = {
    "scontrol": "echo n1; echo n2",
    "srun": """while [[ $1 == -* ]]; do shift; done
[[ $1 != rm ]] || exit 1 # as of a job that is cancelled
exec "$@" """,
    "ray": """if [[ $1 == start ]]; then echo " 1 node_" >>"$VENV/nodes"; exec sleep 60; fi
cat "$VENV/nodes" """,
    "sleep": '[[ $1 != 2 ]] || set 0.1; exec /bin/sleep "$1"',
}
"""In place of the programs: nodes are processes, and come at once."""


def slurm_job(folder, cpus):
    """Run the script of a job of two nodes, and a recipe that only ends with 5."""
    (folder / "bin").mkdir()
    (folder / "scripts").mkdir()
    (folder / "scripts/train_grpo_multi_turn.sh").write_text('echo "$EVALUATOR_ARGS, $*"; exit 5')
    for name, text in SLURM.items():
        (folder / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin/activate").write_text(f"PATH={folder}/bin:{Path(sys.executable).parent}:$PATH PYTHONPATH={ROOT}")
    job = {"SUBMIT_DIR": str(folder), "GPUS_ON_NODE": "4", "JOB_NUM_NODES": "2", "CPUS_PER_TASK": str(cpus)}
    job |= {"JOB_NODELIST": "n[1-2]", "JOB_ID": "7"}
    environment = {**os.environ, "VENV": str(folder), **{f"SLURM_{name}": value for name, value in job.items()}}
    environment.pop("EVALUATOR_ARGS", None)
    script = ["bash", str(ROOT / "scripts/slurm/train_multi_turn.sbatch"), "a=1"]
    return subprocess.run(script, env={"PYTHONPATH": "", **environment}, capture_output=True, text=True)


def test_a_slurm_job_without_cpus_for_programs_beside_verls_is_refused(tmp_path):
    done = slurm_job(tmp_path, 14)
    assert (done.returncode, done.stdout) == (2, "")
    assert "14 CPUs on a node with 4 GPUs, and the job has 14: submit it with more" in done.stderr


def test_a_slurm_job_ends_as_the_recipe_on_its_nodes_does_also_where_nothing_can_be_cleared(tmp_path):
    done = slurm_job(tmp_path, 64)
    assert (done.returncode, done.stdout) == (5, "replicas=2 workers=50, a=1\n"), done.stderr


def ended(state, error=None, run=None):
    """What a training tells of that ends with ``error``, or else waits until it is ended. ``state``: dead actors."""

    def fail():
        if error is None:
            Event().wait()
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "WATCH_S", 0.01)
        patch.setattr(runner.ray._private.state, "actors", lambda **_which: dict(enumerate(state)))
        patch.setattr(runner.ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01000000"))
        with pytest.raises(Exception, match=r".") as caught:
            cluster.run_and_watch(run or fail)
    return caught.value


class EngineDeadError(Exception):
    """As vLLM's: its text is the same whatever happened."""


DIED = "The actor died unexpectedly.\n\tclass_name: create.<locals>.WorkerDict\n\tactor_id: 9\n\tpid: 7\n\tip: 1\nmore"
CUDA_FULL = "CUDA out of memory. Tried 1.16 GiB. GPU 0 has 997.75 MiB is free. Process 1 has 3 GiB memory in use. If"
TORN = "[enforce fail at inline_container.cc:672] . unexpected pos 1240550528 vs 1240550416"


def dead(reason, name="create.<locals>.WorkerDict"):
    context = ActorDiedErrorContext(reason=reason, class_name=name, pid=7, actor_id=bytes(16))
    return {"DeathCause": ActorDeathCause(actor_died_error_context=context), "ActorClassName": name, "Pid": 7}


def test_a_killed_process_ends_a_training_that_waits_for_it():
    """veRL waits for its agent loops and its queue without end. What it ends itself is no such process."""
    shut_down = [dead(reason) for reason in ("RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED")]
    told = ended([*shut_down, dead("WORKER_DIED", "CobaltAgentLoopWorker")])
    assert isinstance(told, CobaltError) and told.exit_code == 1
    assert str(told).startswith("process 7 (CobaltAgentLoopWorker) was killed, perhaps for want of memory")


def test_a_killed_process_ends_a_training_whose_loop_waits_for_it_and_that_ignores_interrupts():
    """As one does that a script has started with ``&``."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told = ended([dead("WORKER_DIED")], run=lambda: asyncio.run(asyncio.sleep(60)))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert str(told).startswith("process 7 (WorkerDict) was killed")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (RayActorError("7", DIED), 1, "process 7 (WorkerDict) was killed"),
        (ActorUnavailableError("RPC error: Socket closed", bytes(16)), 1, "Ray or one of its nodes has ended"),
        (EngineDeadError("See stack trace (above)"), 1, "vLLM's engine was killed, perhaps for want of memory"),
        (OSError(errno.ENOSPC, "No space left", "out"), 3, "out: No space left; make room, then run the same command"),
        (torch.OutOfMemoryError(CUDA_FULL), 3, "CUDA out of memory. Tried 1.16 GiB. GPU 0 has 997.75 MiB is free; en"),
        (RuntimeError(TORN), 3, f"{TORN}; make room, then run the same command again"),
        (SetupError("no service"), 3, "no service"),
    ],
)
def test_an_error_of_another_process_is_told_in_one_line(error, code, told):
    found = ended([], RayTaskError("run", "its traceback", RayTaskError("save", "its traceback", error)))
    assert isinstance(found, CobaltError) and (found.exit_code, "\n" in str(found)) == (code, False)
    assert str(found).startswith(told)


def test_a_defect_in_another_process_keeps_its_traceback():
    defect = RayTaskError("run", "its traceback", ValueError("odd"))
    assert ended([], defect) is defect
    assert ended([], not_made := ActorDiedError(defect)) is not_made
