"""What users ask for beyond the recipes: each option composes, is checked, and reaches the real veRL, or is refused."""

import json
import re
from pathlib import Path

import hydra
import pytest
import torch
import verl
from omegaconf import OmegaConf
from online_parts import LOCAL, MODEL, ROOT, compose
from verl.trainer.ppo.reward import resolve_reward_manager_cls
from verl.trainer.ppo.utils import need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass

from cobalt.errors import InputError
from cobalt.training import cluster, launch, preflight
from cobalt.training.config import (
    CHOSEN,
    MOVED,
    NEEDED,
    OF_MANAGER,
    REPLACED,
    SHARED_ENGINE,
    completed,
    flat,
)
from cobalt.training.hydra_main import refuse_misspelt
from cobalt.training.trainer import CobaltTrainerSync

POLICY = "actor_rollout_ref"
LORA = [f"{POLICY}.model.lora_rank=32", f"{POLICY}.model.lora_alpha=32", f"{POLICY}.rollout.load_format=safetensors"]
FP8 = [f"{POLICY}.rollout.quantization=fp8"]
LOSS = f"{POLICY}.actor.policy_loss.loss_mode"
GSPO = [f"{LOSS}=gspo", f"{POLICY}.actor.loss_agg_mode=seq-mean-token-mean"]
CISPO = [f"{LOSS}=cispo", f"{POLICY}.actor.clip_ratio_low=10"]
DR_GRPO = [
    "algorithm.norm_adv_by_std_in_grpo=false",
    f"{POLICY}.actor.loss_agg_mode=seq-mean-token-sum-norm",
    f"{POLICY}.actor.loss_scale_factor=6144",
    "cobalt.loss_weights=tokens",
    f"{POLICY}.actor.kl_loss_coef=0",
]
LITE_PPO = ["algorithm.adv_estimator=reinforce_plus_plus_baseline", "cobalt.loss_weights=tokens"]
VERPO_3 = [f"cobalt.online.{name}" for name in ("test_weights=density", "turn_baseline=all_turns", "gamma=0")]
RELEASE = ["cobalt.loss_weights=release", f"{POLICY}.actor.ppo_micro_batch_size_per_gpu=2"]
REGISTER = "reward.reward_manager.source=register"
EXECUTOR = "distributed_executor_backend"
LOOPS = f"{POLICY}.rollout.agent.num_workers=8"


@pytest.fixture
def check(monkeypatch, tmp_path):
    """``cobalt train --check`` on a machine with a GPU and vLLM. Gives the configuration that veRL gets."""
    monkeypatch.setattr(preflight, "find_spec", lambda _name: object())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    files = ["data.train_files=memory://train", "data.val_files=memory://test"]
    places = [*files, f"trainer.default_local_dir={tmp_path}", f"{POLICY}.model.path={MODEL}"]

    def checked(*overrides, **groups):
        config = compose(*places, *overrides, **groups)
        return launch.checked(config)[0]

    return checked


def rollout_of(config):
    return omega_conf_to_dataclass(config.actor_rollout_ref.rollout)


def test_a_recipe_is_run_by_our_trainer_manager_and_engine():
    config = completed(compose(LOCAL))
    assert get_trainer_cls(config.trainer.v1.trainer_mode) is CobaltTrainerSync
    assert resolve_reward_manager_cls(config).__name__ == "StreamingRewardManager"
    assert cluster.process_variables(config)["VERL_ENGINE_VENDOR"] == SHARED_ENGINE


@pytest.mark.parametrize(("coefficient", "is_loaded"), [(0, False), (1e-4, True)])
def test_a_reference_is_loaded_only_where_a_term_needs_it(coefficient, is_loaded):
    config = completed(compose(LOCAL, f"{POLICY}.actor.kl_loss_coef={coefficient}"))
    assert need_reference_policy(config) == is_loaded


@pytest.mark.parametrize(
    ("overrides", "groups"),
    [
        ([*LORA, f"{POLICY}.actor.strategy=fsdp2"], {}),
        ([*LORA, f"{POLICY}.actor.strategy=fsdp2"], {"recipe": "grpo_online"}),
        (["data.max_prompt_length=1024", "data.max_response_length=3072"], {"preset": "paper-qwen3-lora"}),
    ],
)
def test_lora_reaches_actor_and_vllm(check, overrides, groups):
    config = check(*overrides, **groups)
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 32, "all-linear")
    assert rollout_of(config).load_format == "safetensors"


