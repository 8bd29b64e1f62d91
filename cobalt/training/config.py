"""What Cobalt adds to a composed configuration of veRL, and what it refuses in one.

Recipes and presets (``verl/config``) are in veRL's own keys. Here is only what depends on other settings. What
veRL 0.9.1 would ignore, or Cobalt would overwrite, is refused.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import ListConfig, OmegaConf, open_dict

from cobalt.errors import InputError
from cobalt.training.composition import CONFIG_NAME, defaults
from cobalt.training.settings import CPU_BACKEND, KEEP, MANAGER, ONLINE_LOOP, SEEDED_LOOP, gpus_of, make_absolute

ROOM = "cobalt.training"
TRAINER_PREFIX = "cobalt_"
"""Before the names of veRL's trainers: what ours are registered as."""
TRAINER_MODES = ("sync", "colocate_async")
SGLANG = "sglang"
LARGEST_GRAPH = 512
"""Sequences. SGLang's own choice for one or two GPUs of 80 GB and more is 256, beyond which it has no CUDA graphs."""
VLLM = "vllm"
ENGINES = (VLLM, SGLANG)
"""Values of ``rollout.name`` on GPUs."""
STRATEGIES = ("fsdp", "fsdp2")
"""What our engines are registered for."""
PLAIN_ENGINE, SHARED_ENGINE = "cobalt", "cobalt_shared_prompts"
"""Values of ``VERL_ENGINE_VENDOR``: names of our engines."""
MANAGER_MODULE = f"pkg://{ROOM}.manager"
WEIGHTS_VARIABLE = "COBALT_LOSS_WEIGHTS"
"""Environment variable of a training job: ``cobalt.loss_weights``, for the engine."""
BASE_RANK = "VERL_ZMQ_BASE_TRAINER_RANK"
"""veRL's environment variable: what vLLM adds to its rank in the name of the socket for weights."""
MOVED = {
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_kwargs": "reward.reward_kwargs",
    "reward_model.launch_reward_fn_async": "",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model": "reward.reward_model",
    "custom_reward_function": "reward.custom_reward_function",
    "sandbox_fusion": "reward.sandbox_fusion",
}
"""Settings of older veRL that 0.9.1 ignores, and where they are now. The first that fits counts. Empty: always on."""
NEEDED = {
    "trainer.use_v1": True,
    "trainer.v1.sampler.sync_refill_failed_groups": False,
    "transfer_queue.enable": True,
    "actor_rollout_ref.actor.checkpoint.async_save": False,
    "distillation.enabled": False,
    **dict.fromkeys(("skip.rollout.enable", "skip.rollout_tq.enable", "skip.async_rollout.enable"), False),
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class": f"{ROOM}.rollouts.CobaltAgentLoopManager",
}
IGNORES = "veRL 0.9.1 ignores it"
PER_GPU = "veRL 0.9.1 wants it for each GPU: NAME_per_gpu"
OF_MEGATRON = "veRL 0.9.1 reads it with Megatron alone"
NO_CRITIC = "it is of a critic, and Cobalt trains none"
ENGINES_COMPILE = "actor_rollout_ref.{}.fsdp_config.use_torch_compile"
OF_ENGINES = {
    f"actor_rollout_ref.{role}.fsdp_config.{name}": f"give actor_rollout_ref.{role}.{name}"
    for role in ("actor", "ref")
    for name in ("strategy", "ulysses_sequence_parallel_size")
}
REPLACED = {
    "actor_rollout_ref.actor.use_torch_compile": (
        f"{IGNORES}; give {ENGINES_COMPILE.format('actor')} and {ENGINES_COMPILE.format('ref')}"
    ),
    "actor_rollout_ref.actor.use_prefix_grouper": f"{IGNORES}; give cobalt.share_prompts",
    "actor_rollout_ref.actor.grad_clip": f"{IGNORES}; give actor_rollout_ref.actor.optim.clip_grad",
    "actor_rollout_ref.actor.clip_ratio": "give actor_rollout_ref.actor.clip_ratio_low and clip_ratio_high",
    "actor_rollout_ref.actor.freeze_vision_tower": IGNORES,
    "actor_rollout_ref.actor.optim.total_training_steps": "give trainer.total_training_steps",
    **OF_ENGINES,
    "actor_rollout_ref.model.hf_config_path": "rollouts do not read it; give a model with this config.json",
    "actor_rollout_ref.hybrid_engine": IGNORES,
    "actor_rollout_ref.actor.ppo_micro_batch_size": PER_GPU,
    "actor_rollout_ref.ref.log_prob_micro_batch_size": PER_GPU,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size": PER_GPU,
    "actor_rollout_ref.nccl_timeout": IGNORES,
    "actor_rollout_ref.model.mtp.enable_train": OF_MEGATRON,
    "actor_rollout_ref.rollout.do_sample": f"{IGNORES} and always samples",
    "actor_rollout_ref.rollout.mode": "veRL 0.9.1 has no other",
    "actor_rollout_ref.rollout.over_sample_rate": IGNORES,
    "actor_rollout_ref.rollout.multi_stage_wake_up": IGNORES,
    "actor_rollout_ref.rollout.multi_turn.enable": f"{IGNORES}; the recipe says who plays turns",
    "actor_rollout_ref.rollout.multi_turn.num_repeat_rollouts": IGNORES,
    "algorithm.filter_groups.max_num_gen_batches": IGNORES,
    "algorithm.lam": NO_CRITIC,
    "algorithm.use_pf_ppo": NO_CRITIC,
    "data.tokenizer": f"{IGNORES}; give actor_rollout_ref.model.tokenizer_path",
    "data.use_shm": IGNORES,
    "data.return_raw_input_ids": IGNORES,
    "data.gen_batch_size": "give data.train_batch_size",
    "data.train_max_samples": "training takes whole files; give a shorter one",
    "trainer.balance_batch": f"{IGNORES} and always balances",
    "trainer.critic_warmup": NO_CRITIC,
    "trainer.default_hdfs_dir": f"{IGNORES} and saves to trainer.default_local_dir alone",
    "trainer.esi_redundant_time": f"{IGNORES}; give trainer.save_freq",
    "trainer.ray_wait_register_center_timeout": IGNORES,
    "trainer.max_actor_ckpt_to_keep": KEEP,
    "trainer.remove_previous_ckpt_in_save": KEEP,
    "ray_kwargs.ray_init.address": "give it as RAY_ADDRESS",
    "global_profiler.global_tool_config.nsys.controller_nsight_options": (
        "the main loop has no process of Ray's; run the command itself under nsys"
    ),
}
"""Settings that veRL 0.9.1 does not read, or that do not go with Cobalt, and why or what to give."""
OF_MANAGER = {
    "reward.reward_manager.source": "importlib",
    "reward.reward_manager.module.path": MANAGER_MODULE,
    # one process: its event loop waits for programs, and equal programs meet there
    "reward.num_workers": 1,
    "reward.reward_model.enable": False,
    "reward.sandbox_fusion.url": None,
}
"""What the recipes set for our reward manager, and it needs."""
CHOSEN = {
    "actor_rollout_ref.model.override_config.attn_implementation": None,
    "actor_rollout_ref.rollout.agent.default_agent_loop": "single_turn_agent",
}
"""Settings that ``completed`` may overwrite, and their defaults in veRL 0.9.1."""
NOT_CPU = {"seed": 42, "full_determinism": False, "ignore_eos": False, "quantization": None}
"""Settings of ``rollout`` that the sampler on CPU cores does not read, and their defaults."""
NOT_SGLANG = {
    "seed": 42,
    "full_determinism": False,
    "ignore_eos": False,
    "cudagraph_capture_sizes": None,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "logprobs_mode": "processed_logprobs",
    "scheduling_policy": "fcfs",
    "disable_log_stats": True,
    "quantization_config_file": None,
}
"""Settings of ``rollout`` that veRL 0.9.1 does not pass to SGLang, and their defaults."""
LOOPS = 8
"""Processes of agent loops: veRL's default for any number of GPUs, ours for each. A response takes one 5 to 8 ms."""
EQUAL_DRAWS = ("enable_deterministic_inference", "rl_on_policy_target")
"""SGLang's options for which requests must bring seeds, and veRL's bring none."""

