"""Rollouts of SGLang, up to the engine: what the recipes ask for reaches it through veRL's own code, or is refused."""

import importlib
import json
import re
import sys
from dataclasses import make_dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from omegaconf import OmegaConf
from online_parts import LOCAL, MODEL, compose
from stand_in import StandIn, stood_in
from verl.utils.config import omega_conf_to_dataclass

from cobalt.errors import InputError, SetupError
from cobalt.training import launch, preflight
from cobalt.training.cluster import process_variables
from cobalt.training.config import BASE_RANK, NOT_SGLANG, completed, flat

ROLLOUT = "actor_rollout_ref.rollout"
SGLANG = f"{ROLLOUT}.name=sglang"
ENGINES = f"{ROLLOUT}.engine_kwargs"
LORA = {"actor_rollout_ref.model.lora_rank": 32, "actor_rollout_ref.actor.strategy": "fsdp2"}
SERVER_OPTIONS = """attention_backend base_gpu_id chunked_prefill_size cuda_graph_max_bs custom_weight_loader
 disable_cuda_graph dp_size dtype enable_lora enable_memory_saver enable_metrics enable_weights_cpu_backup ep_size
 gpu_id_step json_model_override_args load_format log_level lora_target_modules max_lora_rank max_running_requests
 mem_fraction_static mm_attention_backend model_path nnodes node_rank quantization sampling_backend skip_server_warmup
 skip_tokenizer_init tp_size trust_remote_code"""
"""Some of the options of SGLang 0.5.12's server. Another one is an error, as there."""
SAMPLING = {"temperature", "top_p", "top_k", "repetition_penalty", "max_new_tokens"}
"""Some of the settings of its sampling. Another one is an error there."""


def test_training_is_the_same_with_either_engine():
    """Prompts are shared, batches made and weights updated by settings in which the engine does not occur."""
    vllm, sglang = (
        completed(compose(LOCAL, f"{ROLLOUT}.name={name}", recipe="grpo_online")) for name in ("vllm", "sglang")
    )
    settings = [dict(flat(OmegaConf.to_container(config, resolve=True))) for config in (vllm, sglang)]
    differ = {name for name in {*settings[0], *settings[1]} if settings[0].get(name) != settings[1].get(name)}
    reads = tuple(f"{ROLLOUT}.{name}" for name in ("name", "engine_kwargs."))
    assert {name for name in differ if not name.startswith((*reads, "distillation."))} == set()
    assert sglang.cobalt.share_prompts
    variables = [process_variables(config) for config in (vllm, sglang)]
    assert len({json.dumps({**one, BASE_RANK: None}, sort_keys=True) for one in variables}) == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *(
            ({f"{ROLLOUT}.{name}": value}, f"{ROLLOUT}.{name}={value}: with SGLang it must be ")
            for name, value in {
                "seed": 1,
                "full_determinism": True,
                "ignore_eos": True,
                "cudagraph_capture_sizes": [8],
                "enable_prefix_caching": False,
                "logprobs_mode": "raw_logprobs",
            }.items()
        ),
        ({f"{ENGINES}.vllm.kv_cache_dtype": "fp8"}, "engine_kwargs.vllm is not read with rollout.name=sglang"),
        ({f"{ENGINES}.sglang.enable_deterministic_inference": True}, "all responses to a prompt equal"),
        ({f"{ROLLOUT}.quantization": "int4"}, "quantization=int4: with SGLang it is fp8 or null"),
        ({**LORA, "actor_rollout_ref.model.target_modules": ".*_proj"}, "with SGLang give all-linear or a list"),
        ({f"{ROLLOUT}.name": "trtllm"}, f"{ROLLOUT}.name=trtllm: choose vllm or sglang"),
        (
            {f"{ROLLOUT}.name": "vllm", f"{ENGINES}.sglang.a": 1},
            "engine_kwargs.sglang is not read with rollout.name=vllm",
        ),
    ],
)
def test_what_sglang_would_not_obey_is_refused_in_one_line(changes, told):
    config = compose(SGLANG)
    for name, value in changes.items():
        OmegaConf.update(config, name, value, force_add=True)
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        completed(config)
    assert "\n" not in str(refused.value)


def test_the_settings_that_sglang_does_not_obey_have_verls_defaults():
    rollout = compose(SGLANG).actor_rollout_ref.rollout
    assert {name: rollout[name] for name in NOT_SGLANG} == NOT_SGLANG


