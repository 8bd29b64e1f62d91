"""How the policy plays: what each turn is asked, when trajectories end, which programs run, and the rows for veRL."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from online_parts import MODEL, ScriptedEngine, make_settings
from service import FakeService, make_tests, no_service, respond
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto

from cobalt.errors import InputError
from cobalt.prompts import first_messages, problem_instruction
from cobalt.training import execution
from cobalt.training.online.rollouts import ROLLOUT_FAILED, MultiTurn
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.rollout_engines import OnlineRollout

PROMPT_WIDTH, RESPONSE_WIDTH = 600, 60
WRONG, RIGHT, LOST = respond(1), respond(2), respond("fail")
ALL_PUBLIC = 2
PUBLIC_TESTS = make_tests(ALL_PUBLIC)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture
def service(monkeypatch):
    fake = FakeService()
    monkeypatch.setattr(execution, "open_execution_service", fake.opener())
    return fake


def prompts_of(tokenizer, trajectories, turns, tests=PUBLIC_TESTS):
    """What veRL hands to a rollout for one problem."""
    messages = first_messages(problem_instruction("Print the sum."))
    ids = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    rows = trajectories * turns
    columns = {"raw_prompt": messages, "raw_prompt_ids": ids, "tools_kwargs": {"public_test_cases": tests}}
    named = {}
    for name, value in columns.items():
        named[name] = np.empty(rows, dtype=object)
        named[name][:] = [value] * rows
    return DataProto(
        batch=TensorDict({"input_ids": torch.zeros(rows, 1)}, batch_size=rows),
        non_tensor_batch=named,
        meta_info={"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id},
    )


def roll(tokenizer, answers, prompt_width=PROMPT_WIDTH, tests=PUBLIC_TESTS, **settings):
    """Rows and the engine; as many trajectories as the first call has answers."""
    config = SimpleNamespace(prompt_length=prompt_width, response_length=RESPONSE_WIDTH)
    multi_turn = MultiTurn(make_settings(**settings), config)
    engine = ScriptedEngine(tokenizer, answers)
    prompts = prompts_of(tokenizer, len(answers[0]), multi_turn._settings.turns, tests)
    return multi_turn.rollout(prompts, engine, list(range(len(prompts)))), engine


def lengths(rows):
    """Tokens of prompts and of responses."""
    mask = rows.batch["attention_mask"]
    return mask[:, :PROMPT_WIDTH].sum(1).tolist(), mask[:, PROMPT_WIDTH:].sum(1).tolist()


def played(rows, turns=3):
    """Turns played by each trajectory."""
    return (rows.batch["attention_mask"][:, PROMPT_WIDTH:].any(1).view(-1, turns).sum(1)).tolist()


def test_the_next_turn_shows_program_and_feedback_without_the_thinking(tokenizer, service):
    _, engine = roll(tokenizer, [[respond(1, think="my plan")], [RIGHT]])
    first, second = (tokenizer.decode(requests[0].prompt) for requests in engine.asked)
    assert "Print the sum." in first and "Print the sum." in second
    assert "print(1)" in second and "Here is the execution feedback:" in second
    assert "my plan" not in second


def test_a_trajectory_ends_when_public_tests_pass_or_turns_are_used_up(tokenizer, service):
    rows, engine = roll(tokenizer, [[RIGHT, WRONG, WRONG], [WRONG, RIGHT], [WRONG]])
    assert played(rows) == [1, 3, 2]
    assert [len(requests) for requests in engine.asked] == [3, 2, 1]


def test_the_last_turns_programs_need_not_run(tokenizer, service):
    roll(tokenizer, [[WRONG], [respond(0)], [RIGHT]])
    assert service.programs == ["print(1)", "print(0)"]
    service.programs.clear()
    roll(tokenizer, [[WRONG, RIGHT]], turns=1)
    assert service.programs == []


def test_equal_programs_run_once(tokenizer, service):
    roll(tokenizer, [[WRONG] * 5, [RIGHT] * 5])
    assert sorted(service.programs) == ["print(1)", "print(2)"]


def test_a_full_context_ends_a_trajectory(tokenizer, service):
    _, engine = roll(tokenizer, [[WRONG], [RIGHT]], turns=2)
    second = len(engine.asked[1][0].prompt)
    for width, calls in ((second, 2), (second - 1, 1)):
        _, engine = roll(tokenizer, [[WRONG], [RIGHT]], turns=2, prompt_width=width)
        assert len(engine.asked) == calls


def test_programs_run_while_others_are_generated(tokenizer, monkeypatch):
    ran = threading.Event()

    class Service(FakeService):
        async def run(self, code, tests):
            ran.set()
            return await super().run(code, tests)

    monkeypatch.setattr(execution, "open_execution_service", Service().opener())

    class Engine(ScriptedEngine):
        def __call__(self, requests, on_finished):
            def and_wait(index, response):
                on_finished(index, response)
                assert ran.wait(timeout=60)

            super().__call__(requests, and_wait)

    config = SimpleNamespace(prompt_length=PROMPT_WIDTH, response_length=RESPONSE_WIDTH)
    engine = Engine(tokenizer, [[WRONG, RIGHT], [RIGHT]])
    MultiTurn(make_settings(turns=2), config).rollout(prompts_of(tokenizer, 2, 2), engine, range(4))


def test_an_infrastructure_failure_ends_and_marks_its_trajectory_only(tokenizer, service):
    rows, _ = roll(tokenizer, [[LOST, WRONG], [RIGHT]])
    assert played(rows) == [1, 2]
    assert rows.non_tensor_batch[ROLLOUT_FAILED].tolist() == [True] * 3 + [False] * 3


def test_without_a_service_every_trajectory_that_needs_it_has_failed(tokenizer, monkeypatch):
    monkeypatch.setattr(execution, "open_execution_service", no_service)
    monkeypatch.setattr(execution, "FIRST_OPEN_DELAY_S", 0)
    rows, _ = roll(tokenizer, [[WRONG, RIGHT]])
    assert rows.non_tensor_batch[ROLLOUT_FAILED].all()
    assert played(rows) == [1, 1]


def test_a_response_that_was_cut_off_has_no_program(tokenizer, service):
    def cut_off(requests, on_finished):
        on_finished(0, tokenizer.encode(RIGHT + " x" * RESPONSE_WIDTH)[:RESPONSE_WIDTH])

    config = SimpleNamespace(prompt_length=PROMPT_WIDTH, response_length=RESPONSE_WIDTH)
    for require_end, expected in ((False, "print(2)"), (True, None)):
        asked = []
        service.run = lambda code, tests, asked=asked: asked.append(code) or FakeService().run("print(2)", tests)
        settings = make_settings(turns=2, require_end=require_end)
        MultiTurn(settings, config).rollout(prompts_of(tokenizer, 1, 2), cut_off, range(2))
        assert asked == [expected]


def test_rows_are_laid_out_as_verls_and_empty_ones_after_the_end(tokenizer, service):
    rows, engine = roll(tokenizer, [[WRONG], [RIGHT]])
    prompts, responses = lengths(rows)
    asked = [len(requests[0].prompt) for requests in engine.asked]
    assert prompts == [*asked, 1]
    assert responses == [len(tokenizer.encode(WRONG)) + 1, len(tokenizer.encode(RIGHT)) + 1, 0]
    batch = rows.batch
    assert batch["input_ids"].equal(torch.cat([batch["prompts"], batch["responses"]], 1))
    mask = batch["attention_mask"].bool()
    assert batch["position_ids"][mask].equal((mask.long().cumsum(1) - 1)[mask])
    assert batch["prompts"][1][mask[1, :PROMPT_WIDTH]].tolist() == list(engine.asked[1][0].prompt)
    assert (batch["responses"][~mask[:, PROMPT_WIDTH:]] == tokenizer.pad_token_id).all()


def test_costs_are_counted_on_rows_with_a_response(tokenizer, service):
    rows, _ = roll(tokenizer, [[WRONG, RIGHT], [respond(0)], [RIGHT]])
    for name, total in (("programs_run", 3), ("tests_run", 3 * ALL_PUBLIC)):
        column = rows.non_tensor_batch[f"cost_rollout_{name}"].astype(float)
        assert column.sum() == pytest.approx(total)
        assert (column > 0).tolist() == rows.batch["attention_mask"][:, PROMPT_WIDTH:].any(1).tolist()


def test_data_without_public_tests_is_refused(tokenizer, service):
    with pytest.raises(InputError, match="public_test_cases"):
        roll(tokenizer, [[WRONG]], tests=None)


class FakeVLLM:
    """The part of vLLM's engine that is used: the request added last ends first, one in each step."""

    def __init__(self):
        self.waiting = []

    def add_request(self, request_id, prompt, params):
        assert request_id not in [name for name, _ in self.waiting]
        self.waiting.append((request_id, prompt["prompt_token_ids"]))

    def has_unfinished_requests(self):
        return bool(self.waiting)

    def step(self):
        request_id, ids = self.waiting.pop()
        running = [SimpleNamespace(request_id=name, finished=False, outputs=[]) for name, _ in self.waiting]
        response = SimpleNamespace(token_ids=tuple(ids[::-1]))
        return [*running, SimpleNamespace(request_id=request_id, finished=True, outputs=[response])]


