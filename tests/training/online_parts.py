"""Parts for tests of reward managers and online training. No service here runs a program, and no engine a model."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict
from verl import DataProto

from cobalt.errors import SetupError
from cobalt.prompts import first_messages, problem_instruction
from cobalt.sandbox import ExecutionResult, TestCases, Verdict
from cobalt.serving.execution import ExecutionService
from cobalt.training.online import MultiTurn
from cobalt.training.scoring import RewardSettings
from cobalt.training.settings import Method

MODEL = Path(__file__).parents[2] / "assets/minicoder"
WIDTH, PROMPT_WIDTH = 60, 64
"""Of responses and first prompts, in tokens."""


def make_method(**changes):
    return Method(**{"method": "grpo", "turns": 3, **changes})


def make_multi_turn(tokenizer, config, require_end=True, **changes):
    """``changes``: of the method."""
    reward = RewardSettings(executor="local", max_in_flight=8, require_end=require_end)
    return MultiTurn(make_method(**changes), reward, tokenizer, config)


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
    meta = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "global_steps": 1}
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


class FakeService:
    """Passes as many tests as the code says (``print(3)``: 3); ``fail`` in the code is an infra failure."""

    def __init__(self, delay_s=0.0):
        self.programs, self.running, self.most_running, self.delay_s = [], 0, 0, delay_s

    async def run(self, code, tests):
        self.programs.append(code)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        return self._result(code, len(TestCases.parse(tests)))

    def _result(self, code, count):
        if "fail" in code:
            return ExecutionResult.infra(count, "worker lost")
        passed = int(code.removeprefix("print(").removesuffix(")"))
        passing = tuple(index < passed for index in range(count))
        verdicts = tuple(Verdict.PASSED if value else Verdict.WRONG_ANSWER for value in passing)
        return ExecutionResult(verdicts, ("",) * count, ("",) * count)

    def opener(self):
        @asynccontextmanager
        async def open_service(executor, max_in_flight=None, patient=False, **limits):
            yield ExecutionService(self, max_in_flight=max_in_flight)

        return open_service


@asynccontextmanager
async def no_service(executor, **limits):
    raise SetupError("no execution service")
    yield


def make_tests(count=4):
    return TestCases(tuple(map(str, range(count))), ("0",) * count).to_json()


def respond(passed, think="plan"):
    return f"<think>\n{think}\n</think>\n```python\nprint({passed})\n```"