@pytest.fixture
def model_with(tmp_path):
    """The setting of a model like MiniCoder, with another shape."""

    def make(**changes):
        for file in MODEL.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        shape = json.loads((MODEL / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**shape, **changes}))
        return f"{POLICY}.model.path={tmp_path}"

    return make


def test_fp8_reaches_vllm(check, model_with):
    config = check(*FP8, model_with(num_attention_heads=4, num_key_value_heads=2))
    assert rollout_of(config).quantization == "fp8"
    with pytest.raises(InputError, match="multiples of 128, and num_attention_heads x head_dim is 192"):
        check(*FP8)
    cache = check(f"+{POLICY}.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8")
    assert rollout_of(cache).engine_kwargs["vllm"]["kv_cache_dtype"] == "fp8"


def test_a_model_whose_prompts_cannot_be_shared_is_refused_with_the_way_out(check, model_with):
    model = model_with(model_type="qwen3_5")
    with pytest.raises(InputError, match=r"of the type qwen3_5, .* take cobalt\.share_prompts=false$"):
        check(model)
    check(model, "cobalt.share_prompts=false", f"{POLICY}.model.use_remove_padding=false")


@pytest.mark.parametrize(
    ("preset", "change"),
    [("cpu", {"use_sliding_window": True, "sliding_window": 64}), ("one-gpu-vllm", {"attention_dropout": 0.1})],
)
def test_a_model_with_windows_or_dropout_shares_no_prompts(check, model_with, preset, change):
    named = re.escape("{}={}".format(*next(iter(change.items()))))
    with pytest.raises(InputError, match=rf"has {named}, and prompts cannot be shared with it: take cobalt\.share_pr"):
        check(model_with(**change), preset=preset)
    own = ["cobalt.share_prompts=false", "cobalt.loss_weights=tokens", f"{POLICY}.model.use_remove_padding=false"]
    check(model_with(**change), *own, preset=preset)


def test_fused_kernels_are_refused_where_fsdp2_splits_the_output_layer(check, model_with):
    own = ["cobalt.share_prompts=false", "cobalt.loss_weights=tokens", f"{POLICY}.model.use_fused_kernels=true"]
    split = [*own, f"{POLICY}.actor.strategy=fsdp2"]
    model = model_with(tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"needs actor_rollout_ref.actor.strategy=fsdp for a model with an output"):
        check(*split, model)
    check(*own, model)
    check(*split, model_with(tie_word_embeddings=True))


@pytest.mark.parametrize(
    ("overrides", "processes"),
    [
        (["trainer.n_gpus_per_node=1"], 8),
        (["trainer.n_gpus_per_node=4"], 32),
        (["trainer.n_gpus_per_node=1", "trainer.nnodes=2"], 16),
        (["trainer.n_gpus_per_node=4", LOOPS], 8),
    ],
)
def test_agent_loops_are_as_many_for_each_gpu(overrides, processes):
    given = {override.split("=")[0] for override in overrides}
    assert completed(compose(*overrides), given).actor_rollout_ref.rollout.agent.num_workers == processes


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {EXECUTOR: "uni"}),
        ([f"+{POLICY}.rollout.engine_kwargs.vllm.{EXECUTOR}=mp"], {EXECUTOR: "mp"}),
        ([f"{POLICY}.rollout.tensor_model_parallel_size=2"], {}),
    ],
)
def test_an_engine_on_one_gpu_is_one_process(overrides, expected):
    assert completed(compose(*overrides)).actor_rollout_ref.rollout.engine_kwargs.vllm == expected


