"""What trainings tell their processes, and how one ends where a process of it is killed."""

import os
import re
import secrets
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cobalt.cli.entry import for_the_user
from cobalt.errors import CobaltError
from cobalt.records.manifest import without_userinfo
from cobalt.training.config import BASE_RANK, PLAIN_ENGINE, ROOM, SHARED_ENGINE, WEIGHTS_VARIABLE
from cobalt.training.settings import CPU_BACKEND

LOGGER_FOLDERS = {"WANDB_DIR": "", "TENSORBOARD_DIR": "tensorboard", "TRACKIO_DIR": "trackio"}
"""Environment variables that say where a logger writes, and where that is in a training folder."""
CPUS_PER_GPU = 3
"""Ray's CPUs that veRL asks for with each GPU, on the GPU's node."""
WATCH_S = 2.0
"""Between two looks whether the processes of a training live."""
DIED = re.compile(r"class_name: (?:.*\.)?(\w+)$.*?pid: (\d+)$", re.MULTILINE | re.DOTALL)
"""In Ray's text about an actor that has ended."""
KILLED = "{} was killed, perhaps for want of memory, or crashed; run the same command again to go on"
RAY_ENDED = (
    "Ray or one of its nodes has ended; run the same command again to go on, after `ray start` if the cluster is yours"
)
ENGINE_ERROR = "EngineDeadError"
"""vLLM's, by its name: on CPU cores there is no vLLM to import it from."""


def cpus_of_node(gpus: int) -> int:
    """Ray's CPUs that veRL may ask for on one node with so many GPUs."""
    return gpus * CPUS_PER_GPU + 2


def cpu_variables(processes: int) -> dict[str, str]:
    """Environment variables of training on CPU cores, where each of so many processes gets its share of them."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    # veRL's queue otherwise takes 8 threads to pack tensors, and warns of each time that there are fewer cores
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "TQ_NUM_THREADS": "1"}


def logger_variables(folder: Path) -> dict[str, str]:
    """Environment variables of veRL's loggers, which write to the training folder unless ours names another place."""
    given = {name: os.environ.get(name) or folder / place for name, place in LOGGER_FOLDERS.items()}
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute()}/mlflow.db"
    return {**{name: os.path.abspath(path) for name, path in given.items()}, "MLFLOW_TRACKING_URI": uri}


def engine_variables(config: Any, weights: str, is_shared: bool) -> dict[str, str]:
    """Environment variables of processes that compute with our engines. ``weights``: ``cobalt.loss_weights``."""
    variables = {
        WEIGHTS_VARIABLE: weights,
        "VERL_ENGINE_VENDOR": SHARED_ENGINE if is_shared else PLAIN_ENGINE,
        # FlashAttention 4 would compile for half a minute at each start
        "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1",
        # Liger's own choice on Hopper compiles for each length of a micro-batch, which takes longer than the update
        "LIGER_KERNEL_IMPL_ROPE": "nvidia-triton",
    }
    if config.cobalt.backend == CPU_BACKEND:
        variables |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": f"{ROOM}.cpu"}
        variables |= cpu_variables(config.trainer.n_gpus_per_node)
    return variables


def process_variables(config: Any) -> dict[str, str]:
    """Environment variables of all processes of a training, veRL's own left out, with those that ``ray_kwargs`` adds.

    This process needs them before it imports veRL.
    """
    variables = {
        "TRANSFER_QUEUE_ENABLE": "1",
        # veRL keeps vLLM from storing what it compiles, so each start would compile again
        "VLLM_DISABLE_COMPILE_CACHE": "0",
        BASE_RANK: str(secrets.randbits(48)),
        **engine_variables(config, config.cobalt.loss_weights, config.cobalt.share_prompts),
    }
    loggers = logger_variables(Path(config.trainer.default_local_dir))
    loggers |= {"WANDB_MODE": os.environ["WANDB_MODE"]} if "WANDB_MODE" in os.environ else {}
    # Ray would show a password
    variables |= {name: value for name, value in loggers.items() if value == without_userinfo(value)}
    asked = (asked_of_ray(config)["runtime_env"] or {}).get("env_vars") or {}
    return {**variables, **{name: str(value) for name, value in asked.items() if value is not None}}


def asked_of_ray(config: Any) -> dict[str, Any]:
    """Arguments of ``ray.init`` by ``ray_kwargs.ray_init``."""
    asked: Any = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    return asked


def as_written(actor_class: Any) -> Any:
    """The class that ``ray.remote`` has decorated. A subclass of what Ray made of it would have its name in Ray."""
    return actor_class.__ray_metadata__.modified_class.__ray_actor_class__


def cause_of(error: BaseException) -> BaseException:
    """The error of the process where it was raised, which Ray wraps for each process that waited for it."""
    from ray.exceptions import RayTaskError

    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error


def first_killed() -> tuple[str, int] | None:
    """Class and process of an actor of this job that has ended by itself, if one has."""
    import ray
    from ray._private import state

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    for actor in state.actors(job_id=job, actor_state_name="DEAD").values():
        cause = actor["DeathCause"]
        context = cause.actor_died_error_context
        if cause.HasField("oom_context") or context.reason in (context.WORKER_DIED, context.NODE_DIED):
            return actor["ActorClassName"].rpartition(".")[2], actor["Pid"]
    return None


class Stopped(KeyboardInterrupt):
    """Leaves a training, whatever it waits for: asyncio's loops let nothing but interrupts through."""


def run_and_watch(run: Callable[[], None]) -> None:
    """Call ``run``, which trains in this process and others of this job of Ray. To be called in the main thread.

    Raises ``CobaltError`` where one of them or vLLM's engine is killed, even if others go on waiting for it, or where
    the disk is full.
    """
    from ray.exceptions import RayActorError

    killed: list[tuple[str, int]] = []
    ended, main = threading.Event(), threading.get_ident()

    def watch() -> None:
        while not ended.wait(WATCH_S) and not killed:
            if (found := first_killed()) is not None and not ended.is_set():
                killed.append(found)
                signal.pthread_kill(main, signal.SIGUSR1)

    def stop(*_: Any) -> None:
        raise Stopped

    usual = signal.signal(signal.SIGUSR1, stop)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        run()
    except (Exception, Stopped) as error:
        cause = cause_of(error)
        if isinstance(cause, RayActorError) and not killed and (named := DIED.search(str(cause))):
            killed.append((named[1], int(named[2])))
        if killed:
            name, pid = killed[0]
            raise CobaltError(KILLED.format(f"process {pid} ({name})")) from error
        if isinstance(cause, RayActorError) and not cause.actor_init_failed:
            raise CobaltError(RAY_ENDED) from error
        if type(cause).__name__ == ENGINE_ERROR:
            raise CobaltError(KILLED.format("vLLM's engine")) from error
        if (known := for_the_user(cause)) is not None:
            raise known from error
        raise
    finally:
        ended.set()
        watcher.join(WATCH_S)  # it may be asking Ray
        signal.signal(signal.SIGUSR1, usual)