OWN_OLD = "own_old_log_probs"
"""Of an update's batch: its own log-probabilities are the old ones."""


def has_own_manager(config: Any) -> bool:
    """Whether responses are scored by our reward manager."""
    return config.reward.reward_manager.name == MANAGER


def has_own_old(config: Any) -> bool:
    """Whether old log-probabilities need no pass of their own.

    They are those of the policy before the step. With one update a step the update computes them anyway, and every
    ratio is 1. What else reads them keeps the pass.
    """
    policy, algorithm = config.actor_rollout_ref, config.algorithm
    is_one = policy.actor.ppo_epochs == 1 and config.data.train_batch_size == policy.actor.ppo_mini_batch_size
    is_read = policy.rollout.calculate_log_probs or algorithm.use_kl_in_reward or algorithm.adv_estimator != "grpo"
    return config.cobalt.share_prompts and is_one and not is_read


def scores_later(config: Any) -> bool:
    """Whether a step's responses are handed over before they are scored, so that passes run while programs do.

    ``config``: as ``completed`` makes it. Not where scores choose a step's groups, and not asynchronously, where veRL
    throws groups away that are scored still.
    """
    return config.trainer.v1.trainer_mode == f"{TRAINER_PREFIX}sync" and not config.algorithm.filter_groups.enable