@pytest.mark.parametrize(
    ("recipe", "preset", "loop"),
    [
        ("multi_turn", "one-gpu-vllm", "single_turn_agent"),
        ("multi_turn", "cpu", "cobalt_seeded"),
        ("grpo_online", "one-gpu-vllm", "cobalt_online"),
        ("verpo_online", "cpu", "cobalt_online"),
    ],
)
def test_the_agent_loop_follows_from_recipe_and_preset(recipe, preset, loop):
    agent = completed(compose(recipe=recipe, preset=preset)).actor_rollout_ref.rollout.agent
    assert agent.default_agent_loop == loop
    if loop != "single_turn_agent":
        assert loop in {entry.name for entry in OmegaConf.load(agent.agent_loop_config_path)}


@pytest.mark.parametrize("override", ["json", "[json]"])
def test_what_a_user_has_workers_import_is_imported_beside_ours(override):
    model = completed(compose(f"{POLICY}.model.external_lib={override}")).actor_rollout_ref.model
    assert list(model.external_lib) == ["cobalt.training.worker", "json"]


def test_the_third_version_of_verpo_is_a_row_of_settings(check):
    method = check(*VERPO_3, "cobalt.online.outcome_decay=0.995", recipe="verpo_online").cobalt.online
    assert (method.test_weights, method.turn_baseline, method.outcome_decay) == ("density", "all_turns", 0.995)


@pytest.mark.parametrize(
    "loss", [GSPO, CISPO, DR_GRPO, LITE_PPO, [*CISPO, *RELEASE], [f"{LOSS}=gspo", *RELEASE], [f"{LOSS}=clip_cov"]]
)
def test_losses_that_go_with_the_weights_of_tokens(check, loss):
    check(*loss)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([*GSPO, *RELEASE], "loss_weights=release needs .*vanilla or gspo or cispo, not seq-mean-token-mean"),
        ([f"{LOSS}=clip_cov", *RELEASE], "loss_mode=vanilla or gspo or cispo, not token-mean and clip_cov"),
        ([*DR_GRPO, f"{POLICY}.actor.loss_scale_factor=null"], "seq-mean-token-sum-norm needs .*loss_scale_factor"),
        ([f"{LOSS}=dro"], "loss_mode=dro needs .*dro_beta above 0"),
        (["cobalt.share_prompts=false", *RELEASE], "loss_weights=release needs cobalt.share_prompts=true"),
        ([f"{POLICY}.actor.use_dynamic_bsz=false"], "share_prompts needs .*use_dynamic_bsz=True"),
        (
            [*LORA, f"{POLICY}.actor.strategy=fsdp2", f"{POLICY}.model.target_modules=[q_proj,lm_head]"],
            "shared with an adapter of lm_head: take cobalt.share_prompts=false",
        ),
        (
            ["trainer.n_gpus_per_node=2", f"{POLICY}.rollout.n=1", f"{POLICY}.actor.ppo_mini_batch_size=3"],
            r"ppo_mini_batch_size=3 times .*rollout\.n=1 cannot be shared by 2 GPUs",
        ),
    ],
)
def test_what_would_train_otherwise_than_asked_is_refused(check, overrides, told):
    with pytest.raises(InputError, match=told) as refused:
        check(*overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "newer"),
    [
        ("reward_model.reward_manager=naive", "give reward.reward_manager.name"),
        ("+reward_model.reward_kwargs.executor=local", "give reward.reward_kwargs.executor"),
        ("+reward_model.launch_reward_fn_async=false", "it always scores while it generates"),
        ("reward_model.enable=true", "give reward.reward_model.enable"),
        ("reward_model.num_workers=4", "give reward.num_workers"),
        ("reward_model.model.path=some/model", "give reward.reward_model.model_path"),
        ("custom_reward_function.path=my.py", "give reward.custom_reward_function.path"),
        ("+custom_reward_function.reward_kwargs.a=1", "give reward.custom_reward_function.reward_kwargs.a"),
        ("sandbox_fusion.url=http://there", "give reward.sandbox_fusion.url"),
    ],
)
@pytest.mark.usefixtures("composed_once")
def test_settings_of_older_verl_are_refused_with_their_place_today(setting, newer):
    """In a composed configuration, and on the command line before hydra misses them."""
    name = setting.lstrip("+").partition("=")[0]
    told = f"^{re.escape(name)}: veRL 0.9.1 ignores it; {re.escape(newer)}$"
    with pytest.raises(InputError, match=told):
        completed(compose(setting))
    with pytest.raises(InputError, match=told):
        refuse_misspelt(["+recipe=multi_turn", "+preset=cpu", setting.lstrip("+")], ROOT / "verl/config")


