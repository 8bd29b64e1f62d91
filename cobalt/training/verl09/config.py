"""The recipes' settings under the names that veRL 0.9.1 reads.

veRL 0.9.1 composes the older keys ``reward_model`` and ``custom_reward_function`` and ignores them without a word.
Here they move to ``reward``, so a recipe means the same on both stacks.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from cobalt.errors import InputError
from cobalt.training.scoring import MANAGER_NAME
from cobalt.training.settings import CPU_BACKEND, ONLINE_MANAGER_NAME

ROOM = "cobalt.training.verl09"
TRAINER_PREFIX = "cobalt_"
"""Before the names of veRL's trainers: what ours are registered as."""
TRAINER_MODES = ("sync", "colocate_async")
ENGINE_VENDOR = "cobalt"
SEEDED_LOOP = "cobalt_seeded"
MANAGER = "StreamingRewardManager"
WEIGHTS_VARIABLE = "COBALT_LOSS_WEIGHTS"
"""Environment variable of a training job: ``cobalt.loss_weights``, for the engine."""
BASE_RANK = "VERL_ZMQ_BASE_TRAINER_RANK"
"""veRL's environment variable: what vLLM adds to its rank in the name of the socket for weights."""


MOVED = {
    "reward_model": {"reward_manager", "reward_kwargs", "launch_reward_fn_async"},
    "custom_reward_function": {"path", "name", "reward_kwargs"},
    "sandbox_fusion": set[str](),
}
"""Older sections, and what of them has its place here: rewards are always computed while others are generated."""


INSTEAD = {
    "reward.custom_reward_function": "custom_reward_function",
    "reward.reward_manager": "reward_model.reward_manager",
    "reward.reward_kwargs": "reward_model.reward_kwargs",
}
"""Sections of veRL 0.9.1 that are filled from older ones, on both stacks the same."""
VERLS_OWN = {
    "reward.custom_reward_function.path": None,
    "reward.custom_reward_function.name": "compute_score",
    "reward.reward_manager.source": "register",
    "reward.reward_manager.name": "naive",
    "reward.reward_manager.module.path": None,
    "reward.reward_manager.module.name": "custom_reward_manager",
    "reward.reward_kwargs": None,
    "reward.num_workers": 8,
    "actor_rollout_ref.model.override_config.attn_implementation": None,
    "actor_rollout_ref.rollout.agent.default_agent_loop": "single_turn_agent",
    "trainer.use_v1": True,
    "transfer_queue.enable": False,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 8,
}
"""Settings that Cobalt sets, and their defaults in veRL 0.9.1."""


