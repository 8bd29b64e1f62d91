"""Parts for tests of reward managers and online training: batches, settings, an engine that answers from a script."""

from pathlib import Path

import numpy as np
import torch
from service import make_tests
from tensordict import TensorDict
from verl import DataProto

from cobalt.prompts import first_messages, problem_instruction
from cobalt.training.online.settings import Method, OnlineSettings
from cobalt.training.scoring import RewardSettings

MODEL = Path(__file__).parents[2] / "assets/minicoder"
WIDTH, PROMPT_WIDTH = 60, 64
"""Of responses and first prompts, in tokens."""


def make_settings(**changes):
    """Of the method, or of the reward where they are its own."""
    reward = {name: changes.pop(name) for name in RewardSettings.model_fields if name in changes}
    return OnlineSettings(
        method=Method(**{"method": "grpo", "turns": 3, **changes}),
        reward=RewardSettings(**{"executor": "local", "max_in_flight": 8, "require_end": True, **reward}),
        model=str(MODEL),
    )


def make_batch(tokenizer, responses, prev_best=0.0, validate=False, **columns):
    """As veRL hands it over: a token of prompt, responses (None: none) padded on the right, non-tensor columns."""
    count = len(responses)
    ids, mask = torch.full((count, WIDTH), tokenizer.pad_token_id), torch.zeros(count, WIDTH, dtype=torch.long)
    for row, response in enumerate(responses):
        if response is not None:
            tokens = [*tokenizer.encode(response), tokenizer.eos_token_id][:WIDTH]
            ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.tensor(tokens), 1
    columns |= {
        "data_source": ["code_taco_verified"] * count,
        "reward_model": [{"style": "rule", "ground_truth": make_tests()}] * count,
        "extra_info": [{"prev_best_pass_rate": prev_best, "index": index} for index in range(count)],
    }
    prompts = torch.zeros(count, 1, dtype=torch.long)
    attention_mask = torch.cat([prompts + 1, mask], 1)
    return DataProto.from_dict(
        {"prompts": prompts, "responses": ids, "attention_mask": attention_mask, "response_mask": mask},
        {name: np.array(values, dtype=object) for name, values in columns.items()},
        {"validate": True} if validate else {},
    )


def make_prompts(tokenizer, problems, repeats, tests=None):
    """What veRL hands to a rollout: ``repeats`` rows for each problem, prompts padded on the left, and its columns."""
    prompts, columns = [], {"raw_prompt": [], "raw_prompt_ids": [], "tools_kwargs": [], "uid": []}
    for problem in problems:
        messages = first_messages(problem_instruction(f"Print the {problem} of the values."))
        ids = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        prompts += [[tokenizer.pad_token_id] * (PROMPT_WIDTH - len(ids)) + ids] * repeats
        for name, value in zip(columns, (messages, ids, {"public_test_cases": tests}, problem), strict=True):
            columns[name] += [value] * repeats
    ids = torch.tensor(prompts)
    mask = (ids != tokenizer.pad_token_id).long()
    tensors = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    named = {name: np.empty(len(ids), dtype=object) for name in columns}
    for name, values in columns.items():
        named[name][:] = values
    meta = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    return DataProto(batch=TensorDict(tensors, batch_size=len(ids)), non_tensor_batch=named, meta_info=meta)


class ScriptedEngine:
    """Answers request i of call t with ``answers[t][i]``, the last one first; keeps what it was asked."""

    def __init__(self, tokenizer, answers):
        self.tokenizer, self.answers, self.asked = tokenizer, list(answers), []

    def __call__(self, requests, on_finished):
        answers = self.answers[len(self.asked)]
        assert len(answers) == len(requests)
        self.asked.append(requests)
        for index, answer in reversed([*enumerate(answers)]):
            on_finished(index, [*self.tokenizer.encode(answer), self.tokenizer.eos_token_id])
