"""The doors of examples/ to other trainers, with the real packages where they are installed (examples/README.md)."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_server import api_server

from cobalt.prompts import (
    COBALT,
    PromptSet,
    described,
    feedback_message,
    first_messages,
    load_prompts,
    problem_instruction,
)
from cobalt.records import TestCases, write_jsonl
from cobalt.records.manifest import manifest_path
from cobalt.rewards import Thinking, thinking_of, tokenizer_counter, training_reward
from cobalt.sandbox import ExecutionResult, Executor

ROOT = Path(__file__).resolve().parents[1]
MINICODER = str(ROOT / "assets" / "minicoder")
ALL = TestCases(("1 2", "5", "-1 1", "7 7 8", "2 2"), ("3", "5", "0", "22", "4"))
PUBLIC = ALL.select([0, 1])
QUESTION = "Your program receives one line that holds several integers, separated by single spaces. Print the sum."
PROBLEM = {
    "id": "sum",
    "instruction": problem_instruction(QUESTION),
    "test_cases": ALL.to_json(),
    "public_test_cases": PUBLIC.to_json(),
}
RIGHT = "print(sum(map(int, input().split())))"


def answer(program: str) -> str:
    return f"<think>so</think>\n```python\n{program}\n```"


def minicoders_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MINICODER)


async def lost(executor: Executor, programs: list) -> list[ExecutionResult]:
    """In the place of ``Executor.run_many``."""
    return [ExecutionResult.infra(2, "worker lost") for _ in programs]


async def episode_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answers: Any, num_turns: int, prompts: PromptSet = COBALT
) -> tuple[Any, list]:
    """The episode of the problem, and the messages of each request. ``answers``: as ``api_server`` takes."""
    vf = pytest.importorskip("verifiers.v1")
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    write_jsonl(folder / "problems.jsonl", [{**PROBLEM, "instruction": problem_instruction(QUESTION, prompts=prompts)}])
    manifest_path(folder / "problems.jsonl").write_text(json.dumps({"origin": {"prompts": described(prompts)}}))
    taskset = {"id": "verifiers_env", "problems": str(folder / "problems.jsonl")}
    env = load_environment(resolve_env_config({"taskset": taskset, "tokenizer": MINICODER, "num_turns": num_turns}))
    with api_server(answers) as server:
        client = vf.EvalClientConfig(base_url=server.base, api_key_var="NO_KEY")
        context = vf.ModelContext(client=client, model="local", sampling=vf.SamplingConfig(max_tokens=96))
        async with env.serving():
            (task,) = env.taskset
            episode = await env.run_slot(env.slots(task)[0], context)
        return episode, [body["messages"] for body in server.bodies]


async def test_an_episode_has_the_prompts_and_rewards_of_cobalt(tmp_path: Path, monkeypatch) -> None:
    programs = ["print(3)", RIGHT, RIGHT]
    texts = iter([*map(answer, programs)])
    episode, prompts = await episode_of(tmp_path, monkeypatch, lambda *_: ("ok", {"text": next(texts)}), 2)
    assert episode.ok and [trace.metrics["pass_rate"] for trace in episode.traces] == [0.2, 1, 1]
    tokenizer = minicoders_tokenizer()
    counter, thinking = tokenizer_counter(tokenizer), thinking_of(tokenizer)
    expected = [
        training_reward(answer(program), rate, best, counter, thinking=thinking).total
        for program, rate, best in zip(programs, [0.2, 1, 1], [0, 0.2, 1], strict=True)
    ]
    assert [trace.reward for trace in episode.traces] == pytest.approx(expected)
    shown = ["Input:\n5\nProgram's Output:\n3\nExpected Output:\n5", None]
    assert prompts[0] == first_messages(PROBLEM["instruction"])
    stripped = {"role": "assistant", "content": "```python\nprint(3)\n```"}
    assert prompts[1] == [*prompts[0], stripped, feedback_message(shown[0])]
    assert "passed all public test cases" in prompts[2][-1]["content"]


async def test_an_episode_has_the_prompt_set_of_its_problems(tmp_path: Path, monkeypatch) -> None:
    own = replace(COBALT, system="You add.", no_program="There is no program.")
    _, prompts = await episode_of(tmp_path, monkeypatch, lambda *_: ("ok", {"text": "nothing"}), 1, own)
    assert prompts[0][0]["content"] == "You add." and "There is no program." in prompts[1][-1]["content"]


async def test_an_infrastructure_failure_is_no_reward(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("verifiers.v1")
    monkeypatch.setattr(Executor, "run_many", lost)
    episode, _ = await episode_of(tmp_path, monkeypatch, lambda *_: ("ok", {"text": answer(RIGHT)}), 2)
    assert not episode.ok and "worker lost" in episode.errors[-1].message
    assert [trace.rewards for trace in episode.traces] == [{}]


async def test_minicoder_plays_an_episode(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("verifiers.v1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(MINICODER), AutoModelForCausalLM.from_pretrained(MINICODER)
    one_at_a_time = threading.Lock()

    def generated(body: dict, _attempt: int) -> tuple[str, dict]:
        prompt = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with one_at_a_time, torch.inference_mode():
            tokens = model.generate(**prompt, max_new_tokens=body["max_tokens"], do_sample=False)
        return "ok", {"text": tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)}

    own = load_prompts(str(ROOT / "assets" / "minicode" / "prompts.json"))  # the wording that it was trained with
    episode, prompts = await episode_of(tmp_path, monkeypatch, generated, 1, own)
    assert episode.ok and [len(messages) for messages in prompts] == [2, 4]
    assert all("```python" in trace.last_reply and -1 <= trace.reward <= 1 for trace in episode.traces)


@pytest.mark.parametrize("thinking", ["required", "none"])
async def test_the_reward_for_trl(monkeypatch, thinking: Thinking) -> None:
    pytest.importorskip("trl")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import trl_reward

    texts = [answer(RIGHT), answer("print(3)"), "nothing"]
    columns = {"test_cases": [ALL.to_json()] * 3, "prev_best_pass_rate": [0.2] * 3}
    columns |= {"count_tokens": tokenizer_counter(minicoders_tokenizer()), "thinking": thinking}
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    expected = [
        training_reward(text, rate, 0.2, columns["count_tokens"], thinking=thinking).total
        for text, rate in zip(texts, [1, 0.2, None], strict=True)
    ]
    assert await trl_reward.cobalt(completions, **columns) == expected

    monkeypatch.setattr(Executor, "run_many", lost)
    assert await trl_reward.cobalt(completions, **columns) == [None] * 3


@pytest.mark.timeout(1800)
def test_trl_trains_minicoder(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("trl")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import torch
    import trl_reward
    from transformers import AutoModelForCausalLM

    messages = first_messages(PROBLEM["instruction"])
    tried = [{"role": "assistant", "content": "```python\nprint(3)\n```"}, feedback_message("Input:\n5")]
    contexts = [
        {"conversation": conversation, "test_cases": ALL.to_json(), "prev_best_pass_rate": best}
        for conversation, best in ((messages, 0.0), ([*messages, *tried], 0.2))
    ]
    write_jsonl(tmp_path / "contexts.jsonl", contexts)
    config = trl_reward.TrainConfig(
        tmp_path / "contexts.jsonl",
        MINICODER,
        str(tmp_path),
        steps=2,
        prompts_per_step=2,
        num_generations=4,
        max_tokens=96,
    )
    trainer = trl_reward.main(config)
    steps = [row for row in trainer.state.log_history if "rewards/cobalt/mean" in row]
    assert len(steps) == 2 and all(-1 <= row["rewards/cobalt/mean"] <= 1 for row in steps)
    assert any(row["rewards/cobalt/std"] > 0 for row in steps)
    before = dict(AutoModelForCausalLM.from_pretrained(MINICODER).named_parameters())
    after = trainer.model.named_parameters()
    assert any(not torch.equal(before[name].float(), value.detach().float().cpu()) for name, value in after)