OTHERS = ("megatron", "mcore", "veomni", "torchtitan", "mindspeed", "automodel", "experimental/fully_async_policy")
"""Parts of the paths of veRL's files that nothing of Cobalt runs."""
ELSEWHERE = ("critic", "distillation", "global_profiler", "ray_kwargs", "reward_model", "transfer_queue")
"""Sections of what Cobalt does not run, or that others read: Ray and TransferQueue."""


def test_settings_that_no_code_names_are_refused_or_known():
    """Such a setting is ignored in silence. A new one in a later veRL fails here."""
    files = [file for file in Path(verl.__file__).parent.rglob("*.py") if not any(part in str(file) for part in OTHERS)]
    code = [file for file in files if "config" not in file.parts or file.name == "optimizer.py"]
    named = set(re.findall(r"\w+", "".join(file.read_text() for file in [*code, *(ROOT / "cobalt").rglob("*.py")])))
    settings = flat(OmegaConf.to_container(compose(preset="one-gpu-coder")))
    settings = {name for name, _ in settings if name.partition(".")[0] not in ELSEWHERE}
    settings -= {*REPLACED, *NEEDED, *OF_MANAGER}
    others = re.compile(r"\.(turbo_config|megatron|mtp|model\.lora)\.")
    assert {name for name in settings if name.rpartition(".")[2] not in named and not others.search(name)} == set()