def test_a_missing_package_or_compiler_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    files = ["data.train_files=memory://train", "data.val_files=memory://test"]
    places = [*files, f"trainer.default_local_dir={tmp_path}", f"actor_rollout_ref.model.path={MODEL}"]
    config = compose(SGLANG, *places)
    with pytest.raises(SetupError, match=r"sglang is not installed: scripts/setup_gpu.sh sglang installs it"):
        launch.checked(config)
    monkeypatch.setattr(preflight, "find_spec", lambda _name: object())
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="no bin/nvcc in CUDA_HOME"):
        launch.checked(config)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").touch()
    launch.checked(config)


@pytest.fixture
def sglang():
    options = make_dataclass("ServerArgs", [(name, Any, None) for name in SERVER_OPTIONS.split()])
    with stood_in(StandIn("sglang", __version__="0.5.12", ServerArgs=options)):
        yield


@pytest.fixture
def server(sglang, monkeypatch):
    """veRL's server of SGLang, of a configuration, before and after it was launched."""
    verls = importlib.import_module("verl.workers.rollout.sglang_rollout.async_sglang_server")
    monkeypatch.setattr(verls, "GenerateReqInput", SimpleNamespace)
    started = {}

    async def run_uvicorn(_app, options, _address):
        started.update(vars(options))
        return 1, None

    monkeypatch.setattr(verls, "run_uvicorn", run_uvicorn)
    processes = MagicMock(_launch_subprocesses=lambda **_: (SimpleNamespace(), None, None))
    monkeypatch.setattr(sys.modules["sglang.srt.entrypoints.http_server"], "Engine", processes)

    def make(config):
        policy = config.actor_rollout_ref
        made = verls.SGLangHttpServer.__new__(verls.SGLangHttpServer)
        made.config = omega_conf_to_dataclass(policy.rollout)
        made.config.max_model_len = 100
        lora = SimpleNamespace(get=policy.model.lora.get)
        made.model_config = SimpleNamespace(
            local_path="m",
            trust_remote_code=False,
            lora=lora,
            lora_rank=policy.model.lora_rank,
            target_modules=policy.model.target_modules,
            hf_config=None,
        )
        made.rollout_mode, made._disaggregation_role = verls.RolloutMode.HYBRID, "null"
        made.nnodes, made.node_rank, made.base_gpu_id, made.replica_rank, made.global_steps = 1, 0, 0, 0, 5
        made._server_address = "127.0.0.1"
        return made

    return make, started


async def test_a_recipes_settings_reach_sglangs_server(server):
    make, started = server
    lora = [f"{name}={value}" for name, value in LORA.items()]
    config = completed(
        compose(SGLANG, *lora, f"{ROLLOUT}.max_num_seqs=600", f"+{ENGINES}.sglang.sampling_backend=pytorch")
    )
    await make(config).launch_server()
    asked = {"mem_fraction_static": 0.2, "tp_size": 1, "chunked_prefill_size": 16384, "cuda_graph_max_bs": 512}
    asked |= {"max_running_requests": 600, "sampling_backend": "pytorch", "load_format": "dummy"}
    asked |= {"disable_cuda_graph": False}
    asked |= {"enable_lora": True, "max_lora_rank": 32, "lora_target_modules": ["all"], "skip_tokenizer_init": True}
    assert {name: started[name] for name in asked} == asked


async def test_a_request_is_one_that_sglang_takes_and_its_tokens_and_probabilities_come_back(server):
    made = server[0](completed(compose(SGLANG)))
    requests = []

    async def generate_request(request, _):
        requests.append(request)
        logprobs = [[-0.5, 7, None], [-0.25, 2, None]]
        yield {
            "output_ids": [7, 2],
            "meta_info": {"finish_reason": {"type": "stop"}, "output_token_logprobs": logprobs},
        }

    made.tokenizer_manager = SimpleNamespace(generate_request=generate_request)
    rollout = made.config
    # as veRL's agent loops, and ours of online training, ask for it: without a seed, which SGLang names otherwise
    sampling = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k}
    sampling |= {"repetition_penalty": 1.0, "logprobs": rollout.calculate_log_probs}
    answer = await made.generate([1, 3], sampling, "id")
    (request,) = requests
    assert (request.input_ids, request.return_logprob) == ([1, 3], True)
    assert request.sampling_params.keys() <= SAMPLING
    assert (answer.token_ids, answer.log_probs, answer.stop_reason) == ([7, 2], [-0.5, -0.25], "stop")
    assert answer.extra_fields["global_steps"] == 5