class VLLMRollout:
    """The part of veRL's ``vLLMRollout`` that is built upon."""

    def __init__(self):
        self.inference_engine = SimpleNamespace(llm_engine=FakeVLLM())
        self.sampling_params = SimpleNamespace(output_kind=None)

    def generate_sequences(self, prompts, **kwargs):
        return "a single turn"


@pytest.fixture
def fake_vllm(monkeypatch):
    """Importable meanwhile."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "inference" / "fake_vllm")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.mark.usefixtures("fake_vllm")
def test_verls_vllm_rollout_plays_in_training_and_validates_as_before(tokenizer, service, monkeypatch):
    """The fake engine answers with the prompt backwards: no program, so every trajectory goes on to its last turn."""
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(turns=2, require_end=False).to_json())
    service.run = lambda code, tests: FakeService().run("print(0)", tests)
    vllm = VLLMRollout()
    rollout = OnlineRollout(vllm, SimpleNamespace(prompt_length=PROMPT_WIDTH, response_length=PROMPT_WIDTH))
    assert vllm.sampling_params.output_kind is not None
    prompts = prompts_of(tokenizer, trajectories=3, turns=2)
    for _ in range(2):  # request ids are new in each call
        rows = rollout.generate_sequences(prompts)
        assert played(rows, turns=2) == [2, 2, 2]
        for prompt, response in zip(rows.batch["prompts"], rows.batch["responses"], strict=True):
            assert (
                prompt[prompt != tokenizer.pad_token_id].flip(0).tolist()
                == response[response != tokenizer.pad_token_id].tolist()
            )
    prompts.meta_info["validate"] = True
    assert rollout.generate_sequences(prompts) == "a single turn"
