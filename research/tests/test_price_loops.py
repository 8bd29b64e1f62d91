"""The loops of bench_methods.py in the real veRL 0.9.1, on a CPU. An engine in memory gives what it is asked for."""

from test_plugin import MINICODER, compose  # skips without veRL 0.9.1

# isort: split
import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from test_online_plugin import Queue, Worker, trained
from transformers import AutoTokenizer
from verl.experimental.agent_loop import agent_loop as verls_loop
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from cobalt.prompts import prompt_tokens
from cobalt.training.verl09 import trainer as our_trainer
from cobalt.training.verl09.config import adapted
from cobalt.training.verl09.manager import PROGRAMS, VALIDATES
from cobalt.training.verl09.online import TurnLoop
from research.benchmarks import bench_methods, price_loops
from research.benchmarks.bench_methods import ASYNC_OVERRIDES, OVERRIDES, PROMPTS, SAMPLES, Step, played

TOKENIZER = AutoTokenizer.from_pretrained(MINICODER)
STEPS = [Step("cobalt", 1000, 0), Step("grpo-mt", 3000, 1)]
TRIED = {"0.0": STEPS[0], "1.1": STEPS[1]}
"""Problems that are played, and their steps."""


class Engine:
    """Gives as many tokens as it is asked for, the last request's first; keeps what it was asked."""

    def __init__(self, too_few: int = 0) -> None:
        self.asked: list[dict[str, Any]] = []
        self._too_few = too_few

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any, **more: Any) -> Any:
        self.asked.append({**sampling_params, "prompt": len(prompt_ids)})
        await asyncio.sleep(0.02 / len(self.asked))
        ids = [TOKENIZER.eos_token_id] * (sampling_params["max_tokens"] - self._too_few)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"min_global_steps": 1})


class FullQueue(Queue):
    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.status = {**getattr(self, "status", {}), key: tag["status"]}


def recipe_script(command: list[str], env: dict[str, str], **_: Any) -> Any:
    """In place of the recipe's script: what it must be given."""
    assert Path(env["PYTHONPATH"].split(":")[0], "research/benchmarks/price_loops.py").is_file()
    assert f"trainer.total_training_steps={len(STEPS)}" in command and "data.shuffle=false" in command
    return SimpleNamespace(returncode=0)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Of a start, as the recipe's script composes it; three samples, one sandbox."""
    own = ["reward_model.reward_kwargs.executor=local", "+reward_model.reward_kwargs.workers=1"]
    loops = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path}/loops.yaml"
    made = adapted(compose(*OVERRIDES, *own, loops, recipe="grpo_online", preset="paper-qwen3-h200"))
    assert made.actor_rollout_ref.rollout.agent.agent_loop_config_path == f"{tmp_path}/loops.yaml"
    assert (made.data.train_batch_size, made.actor_rollout_ref.rollout.n) == (PROMPTS, SAMPLES)
    made.trainer.default_local_dir, made.actor_rollout_ref.rollout.n = str(tmp_path), 3
    return made


@pytest.fixture
def play(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trajectories of ``TRIED`` by veRL's agent-loop worker, from the training file to the queue."""

    async def run(engine: Engine) -> FullQueue:
        queue = FullQueue()
        monkeypatch.setattr(agent_loop_tq, "tq", queue)
        monkeypatch.setattr(our_trainer, "tq", queue)
        monkeypatch.setattr(TurnLoop, "service", None)
        with monkeypatch.context() as patched:
            patched.setattr(bench_methods.subprocess, "run", recipe_script)
            bench_methods.train(bench_methods.MethodsBenchConfig(), MINICODER, tmp_path / "start", STEPS, "r", "sync")
        for entry in OmegaConf.load(tmp_path / "start/loops.yaml"):
            monkeypatch.setitem(verls_loop._agent_loop_registry, entry.name, entry)
        config.data.cache_dir = str(tmp_path / "cache")
        dataset = RLHFDataset(str(tmp_path / "start/train.parquet"), TOKENIZER, config.data)
        rows = [dataset[number] for number in range(len(dataset))]
        rows = [row for row in rows if row["extra_info"]["price"]["step"] <= len(STEPS)]  # without the batch ahead
        rows = [row for row in rows if row["extra_info"]["price"]["problem"] in TRIED]
        batch = collate_fn(rows)
        batch["uid"] = np.array(list(TRIED), dtype=object)
        batch = tu.get_tensordict(batch)
        tu.assign_non_tensor_data(batch, "global_steps", 1)
        tu.assign_non_tensor_data(batch, VALIDATES, False)

        worker = object.__new__(Worker)
        worker.config, worker.rollout_config, worker.llm_client = config, config.actor_rollout_ref.rollout, engine
        worker.tokenizer, worker.processor, worker.mm_processor_kwargs = TOKENIZER, None, {}
        worker.tools, worker.hf_model_type, worker.dataset_cls = [], "qwen3", RLHFDataset
        worker.background_tasks, worker.distillation_enabled = set(), False
        manager = load_reward_manager(config, TOKENIZER, reward_router_address=None, reward_model_tokenizer=None)
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))]
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)
        for service in (manager.service, TurnLoop.service):
            if service is not None:
                await service.stack.aclose()
        return queue

    return run