def completed(config: Any, given: Collection[str] = ()) -> Any:
    """A copy of a composed configuration, as veRL is to run it. Raises ``InputError`` for what it would not obey.

    ``given``: names of settings on the command line, which are not overwritten, even if they are veRL's defaults.
    """
    if "cobalt" not in config:
        known = config.get("recipe")  # a group that hydra finds in no folder becomes a plain setting
        raise InputError(
            f"+recipe={known}: recipes are looked up in --config-dir, as verl/config, and it is missing"
            if known
            else "no recipe: give --config-dir verl/config +recipe=multi_turn data.train_files=FILE data.val_files=FILE"
            ", or run scripts/train_grpo_multi_turn.sh; see cobalt train --help"
        )
    _refuse_ignored(config)
    if missing := OmegaConf.missing_keys(config.cobalt):
        raise InputError(f"missing: {', '.join(sorted(missing))}; or choose another recipe")
    if complaint := next(_complaints(config), None):
        raise InputError(complaint)
    asked, resolved = config, OmegaConf.to_container(config, resolve=True)
    config = OmegaConf.create(resolved)
    cobalt, model, rollout = config.cobalt, config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    modules = model.external_lib or []
    modules = [modules] if isinstance(modules, str) else modules
    with open_dict(config):
        # Ray's processes have the working directory of whoever started Ray: a checkpoint would lie in two folders
        config.trainer.default_local_dir = os.path.abspath(config.trainer.default_local_dir)
        make_absolute(model, "path", "tokenizer_path", "lora_adapter_path")
        make_absolute(config.reward.custom_reward_function, "path")
        make_absolute(config.trainer, "resume_from_path")  # veRL takes a slash at its end for a part of the step
        model.external_lib = [f"{ROOM}.worker", *modules]
        if cobalt.share_prompts:
            model.override_config.attn_implementation = "sdpa"
        if cobalt.backend == CPU_BACKEND or cobalt.get("online"):
            rollout.agent.default_agent_loop = ONLINE_LOOP if cobalt.get("online") else SEEDED_LOOP
            own_loops = rollout.agent.agent_loop_config_path
            rollout.agent.agent_loop_config_path = own_loops or str(Path(__file__).with_name("agent_loops.yaml"))
        if rollout.agent.num_workers == LOOPS and "actor_rollout_ref.rollout.agent.num_workers" not in given:
            rollout.agent.num_workers *= gpus_of(config.trainer)
        if not config.actor_rollout_ref.actor.kl_loss_coef:
            config.actor_rollout_ref.actor.use_kl_loss = False  # veRL would load the reference, and ask it in each step
        if has_own_old(config):
            config.actor_rollout_ref.actor.calculate_entropy = True  # else the pass that falls away tells it
        sizes = rollout.tensor_model_parallel_size, rollout.data_parallel_size, rollout.pipeline_model_parallel_size
        if rollout.name == VLLM and sizes == (1, 1, 1):
            # vLLM's own choice for one GPU. veRL's is a process more, which imports all again.
            rollout.engine_kwargs.vllm.setdefault("distributed_executor_backend", "uni")
        if rollout.name == SGLANG:  # veRL passes the first to vLLM only; vLLM's own graphs are as large as the second
            rollout.engine_kwargs.sglang.setdefault("chunked_prefill_size", rollout.max_num_batched_tokens)
            rollout.engine_kwargs.sglang.setdefault("cuda_graph_max_bs", min(rollout.max_num_seqs, LARGEST_GRAPH))
        config.trainer.v1.trainer_mode = f"{TRAINER_PREFIX}{config.trainer.v1.trainer_mode}"
        if config.trainer.val_only:  # veRL would train without it
            config.trainer.val_before_train = True
    for name, default in CHOSEN.items():
        value, chosen = (OmegaConf.select(section, name) for section in (asked, config))
        if value != chosen and (value != default or name in given):
            raise InputError(f"{name}={value} is {chosen} with these settings of Cobalt: leave it out")
    return config