@pytest.mark.parametrize(
    ("override", "told"),
    [
        # what Cobalt needs
        ("reward.num_workers=4", "reward.num_workers=4: Cobalt needs 1"),
        ("trainer.use_v1=false", "trainer.use_v1=False: Cobalt needs True"),
        ("transfer_queue.enable=false", "transfer_queue.enable=False: Cobalt needs True"),
        ("skip.rollout_tq.enable=true", "skip.rollout_tq.enable=True: Cobalt needs False"),
        ("reward.reward_model.enable=true", "reward.reward_model.enable=True: Cobalt needs False"),
        ("reward.sandbox_fusion.url=http://there", "reward.sandbox_fusion.url=http://there: Cobalt needs None"),
        ("trainer.v1.sampler.sync_refill_failed_groups=true", "sync_refill_failed_groups=True: Cobalt needs False"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", "checkpoint.async_save=True: Cobalt needs False"),
        (f"{POLICY}.rollout.agent.agent_loop_manager_class=my.Manager", "Cobalt needs cobalt.training.rollouts.Cobalt"),
        ("reward.reward_manager.module.path=my.py", "module.path=my.py: Cobalt needs pkg://cobalt.training.manager"),
        (REGISTER, "reward.reward_manager.source=register: Cobalt needs importlib"),
        ("reward.reward_manager.name=naive", "name=naive: for one of veRL's managers give " + REGISTER),
        # what veRL does not read
        (f"{POLICY}.actor.use_prefix_grouper=true", "use_prefix_grouper: veRL 0.9.1 ignores it; give cobalt.share_pro"),
        (f"{POLICY}.actor.grad_clip=0.5", f"grad_clip: veRL 0.9.1 ignores it; give {POLICY}.actor.optim.clip_grad"),
        (f"{POLICY}.actor.clip_ratio=0.1", f"clip_ratio: give {POLICY}.actor.clip_ratio_low and clip_ratio_high"),
        (f"{POLICY}.actor.ppo_micro_batch_size=8", "ppo_micro_batch_size: veRL 0.9.1 wants it for each GPU: NAME_per"),
        (f"{POLICY}.nccl_timeout=1800", "nccl_timeout: veRL 0.9.1 ignores it"),
        (f"{POLICY}.actor.fsdp_config.strategy=fsdp2", f"actor.fsdp_config.strategy: give {POLICY}.actor.strategy"),
        (f"{POLICY}.ref.fsdp_config.ulysses_sequence_parallel_size=2", f"give {POLICY}.ref.ulysses_sequence_parallel"),
        (f"{POLICY}.actor.optim.total_training_steps=9", "optim.total_training_steps: give trainer.total_training_st"),
        (f"{POLICY}.model.hf_config_path=other", "model.hf_config_path: rollouts do not read it; give a model with"),
        (f"+{POLICY}.model.override_config.rope_theta=5", "rope_theta=5: rollouts do not read it; vLLM"),
        (f"{POLICY}.rollout.over_sample_rate=0.1", "over_sample_rate: veRL 0.9.1 ignores it"),
        ("trainer.default_hdfs_dir=hdfs://runs", "default_hdfs_dir: veRL 0.9.1 ignores it and saves to trainer.defa"),
        (f"{POLICY}.model.lora.rank=8", f"it with Megatron alone; give {POLICY}.model.lora_rank"),
        (f"{POLICY}.model.lora.alpha=64", "lora.alpha: veRL 0.9.1 reads it with Megatron alone; give"),
        (f"{POLICY}.model.lora.target_modules=[q_proj]", "lora.target_modules: veRL 0.9.1 reads it with Megatron alo"),
        (f"{POLICY}.rollout.multi_stage_wake_up=true", "multi_stage_wake_up: veRL 0.9.1 ignores it"),
        (f"{POLICY}.rollout.multi_turn.enable=true", "enable: veRL 0.9.1 ignores it; the recipe says who plays turns"),
        (f"{POLICY}.rollout.mode=sync", "rollout.mode: veRL 0.9.1 has no other"),
        ("data.tokenizer=gpt2", f"data.tokenizer: veRL 0.9.1 ignores it; give {POLICY}.model.tokenizer_path"),
        ("algorithm.use_pf_ppo=true", "algorithm.use_pf_ppo: it is of a critic, and Cobalt trains none"),
        ("algorithm.lam=0.9", "algorithm.lam: it is of a critic"),
        ("algorithm.filter_groups.max_num_gen_batches=10", "max_num_gen_batches: veRL 0.9.1 ignores it"),
        ("algorithm.rollout_correction.loss_type=reinforce", f"give {POLICY}.actor.policy_loss.loss_mode"),
        ("algorithm.gamma=0.9", "algorithm.gamma=0.9 is not read with algorithm.adv_estimator=grpo"),
        ("trainer.critic_warmup=3", "trainer.critic_warmup: it is of a critic"),
        (f"{POLICY}.rollout.do_sample=false", "rollout.do_sample: veRL 0.9.1 ignores it and always samples"),
        (f"{POLICY}.rollout.val_kwargs.do_sample=false", f"give {POLICY}.rollout.val_kwargs.temperature=0"),
        ("data.gen_batch_size=8", "data.gen_batch_size: give data.train_batch_size"),
        ("data.train_max_samples=9", "data.train_max_samples: training takes whole files; give a shorter one"),
        ("trainer.balance_batch=false", "trainer.balance_batch: veRL 0.9.1 ignores it and always balances"),
        ("trainer.esi_redundant_time=60", "trainer.esi_redundant_time: veRL 0.9.1 ignores it"),
        ("trainer.ray_wait_register_center_timeout=9", "register_center_timeout: veRL 0.9.1 ignores it"),
        ("+trainer.remove_previous_ckpt_in_save=true", "in_save: give cobalt.keep_checkpoints=N"),
        # what Cobalt decides, even where veRL's default was asked for
        (f"+{POLICY}.model.override_config.attn_implementation=eager", "attn_implementation=eager is sdpa with these"),
        # the rest
        ("cobalt.backend=cpu", "hf is for cobalt.backend=cpu"),
        (f"{POLICY}.ref.strategy=megatron", "ref.strategy=megatron: choose fsdp or fsdp2"),
        (f"{POLICY}.actor.strategy=megatron", "actor.strategy=megatron: choose fsdp or fsdp2"),
        ("algorithm.adv_estimator=gae", "Cobalt trains no critic"),
        ("critic.enable=true", "Cobalt trains no critic"),
        ("distillation.enabled=true", "distillation.enabled=True: Cobalt needs False"),
        (f"{POLICY}.rollout.name=hf", "hf is for cobalt.backend=cpu"),
        (f"{POLICY}.model.external_lib=5", f"{POLICY}.model.external_lib=5: give a module"),
        ("trainer.v1.trainer_mode=separate_async", "separate_async: choose sync or colocate_async"),
        ("~cobalt", "no recipe: give --config-dir verl/config +recipe=multi_turn"),
        (f"{POLICY}.model.lora_rank=32", f"lora_rank needs {POLICY}.actor.strategy=fsdp2"),
        (f"{POLICY}.actor.fsdp_config.offload_policy=true", f"needs {POLICY}.actor.strategy=fsdp2: with fsdp veRL"),
    ],
)
def test_what_verl_would_not_obey_is_refused_in_one_line(override, told):
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        completed(compose(override), {override.lstrip("+~").partition("=")[0]})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("recipe", "preset", "loop"),
    [("multi_turn", "cpu", "single_turn_agent"), ("grpo_online", "one-gpu-vllm", "mine")],
)
def test_another_agent_loop_is_refused_where_cobalt_needs_its_own(recipe, preset, loop):
    """Also veRL's default, if it is given."""
    name = f"{POLICY}.rollout.agent.default_agent_loop"
    with pytest.raises(InputError, match=f"default_agent_loop={loop} is cobalt_.* with these settings of Cobalt"):
        completed(compose(f"{name}={loop}", recipe=recipe, preset=preset), {name})
    assert completed(compose(f"{name}={loop}"), {name}).actor_rollout_ref.rollout.agent.default_agent_loop == loop