async def test_engines_are_asked_for_the_drawn_lengths_and_conversations_end_as_drawn(
    play: Any, config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs run in real sandboxes, and rewards and advantages are the trainer's."""
    engine = Engine()
    queue = await play(engine)
    assert queue.status == dict.fromkeys(TRIED, "finished")
    expected: dict[str, int] = {}
    for problem, step in TRIED.items():
        paths = played(step)[int(problem[-1]) * SAMPLES :][:3]
        for sample, path in enumerate(paths):
            expected |= {f"{problem}_{sample}_{turn}": length for turn, length in enumerate(path)}
    assert {key: len(row["responses"]) for key, row in queue.rows.items()} == expected
    assert sum(key.startswith("1.1") for key in expected) > 3  # some conversations go on
    assert sorted(asked["max_tokens"] for asked in engine.asked) == sorted(expected.values())
    assert all(asked["ignore_eos"] and asked["temperature"] == 1.0 and asked["logprobs"] for asked in engine.asked)
    for sample, path in enumerate(played(STEPS[1])[SAMPLES : SAMPLES + 3]):
        judged = queue.rows[f"1.1_{sample}_0"]["extra_fields"]["reward_extra_info"][PROGRAMS]
        solved = [program["score"]["acc"] == 1.0 for program in judged]
        assert len(solved) == len(path) and not any(solved[:-1]) and (solved[-1] or len(path) == 3)
    lines = [json.loads(line) for line in (tmp_path / bench_methods.RESPONSES_FILE).read_text().splitlines()]
    named = {f"{line['problem']}_{line['sample']}_{line['turn']}": line["tokens"] for line in lines}
    assert named == expected and all(line["start"] < line["end"] for line in lines)
    assert {line["step"] for line in lines} == {1, 2}
    config.data.train_batch_size = len(TRIED)
    metrics, advantages = trained(queue, config, monkeypatch)
    assert metrics["reward/infra"] == 0 and advantages.keys() == expected.keys() and any(advantages.values())

    # prompts have the lengths that the prediction takes
    for key in expected:
        problem, _, turn = key.split("_")
        programs = bench_methods.shown_programs(TRIED[problem], int(problem[-1])) + int(turn)
        tokens = bench_methods.PROBLEM_TOKENS + bench_methods.TURN_TOKENS * programs
        assert len(queue.rows[key]["prompts"]) == pytest.approx(tokens, rel=0.03)


async def test_a_response_of_another_length_ends_a_run_without_figures(play: Any) -> None:
    queue = await play(Engine(too_few=1))
    assert queue.status == dict.fromkeys(TRIED, "failure") and not queue.rows


def test_contexts_are_longer_than_problems_as_the_prediction_takes_them() -> None:
    rows = bench_methods.training_rows([STEPS[0]], TOKENIZER)
    for index, messages in enumerate(rows["prompt"]):
        programs = bench_methods.shown_programs(STEPS[0], index)
        tokens = bench_methods.PROBLEM_TOKENS + bench_methods.TURN_TOKENS * programs
        assert len(prompt_tokens(TOKENIZER, messages)) == pytest.approx(tokens, rel=0.03)


def test_a_response_has_as_many_tokens_as_asked_for_and_holds_its_program() -> None:
    for length in (bench_methods.SHORTEST, bench_methods.LONGEST):
        ids = price_loops.answer_tokens(TOKENIZER, length, True, "2.3-15-2")
        assert len(ids) == length and ids[-1] == TOKENIZER.eos_token_id
        assert bench_methods.answer(True, "2.3-15-2") in TOKENIZER.decode(ids)


def test_asynchronous_rollouts_are_veRLs_trainer_and_without_own_loops_the_recipes_play() -> None:
    changed = adapted(compose(*OVERRIDES, *ASYNC_OVERRIDES, recipe="verpo_online", preset="paper-qwen3-h200"))
    assert changed.trainer.v1.trainer_mode == "cobalt_colocate_async"
    assert changed.actor_rollout_ref.rollout.agent.agent_loop_config_path.endswith("verl09/agent_loops.yaml")
