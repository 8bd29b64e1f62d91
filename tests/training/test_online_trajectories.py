"""How the policy plays: what each turn is asked, when trajectories end, which programs run, and the rows for veRL."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from online_parts import WIDTH, ScriptedEngine, make_prompts, make_settings
from service import FakeService, make_tests, no_service, respond

from cobalt.errors import InputError
from cobalt.training.online.rollouts import MultiTurn
from cobalt.training.online.rows import ROLLOUT_FAILED
from cobalt.training.online.settings import ONLINE_VARIABLE
from cobalt.training.rollout_engines import OnlineRollout

PROMPT_WIDTH = 600
WRONG, RIGHT, LOST = respond(1), respond(2), respond("fail")
ALL_PUBLIC = 2
PUBLIC_TESTS = make_tests(ALL_PUBLIC)


def roll_with(engine, minicoder, trajectories, prompt_width=PROMPT_WIDTH, tests=PUBLIC_TESTS, **settings):
    config = SimpleNamespace(prompt_length=prompt_width, response_length=WIDTH)
    online = make_settings(**settings)
    prompts = make_prompts(minicoder, ["sum"], trajectories * online.method.turns, tests)
    return MultiTurn(online, config).rollout(prompts, engine, list(range(len(prompts))))


def roll(minicoder, answers, **settings):
    """Rows and the engine; as many trajectories as the first call has answers."""
    engine = ScriptedEngine(minicoder, answers)
    return roll_with(engine, minicoder, len(answers[0]), **settings), engine


def lengths(rows):
    """Tokens of prompts and of responses."""
    mask = rows.batch["attention_mask"]
    return mask[:, :PROMPT_WIDTH].sum(1).tolist(), mask[:, PROMPT_WIDTH:].sum(1).tolist()


def played(rows, turns=3):
    """Turns played by each trajectory."""
    return (rows.batch["attention_mask"][:, PROMPT_WIDTH:].any(1).view(-1, turns).sum(1)).tolist()


def test_the_next_turn_shows_program_and_feedback_without_the_thinking(minicoder, service):
    _, engine = roll(minicoder, [[respond(1, think="my plan")], [RIGHT]])
    first, second = (minicoder.decode(requests[0].prompt) for requests in engine.asked)
    assert "Print the sum of the values." in first and "Print the sum of the values." in second
    assert "print(1)" in second and "Here is the execution feedback:" in second
    assert "my plan" not in second


def test_a_trajectory_ends_when_public_tests_pass_or_turns_are_used_up(minicoder, service):
    rows, engine = roll(minicoder, [[RIGHT, WRONG, WRONG], [WRONG, RIGHT], [WRONG]])
    assert played(rows) == [1, 3, 2]
    assert [len(requests) for requests in engine.asked] == [3, 2, 1]


def test_equal_programs_run_once_and_those_of_the_last_turn_need_not_run(minicoder, service):
    roll(minicoder, [[WRONG] * 5, [respond(0)] * 5, [RIGHT] * 5])
    assert sorted(service.programs) == ["print(0)", "print(1)"]
    service.programs.clear()
    roll(minicoder, [[WRONG, RIGHT]], turns=1)
    assert service.programs == []


def test_a_full_context_ends_a_trajectory(minicoder, service):
    _, engine = roll(minicoder, [[WRONG], [RIGHT]], turns=2)
    second = len(engine.asked[1][0].prompt)
    for width, calls in ((second, 2), (second - 1, 1)):
        _, engine = roll(minicoder, [[WRONG], [RIGHT]], turns=2, prompt_width=width)
        assert len(engine.asked) == calls


def test_programs_run_while_others_are_generated(minicoder, use):
    ran = threading.Event()

    class Service(FakeService):
        async def run(self, code, tests):
            ran.set()
            return await super().run(code, tests)

    use(Service().opener())

    class Engine(ScriptedEngine):
        def __call__(self, requests, on_finished):
            def and_wait(index, response):
                on_finished(index, response)
                assert ran.wait(timeout=60)

            super().__call__(requests, and_wait)

    roll_with(Engine(minicoder, [[WRONG, RIGHT], [RIGHT]]), minicoder, 2, turns=2)


def test_an_infrastructure_failure_ends_and_marks_its_trajectory_only(minicoder, service):
    rows, _ = roll(minicoder, [[LOST, WRONG], [RIGHT]])
    assert played(rows) == [1, 2]
    assert rows.non_tensor_batch[ROLLOUT_FAILED].tolist() == [True] * 3 + [False] * 3


def test_without_a_service_every_trajectory_that_needs_it_has_failed(minicoder, no_waiting, use):
    use(no_service)
    rows, _ = roll(minicoder, [[WRONG, RIGHT]])
    assert rows.non_tensor_batch[ROLLOUT_FAILED].all()
    assert played(rows) == [1, 1]


def test_a_response_that_was_cut_off_has_no_program(minicoder, service):
    def cut_off(requests, on_finished):
        on_finished(0, minicoder.encode(RIGHT + " x" * WIDTH)[:WIDTH])

    for require_end, expected in ((False, "print(2)"), (True, None)):
        asked = []
        service.run = lambda code, tests, asked=asked: asked.append(code) or FakeService().run("print(2)", tests)
        roll_with(cut_off, minicoder, 1, turns=2, require_end=require_end)
        assert asked == [expected]


def test_rows_are_laid_out_as_verls_and_empty_ones_after_the_end(minicoder, service):
    rows, engine = roll(minicoder, [[WRONG], [RIGHT]])
    prompts, responses = lengths(rows)
    asked = [len(requests[0].prompt) for requests in engine.asked]
    assert prompts == [*asked, 1]
    assert responses == [len(minicoder.encode(WRONG)) + 1, len(minicoder.encode(RIGHT)) + 1, 0]
    batch = rows.batch
    assert batch["input_ids"].equal(torch.cat([batch["prompts"], batch["responses"]], 1))
    mask = batch["attention_mask"].bool()
    assert batch["position_ids"][mask].equal((mask.long().cumsum(1) - 1)[mask])
    assert batch["prompts"][1][mask[1, :PROMPT_WIDTH]].tolist() == list(engine.asked[1][0].prompt)
    assert (batch["responses"][~mask[:, PROMPT_WIDTH:]] == minicoder.pad_token_id).all()


def test_costs_are_counted_on_rows_with_a_response(minicoder, service):
    rows, _ = roll(minicoder, [[WRONG, RIGHT], [respond(0)], [RIGHT]])
    for name, total in (("programs_run", 3), ("tests_run", 3 * ALL_PUBLIC)):
        column = rows.non_tensor_batch[f"cost_rollout_{name}"].astype(float)
        assert column.sum() == pytest.approx(total)
        assert (column > 0).tolist() == rows.batch["attention_mask"][:, PROMPT_WIDTH:].any(1).tolist()


def test_data_without_public_tests_is_refused(minicoder, service):
    with pytest.raises(InputError, match="public_test_cases"):
        roll(minicoder, [[WRONG]], tests=None)


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
def test_verls_vllm_rollout_plays_in_training_and_validates_as_before(minicoder, service, monkeypatch):
    """The fake engine answers with the prompt backwards: no program, so every trajectory goes on to its last turn."""
    monkeypatch.setenv(ONLINE_VARIABLE, make_settings(turns=2, require_end=False).to_json())
    service.run = lambda code, tests: FakeService().run("print(0)", tests)
    vllm = VLLMRollout()
    rollout = OnlineRollout(vllm, SimpleNamespace(prompt_length=PROMPT_WIDTH, response_length=PROMPT_WIDTH))
    assert vllm.sampling_params.output_kind is not None
    prompts = make_prompts(minicoder, ["sum"], 3 * 2, PUBLIC_TESTS)
    for _ in range(2):  # request ids are new in each call
        rows = rollout.generate_sequences(prompts)
        assert played(rows, turns=2) == [2, 2, 2]
        for prompt, response in zip(rows.batch["prompts"], rows.batch["responses"], strict=True):
            assert (
                prompt[prompt != minicoder.pad_token_id].flip(0).tolist()
                == response[response != minicoder.pad_token_id].tolist()
            )
    prompts.meta_info["validate"] = True
    assert rollout.generate_sequences(prompts) == "a single turn"