@pytest.mark.parametrize("asked", ["rollout_is=token", "rollout_rs=token_k1", "bypass_mode=true"])
def test_a_correction_needs_the_rollouts_log_probs(asked):
    asked = f"algorithm.rollout_correction.{asked}"
    completed(compose(asked, f"{POLICY}.rollout.calculate_log_probs=true", preset="one-gpu-coder"))
    with pytest.raises(InputError, match="(?i)" + asked + rf" needs {POLICY}.rollout.calculate_log_probs=true"):
        completed(compose(asked, preset="one-gpu-coder"))


@pytest.mark.parametrize("asked", ["rollout_is=token", "rollout_rs=token_k1"])
def test_a_correction_is_not_bypassed_in_silence(asked):
    asked = [f"algorithm.rollout_correction.{one}" for one in (asked, "bypass_mode=true")]
    with pytest.raises(InputError, match=asked[0] + r" is not read with algorithm.rollout_correction.bypass_mode=true"):
        completed(compose(*asked, f"{POLICY}.rollout.calculate_log_probs=true", preset="one-gpu-coder"))


def test_an_engine_has_room_for_the_longest_prompt_and_response(check, model_with):
    check(f"{POLICY}.rollout.max_model_len=1728")
    with pytest.raises(InputError, match="max_model_len=1727 would cut responses to long prompts: allow 1728 tokens"):
        check(f"{POLICY}.rollout.max_model_len=1727")
    with pytest.raises(
        InputError, match=r"^rollout\.max_model_len is 4097, and .*minicoder has max_position_embeddings=4096"
    ):
        check(f"{POLICY}.rollout.max_model_len=4097")
    check(model_with(max_position_embeddings=1728))
    short = model_with(max_position_embeddings=1727)
    with pytest.raises(InputError, match=r"data\.max_response_length is 1728, and .* has max_position_embeddings=1727"):
        check(short)
    more = "max_position_embeddings=1728"
    both = (f"+{POLICY}.model.override_config.{more}", f"+{POLICY}.rollout.engine_kwargs.vllm.hf_overrides.{more}")
    check(short, *both)
    with pytest.raises(InputError, match=f"override_config.{more}: rollouts do not read it; vLLM's do if"):
        check(short, both[0])


def test_a_training_without_a_correction_is_none_that_needs_log_probs():
    completed(compose("algorithm.rollout_correction=null", preset="one-gpu-coder"))