def adapted(config: DictConfig, given: Collection[str] = ()) -> DictConfig:
    """A copy of a composed configuration for veRL 0.9.1. Raises ``InputError`` for what has no meaning there.

    ``given``: names of settings on the command line, which are not overwritten, even if they are veRL's defaults.
    """
    if "cobalt" not in config:
        raise InputError("no recipe: +recipe=NAME is missing, see cobalt train --help")
    asked = config
    config = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    ours, model, rollout = config.cobalt, config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    on_cpu = ours.backend == CPU_BACKEND
    if on_cpu != (rollout.name == "hf"):
        raise InputError(f"actor_rollout_ref.rollout.name={rollout.name}: hf is for cobalt.backend=cpu, and only hf")
    modules = model.external_lib or []
    modules = [modules] if isinstance(modules, str) else modules
    if not isinstance(modules, list | ListConfig):
        raise InputError(f"actor_rollout_ref.model.external_lib={modules}: give a module, or a list of them")
    if (mode := config.trainer.v1.trainer_mode) not in TRAINER_MODES:
        raise InputError(f"trainer.v1.trainer_mode={mode}: choose {' or '.join(TRAINER_MODES)}")
    if ours.get("online") and config.algorithm.filter_groups.enable:
        raise InputError("algorithm.filter_groups.enable=true excludes cobalt.online: it looks at last programs only")
    if config.trainer.v1.sampler.sync_refill_failed_groups:
        raise InputError(
            "trainer.v1.sampler.sync_refill_failed_groups=true: lost responses are counted here, and too many of them"
            " end training, so veRL must not generate others instead"
        )
    if model.lora_rank > 0 and not model.lora.merge and config.actor_rollout_ref.actor.strategy != "fsdp2":
        raise InputError(
            "actor_rollout_ref.model.lora_rank needs actor_rollout_ref.actor.strategy=fsdp2: with fsdp on one GPU"
            " veRL 0.9.1 sends vLLM an empty adapter"
        )
    for section, moved in MOVED.items():
        for name in _set_in(config.get(section) or {}):
            if name.split(".")[0] not in moved:
                raise InputError(f"{section}.{name} does nothing in veRL 0.9.1; its settings are under reward")
    with open_dict(config):
        old = config.pop("reward_model")
        function = config.pop("custom_reward_function")
        config.reward.custom_reward_function = {**function, "name": function.name or "compute_score"}
        config.reward.reward_kwargs = old.get("reward_kwargs") or {}
        if old.get("launch_reward_fn_async") is False:
            raise InputError("reward_model.launch_reward_fn_async=false: veRL 0.9.1 scores while it generates")
        if old.reward_manager in (MANAGER_NAME, ONLINE_MANAGER_NAME):
            module = {"path": f"pkg://{ROOM}.manager", "name": "cobalt"}
            config.reward.reward_manager.update({"source": "importlib", "name": MANAGER, "module": module})
            if (own := rollout.agent.get("agent_loop_manager_class")) is not None:
                raise InputError(
                    f"actor_rollout_ref.rollout.agent.agent_loop_manager_class={own}: the reward manager"
                    f" {old.reward_manager} needs null, which is Cobalt's own"
                )
            rollout.agent.agent_loop_manager_class = f"{ROOM}.rollouts.CobaltAgentLoopManager"
            # one process: its event loop waits for programs, and equal programs meet there
            config.reward.num_workers = 1
        elif old.reward_manager:
            config.reward.reward_manager.name = old.reward_manager
        model.external_lib = [f"{ROOM}.worker", *modules]
        if ours.share_prompts:
            model.override_config.attn_implementation = "sdpa"
        if on_cpu:
            rollout.agent.default_agent_loop = SEEDED_LOOP
            rollout.agent.agent_loop_config_path = str(Path(__file__).with_name("agent_loops.yaml"))
            rollout.free_cache_engine = rollout.calculate_log_probs = False
            rollout.pop("micro_batch_size", None)  # of rollouts on veRL 0.5.0
            policy = config.actor_rollout_ref
            policy.actor.use_dynamic_bsz = ours.share_prompts
            policy.ref.log_prob_use_dynamic_bsz = rollout.log_prob_use_dynamic_bsz = ours.share_prompts
        if ours.get("online"):
            rollout.agent.default_agent_loop = ONLINE_MANAGER_NAME
            own_loops = rollout.agent.agent_loop_config_path
            rollout.agent.agent_loop_config_path = own_loops or str(Path(__file__).with_name("agent_loops.yaml"))
        sizes = rollout.tensor_model_parallel_size, rollout.data_parallel_size, rollout.pipeline_model_parallel_size
        if rollout.name == "vllm" and sizes == (1, 1, 1):
            # vLLM's own choice for one GPU. veRL's is a process more, which imports all again.
            rollout.engine_kwargs.vllm.setdefault("distributed_executor_backend", "uni")
        config.trainer.v1.trainer_mode = f"{TRAINER_PREFIX}{mode}"
        config.trainer.use_v1 = True
        config.transfer_queue.enable = True
        # its default of 8 asks for more CPUs than small machines have, and then waits in silence (veRL #7656)
        config.transfer_queue.backend.SimpleStorage.num_data_storage_units = config.trainer.nnodes
    for name, default in VERLS_OWN.items():
        value, ours = (OmegaConf.select(section, name) for section in (asked, config))
        if value != ours and (value != default or name in given):
            told = [f"is not read: give {older}" for newer, older in INSTEAD.items() if name.startswith(newer)]
            raise InputError(f"{name}={value} {told[0] if told else f'is {ours} with Cobalt: leave it out'}")
    return config


def _set_in(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of the settings that are not null, which is their default."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _set_in(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}"
