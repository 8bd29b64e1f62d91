"""Parts for tests of training: configurations, reward managers and batches. No service here runs a program."""

import pickle
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import hydra
import numpy as np
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, open_dict
from verl import DataProto

from cobalt.errors import SetupError
from cobalt.sandbox import TestCases
from cobalt.training.manager import VALIDATES, StreamingRewardManager
from cobalt.training.online import ROLLOUT_FAILED
from cobalt.training.scoring import compute_score
from cobalt.training.settings import Method

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "assets/minicoder"
WIDTH = 60
"""Most tokens of a response."""
LOCAL = "reward.reward_kwargs.executor=local"


@cache
def composed(recipe, preset):
    search = f"hydra.searchpath=['file://{ROOT}/verl/config']"
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        # a copy by pickle takes an eighth of what a deep copy does
        return pickle.dumps(hydra.compose("ppo_trainer", [search, f"+recipe={recipe}", f"+preset={preset}"]))


def compose_recipe(recipe, preset, *overrides):
    """What ``cobalt train`` composes."""
    return overridden(composed(recipe, preset), overrides)


def overridden(pickled, overrides):
    """Hydra takes long: it makes each base once, and values are set here, in a copy."""
    config = pickle.loads(pickled)
    for one in OverridesParser.create().parse_overrides(list(overrides)):
        if one.is_delete():
            section, _, name = one.key_or_group.rpartition(".")
            with open_dict(config):
                del (OmegaConf.select(config, section) if section else config)[name]
        else:
            OmegaConf.update(config, one.key_or_group, one.value(), force_add=True)
    return config


def compose(*overrides, recipe="multi_turn", preset="one-gpu-vllm"):
    """``compose_recipe`` with our reward function."""
    function = f"reward.custom_reward_function.path={ROOT}/verl/code_reward_func_think.py"
    return compose_recipe(recipe, preset, function, *overrides)


def make_method(**changes):
    return Method(**{"method": "grpo", "turns": 3, **changes})


def make_manager(tokenizer, function=compute_score, online=None, source_key="data_source", **settings):
    """The reward manager as veRL makes it. ``settings``: ``reward.reward_kwargs``."""
    sections = {
        "reward": {"reward_kwargs": {"executor": "local", **settings}},
        "data": {"reward_fn_key": source_key},
        "cobalt": {"online": online},
        "actor_rollout_ref": {"rollout": {"response_length": WIDTH}},
    }
    return StreamingRewardManager(OmegaConf.create(sections), tokenizer, function)


def make_trajectory(tokenizer, responses, validates=False, failed=False, **columns):
    """A trajectory as veRL hands it to a reward manager: a row for each of its responses, padded on the right."""
    ids = [torch.tensor([*tokenizer.encode(response), tokenizer.eos_token_id][:WIDTH]) for response in responses]
    columns = {
        "data_source": "code_taco_verified",
        "reward_model": {"style": "rule", "ground_truth": make_tests()},
        # where the data are from does not say what veRL does with them
        "extra_info": {"prev_best_pass_rate": 0.0, "split": "train" if validates else "test"},
        VALIDATES: validates,
        "tool_extra_fields": {ROLLOUT_FAILED: failed},
        **columns,
    }
    named = {name: np.array([value] * len(ids), dtype=object) for name, value in columns.items()}
    named["extra_info"] = np.array([dict(columns["extra_info"]) for _ in ids], dtype=object)
    named["response_len"] = np.array([len(row) for row in ids])
    rows = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return DataProto.from_dict({"prompts": torch.ones(len(ids), 1, dtype=torch.long), "responses": rows}, named)


@asynccontextmanager
async def no_service(executor, **limits):
    raise SetupError("no execution service")
    yield


def make_tests(count=4):
    return TestCases(tuple(map(str, range(count))), ("0",) * count).to_json()


def respond(passed, think="plan"):
    return f"<think>\n{think}\n</think>\n```python\nprint({passed})\n```"


def jagged(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