def _complaints(config: Any) -> Iterator[str]:
    """What of a resolved configuration veRL or Cobalt would not obey. Raises ``InputError``, too."""
    policy, algorithm, online = config.actor_rollout_ref, config.algorithm, config.cobalt.get("online")
    model, rollout, on_cpu = policy.model, policy.rollout, config.cobalt.backend == CPU_BACKEND
    named, strategy, mode = "actor_rollout_ref.rollout.", policy.actor.strategy, config.trainer.v1.trainer_mode
    if on_cpu != (rollout.name == "hf"):
        yield f"{named}name={rollout.name}: hf is for cobalt.backend=cpu, and only hf"
    if not on_cpu and rollout.name not in ENGINES:
        yield f"{named}name={rollout.name}: choose {' or '.join(ENGINES)}"
    for engine, options in rollout.engine_kwargs.items():
        if options and engine != rollout.name:
            yield f"{named}engine_kwargs.{engine} is not read with rollout.name={rollout.name}"
    if rollout.name == SGLANG:
        yield from _complaints_of_sglang(rollout, model)
    if correction := algorithm.rollout_correction or {}:
        told = f"{IGNORES}; give actor_rollout_ref.actor.policy_loss.loss_mode"
        refuse_changed(config, CONFIG_NAME, {"algorithm.rollout_correction.loss_type": told})
    for name in ("rollout_is", "rollout_rs", "bypass_mode"):
        if value := correction.get(name):
            setting = f"algorithm.rollout_correction.{name}={value}"
            if not rollout.calculate_log_probs:
                yield f"{setting} needs {named}calculate_log_probs=true"
            if name != "bypass_mode" and correction.get("bypass_mode"):
                yield f"{setting} is not read with algorithm.rollout_correction.bypass_mode=true"
    if on_cpu and rollout.calculate_log_probs:
        yield f"{named}calculate_log_probs=true: rollouts on CPU cores give none"
    if on_cpu and model.lora_rank > 0:
        yield f"actor_rollout_ref.model.lora_rank={model.lora_rank}: rollouts on CPU cores take no adapter"
    served = rollout.engine_kwargs.vllm.get("hf_overrides")
    for name, value in (model.override_config or {}).items():
        if name != "attn_implementation" and not (isinstance(served, Mapping) and served.get(name) == value):
            also = f"vLLM's do if {named}engine_kwargs.vllm.hf_overrides says the same"
            yield f"actor_rollout_ref.model.override_config.{name}={value}: rollouts do not read it; {also}"
    for name, default in NOT_CPU.items() if on_cpu else ():
        if rollout[name] != default:
            hint = "; give cobalt.seed" if name == "seed" else ""
            yield f"{named}{name}={rollout[name]}: on CPU cores it must be {default}{hint}"
    for section, sampling in (("", rollout), ("val_kwargs.", rollout.val_kwargs)):
        if on_cpu and sampling.top_k > 0:
            yield f"{named}{section}top_k={sampling.top_k}: on CPU cores it must be 0 or less"
    if not isinstance(model.external_lib or "", str | ListConfig):
        yield f"actor_rollout_ref.model.external_lib={model.external_lib}: give a module, or a list of them"
    if mode not in TRAINER_MODES:
        yield f"trainer.v1.trainer_mode={mode}: choose {' or '.join(TRAINER_MODES)}"
    if online and algorithm.filter_groups.enable:
        yield "algorithm.filter_groups.enable=true excludes cobalt.online: it looks at last programs only"
    for role in ("actor", "ref"):
        if policy[role].strategy not in STRATEGIES:
            yield f"actor_rollout_ref.{role}.strategy={policy[role].strategy}: choose {' or '.join(STRATEGIES)}"
    estimator, gamma = algorithm.adv_estimator, algorithm.gamma
    if config.critic.enable or estimator == "gae":
        yield "algorithm.adv_estimator=gae and critic.enable=true: Cobalt trains no critic"
    if gamma != 1 and estimator != "reinforce_plus_plus":
        instead = "; give cobalt.online.gamma" if online else ""
        yield f"algorithm.gamma={gamma} is not read with algorithm.adv_estimator={estimator}{instead}"
    if model.lora_rank > 0 and not model.lora.merge and strategy != "fsdp2":
        needs = "actor_rollout_ref.actor.strategy=fsdp2: with fsdp on one GPU"
        yield f"actor_rollout_ref.model.lora_rank needs {needs} veRL 0.9.1 sends rollouts an empty adapter"
    for role in ("actor", "ref"):
        if policy[role].fsdp_config.offload_policy and policy[role].strategy != "fsdp2":
            needs = f"needs actor_rollout_ref.{role}.strategy=fsdp2: with fsdp"
            yield f"actor_rollout_ref.{role}.fsdp_config.offload_policy=true {needs} {IGNORES}"