def test_rollouts_on_cpu_cores_take_no_adapters_and_no_other_configuration_and_give_no_log_probs():
    with pytest.raises(InputError, match="calculate_log_probs=true: rollouts on CPU cores give none"):
        completed(compose(f"{POLICY}.rollout.calculate_log_probs=true", preset="cpu"))
    with pytest.raises(InputError, match="lora_rank=4: rollouts on CPU cores take no adapter"):
        completed(compose(f"{POLICY}.model.lora_rank=4", preset="cpu"))
    with pytest.raises(InputError, match=r"override_config\.rms_norm_eps=0\.5: rollouts do not read it"):
        completed(compose(f"+{POLICY}.model.override_config.rms_norm_eps=0.5", preset="cpu"))


@pytest.mark.parametrize("section", ["rollout", "rollout.val_kwargs"])
def test_the_sampler_on_cpu_cores_knows_no_top_k(section):
    with pytest.raises(InputError, match=rf"{POLICY}\.{section}\.top_k=5: on CPU cores it must be 0"):
        completed(compose(f"{POLICY}.{section}.top_k=5", preset="cpu"))
    for most in (-1, 0):
        completed(compose(f"{POLICY}.{section}.top_k={most}", preset="cpu"))
    completed(compose(f"{POLICY}.{section}.top_k=5"))


@pytest.mark.parametrize("override", ["seed=5", "ignore_eos=true", "full_determinism=true", "quantization=fp8"])
def test_the_sampler_on_cpu_cores_takes_no_setting_of_engines(override):
    name, value = override.split("=")
    with pytest.raises(InputError, match=rf"(?i){POLICY}\.rollout\.{name}={value}: on CPU cores it must be"):
        completed(compose(f"{POLICY}.rollout.{override}", preset="cpu"))
    completed(compose(f"{POLICY}.rollout.{override}"))


def test_the_filter_is_for_the_bandit(check):
    check("algorithm.filter_groups.enable=true")
    with pytest.raises(InputError, match=r"excludes cobalt\.online"):
        check("algorithm.filter_groups.enable=true", recipe="grpo_online")


def test_what_is_said_of_verls_settings_is_true():
    """Older sections are composed and null. Defaults of what is chosen are veRL's."""
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer")
    assert {name: OmegaConf.select(config, name) for name in CHOSEN} == CHOSEN
    assert all(name.split(".")[0] in config for name in MOVED)
    places = [name.rpartition(".") for name in MOVED.values() if name and name != "reward.reward_kwargs"]
    assert all(name in OmegaConf.select(config, section) for section, _, name in places)


def test_a_run_that_only_validates_does_so_whatever_is_said_of_validation_before_training():
    config = completed(compose("trainer.val_only=true", "trainer.val_before_train=false"))
    assert config.trainer.val_before_train, "veRL would train"


def test_paths_are_those_of_this_process_and_not_of_where_ray_was_started(monkeypatch):
    """Ranks save their shards, and the main loop the rest."""
    monkeypatch.chdir(ROOT)
    function = "reward.custom_reward_function.path=verl/code_reward_func_think.py"
    config = completed(compose("trainer.default_local_dir=runs/a", f"{POLICY}.model.path=assets/minicoder", function))
    assert config.trainer.default_local_dir == str(ROOT / "runs/a")
    assert config.actor_rollout_ref.model.path == str(MODEL)
    assert config.reward.custom_reward_function.path == str(ROOT / "verl/code_reward_func_think.py")
    assert completed(compose(preset="paper-qwen3")).actor_rollout_ref.model.path == "Qwen/Qwen3-8B"


def test_what_need_not_be_overwritten_is_honoured():
    config = completed(compose(f"{POLICY}.rollout.calculate_log_probs=false", preset="paper-qwen3"))
    assert not rollout_of(config).calculate_log_probs
    for name in ("naive", "dapo"):
        overrides = [REGISTER, f"reward.reward_manager.name={name}", "reward.num_workers=8"]
        config = completed(compose(*overrides))
        assert resolve_reward_manager_cls(config).__name__.lower() == f"{name}rewardmanager"
        assert config.reward.num_workers == 8
        with pytest.raises(InputError, match=r"Cobalt needs cobalt\.training\.rollouts\.CobaltAgentLoopManager"):
            completed(compose(*overrides, f"{POLICY}.rollout.agent.agent_loop_manager_class=my.Manager"))