def _refuse_ignored(config: Any) -> None:
    """Raise ``InputError`` for settings that veRL 0.9.1 does not read, and for values that Cobalt cannot work with."""
    for section in dict.fromkeys(name.split(".")[0] for name in MOVED):
        for name, value in flat(config.get(section) or {}, f"{section}."):
            if value is not None:  # the default of all of them
                refuse_moved(name)
    refuse_changed(config, CONFIG_NAME, REPLACED | lora_of_megatron(CONFIG_NAME, "actor_rollout_ref.model"))
    if not config.actor_rollout_ref.rollout.val_kwargs.do_sample:  # recipes say true, veRL false
        setting = "actor_rollout_ref.rollout.val_kwargs."
        raise InputError(f"{setting}do_sample: {IGNORES}; give {setting}temperature=0")
    needed = dict(NEEDED)
    if has_own_manager(config):
        needed |= OF_MANAGER
    elif (manager := config.reward.reward_manager).module.path == MANAGER_MODULE and manager.source != "register":
        raise InputError(
            f"reward.reward_manager.name={manager.name}: for one of veRL's managers give"
            " reward.reward_manager.source=register, too"
        )
    for name, value in needed.items():
        if (found := OmegaConf.select(config, name)) != value:
            raise InputError(f"{name}={found}: Cobalt needs {value}")


def refuse_changed(config: Any, config_name: str, told: Mapping[str, str]) -> None:
    """Raise ``InputError`` for the first of these settings that has not veRL's own value, and what is told of it."""
    of_verl = defaults(config_name)
    for name, why in told.items():
        if OmegaConf.select(config, name) != OmegaConf.select(of_verl, name):
            raise InputError(f"{name}: {why}")


def lora_of_megatron(config_name: str, model: str) -> dict[str, str]:
    """The settings of a model's section ``lora`` but ``merge``, which alone is read with FSDP, and what to give."""
    why = f"{OF_MEGATRON}; give {model}.lora_rank, lora_alpha, target_modules, exclude_modules or lora_adapter_path"
    lora = OmegaConf.select(defaults(config_name), f"{model}.lora")
    return {f"{model}.lora.{name}": why for name in lora if name != "merge"}


def _complaints_of_sglang(rollout: Any, model: Any) -> Iterator[str]:
    """Settings that SGLang would not obey, or would fail on after minutes."""
    prefix = "actor_rollout_ref.rollout."
    for name, default in NOT_SGLANG.items():
        if (value := rollout[name]) != default:
            own = f"SGLang's own options go to {prefix}engine_kwargs.sglang"
            yield f"{prefix}{name}={value}: with SGLang it must be {default}; {own}"
    for name in EQUAL_DRAWS:
        if rollout.engine_kwargs.sglang.get(name):
            yield f"{prefix}engine_kwargs.sglang.{name} would make all responses to a prompt equal"
    if rollout.quantization not in (None, "fp8"):
        yield f"{prefix}quantization={rollout.quantization}: with SGLang it is fp8 or null"
    modules = model.target_modules
    if model.lora_rank > 0 and not model.lora.merge and isinstance(modules, str) and modules != "all-linear":
        yield f"actor_rollout_ref.model.target_modules={modules}: with SGLang give all-linear or a list"


def refuse_moved(name: str) -> None:
    """Raise ``InputError`` for a setting of older veRL, with its place today."""
    if older := next((older for older in MOVED if f"{name}.".startswith(f"{older}.")), None):
        newer = MOVED[older] and f"give {MOVED[older]}{name.removeprefix(older)}"
        raise InputError(f"{name}: {IGNORES}; {newer or 'it always scores while it generates'}")


def flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings of nested sections by their dotted names."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
