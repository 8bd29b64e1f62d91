"""veRL's trainers as subclassed: what is lost teaches nothing, what it costs is counted, and when training ends."""

import json
import math
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from online_parts import compose, compose_recipe, jagged, make_manager, make_trajectory, respond
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import get_kl_controller
from verl.trainer.ppo.v1 import get_trainer_cls, replay_buffer, trainer_base
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.tracking import Tracking

from cobalt.errors import CobaltError, SetupError
from cobalt.records import write_jsonl
from cobalt.records.training_run import METRICS_FILE, TRACKER_NAME, read_metrics, saved_steps, training_manifest
from cobalt.training import trainer as trainer_module
from cobalt.training import updates
from cobalt.training.batch_scores import InfraGuard
from cobalt.training.config import completed
from cobalt.training.preflight import REGISTERED
from cobalt.training.trainer import CobaltTrainerSync

ASYNC = ["trainer.v1.trainer_mode=colocate_async", "algorithm.rollout_correction.rollout_is=token"]
FILTER = ["algorithm.filter_groups.enable=true"]
TOTAL_STEPS = 4
BEST = 2


@cache
def completed_once(*overrides):
    return completed(compose(*overrides))


def trainer_of(*overrides, folder=None):
    """As veRL would make it, without processes. ``folder``: of its checkpoints."""
    config = deepcopy(completed_once(*overrides))
    config.trainer.default_local_dir = str(folder or config.trainer.default_local_dir)
    made = object.__new__(get_trainer_cls(config.trainer.v1.trainer_mode))
    made.config, made.trainer_mode, made.parameter_sync_step = config, config.trainer.v1.trainer_mode, 1
    made.buffer, made.agent_loop_manager = made._build_replay_buffer(), Mock()
    return made


@pytest.fixture
def queue(monkeypatch):
    """Stands in for veRL's queue with these columns, which also takes new ones."""

    def use(rows, columns):
        def put(fields, **_where):
            columns.update(fields.items())
            return batch

        def get(select_fields, **_where):
            return TensorDict({name: columns[name] for name in select_fields if name in columns}, len(rows))

        batch = KVBatchMeta(keys=[*rows], tags=[{}] * len(rows), partition_id="train")
        for module in (trainer_module, trainer_base, updates):
            monkeypatch.setattr(module, "tq", SimpleNamespace(kv_batch_get=get, kv_batch_put=put))
        return batch, columns

    return use


def test_rows_of_a_problem_stay_together_on_a_rank(queue, monkeypatch):
    """Its contexts are prompts of their own. The queue holds their tokens, the tags the lengths of the responses."""
    problems = [torch.arange(start, start + 60) for start in (0, 100)]
    prompts = [problem[:length] for length in (20, 60, 40, 60) for problem in problems]
    queue(prompts, {"prompts": jagged(prompts)})
    made, metrics = object.__new__(CobaltTrainerSync), {}
    sizes = ["actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.rollout.n=2"]
    made.config, made._method = completed(compose(*sizes)), None
    made.use_critic, made.global_steps, made.tokenizer = False, 1, SimpleNamespace(eos_token_id=0)
    made._actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0, 1]})
    keys = [f"row_{row}_0" for row in range(8)]
    tags = [{"prompt_len": len(prompt), "response_len": 5} for prompt in prompts]
    batch = made._balance_batch(KVBatchMeta(keys=[*keys], tags=tags, partition_id="train"), metrics)
    order = [keys.index(key) for key in batch.keys]
    assert sorted(map(sorted, (order[:4], order[4:]))) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert metrics["global_seqlen/balanced_max"] == 60 + 4 * 5

    def updated(_self, batch, metrics):
        metrics["perf/mfu/actor"] = 1.0
        return batch

    monkeypatch.setattr(trainer_module.PPOTrainerSync, "_update_actor", updated)
    made._update_actor(batch, metrics)
    assert metrics["perf/mfu/actor"] == 2 * (60 + 4 * 5) / (2 * (20 + 60 + 40 + 60 + 4 * 5))  # shared tokens count once


@pytest.mark.parametrize(
    ("preset", "overrides", "expected"),
    [
        ("one-gpu-coder", [], True),
        ("cpu", [], True),
        ("one-gpu-vllm", [], False),  # compares vLLM's probabilities with them
        ("paper-qwen3", ["actor_rollout_ref.rollout.calculate_log_probs=false"], False),  # two updates a step
        ("one-gpu-coder", ["actor_rollout_ref.actor.ppo_epochs=2"], False),
        ("one-gpu-coder", ["actor_rollout_ref.actor.ppo_mini_batch_size=16"], False),
        ("one-gpu-coder", ["algorithm.use_kl_in_reward=true"], False),
        ("one-gpu-coder", ["cobalt.share_prompts=false", "cobalt.loss_weights=tokens"], False),
    ],
)
def test_old_log_probs_take_a_pass_only_where_it_tells_something_new(monkeypatch, preset, overrides, expected):
    config = completed(compose_recipe("multi_turn", preset, *overrides))
    made, metrics, passes = object.__new__(CobaltTrainerSync), {}, []
    made.config, made._method, made._computed_tokens = config, None, 1
    batch = SimpleNamespace(extra_info={}, tags=[{"prompt_len": 1, "response_len": 0}])

    def passed(_self, batch, metrics):
        passes.append("old")
        metrics["actor/entropy"] = 0.5
        return batch

    def updated(_self, batch, metrics):
        metrics["perf/mfu/actor"] = 1.0
        if config.actor_rollout_ref.actor.calculate_entropy:
            metrics["actor/entropy_loss"] = 0.5
        return batch

    monkeypatch.setattr(trainer_module.PPOTrainerSync, "_compute_old_log_prob", passed)
    monkeypatch.setattr(trainer_module.PPOTrainerSync, "_update_actor", updated)
    made._update_actor(made._compute_old_log_prob(batch, metrics), metrics)
    assert (passes == [], batch.extra_info["own_old_log_probs"]) == (expected, expected)
    assert metrics == {"actor/entropy": 0.5, "perf/mfu/actor": 1.0}


def scored(groups):
    """The scores of groups by row, and the queue's columns of them. None: a response that could not be scored."""
    scores = {f"{uid}_{n}_0": score for uid, scores in groups.items() for n, score in enumerate(scores)}
    acc = [math.nan if score is None else score for score in scores.values()]
    infos = [{"reward_extra_info": {"infra": float(math.isnan(score)), "acc": score}} for score in acc]
    columns = {"uid": NonTensorStack(*(key[0] for key in scores)), "extra_fields": NonTensorStack(*infos)}
    columns["rm_scores"] = jagged([torch.tensor([0.0, score]) for score in acc])
    columns["response_mask"] = jagged([torch.ones(2).long() for _ in scores])
    return scores, columns


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({"a": [1.0]}, {"a": [0.0]}),
        ({"a": [1.0], "b": [1.0, 0.0, 0.0, 0.0]}, {"a": [0.0], "b": [1.5, -0.5, -0.5, -0.5]}),
        ({"a": [1.0, None, 0.0]}, {"a": [1.0, 0.0, -1.0]}),
        ({"a": [1.0, 0.0, None], "b": [0.5, 0.5, None]}, {"a": [1.0, -1.0, 0.0], "b": [0.0, 0.0, 0.0]}),
    ],
)
def test_who_is_left_of_a_group_of_four_wins_nothing_by_it(queue, left, expected):
    """By veRL's own advantages."""
    scores, columns = scored(left)
    batch, columns = queue(scores, columns)
    made, metrics = trainer_of("actor_rollout_ref.rollout.n=4"), {}
    made.config.data.train_batch_size, made._guard = len(left), InfraGuard(1)
    made._compute_advantage(batch, metrics)
    made.agent_loop_manager.wait_for_scores.assert_called_once_with()
    found = iter(columns["advantages"].unbind())
    for values in expected.values():
        given = torch.stack([next(found)[0] for _ in values])
        torch.testing.assert_close(given, torch.tensor(values), atol=1e-4, rtol=0)
    found = [score for score in scores.values() if score is not None]
    assert metrics["reward/infra"] == pytest.approx(1 - len(found) / (4 * len(left)))
    assert metrics["reward/acc"] == pytest.approx(np.mean(found))


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.use_kl_in_reward=true"],
        ["algorithm.adv_estimator=reinforce_plus_plus_baseline", "cobalt.loss_weights=tokens"],
    ],
)
@pytest.mark.parametrize(
    ("scores_of", "silent"),
    [
        ({"a": [None] * 4, "b": [1.0, 0.0, 1.0, 0.0]}, range(4)),
        ({"a": [None, None, None, 0.0], "b": [1.0, 0.0, 1.0, 0.0]}, range(4)),
        ({"a": [1.0, 1.0, 0.0, None], "b": [1.0, 0.0, 1.0, 0.0]}, [3]),
        ({"a": [1.0], "b": [1.0, 0.0, 1.0, 0.0]}, [0]),
    ],
)
def test_what_could_not_be_scored_moves_nothing_whatever_is_added_to_rewards(queue, overrides, scores_of, silent):
    (scores, columns), generator = scored(scores_of), torch.Generator().manual_seed(0)
    for name in ("old_log_probs", "ref_log_prob"):
        columns[name] = jagged([-torch.rand(2, generator=generator) for _ in scores])
    batch, columns = queue(scores, columns)
    made = trainer_of("actor_rollout_ref.rollout.n=4", *overrides)
    made.kl_ctrl_in_reward = get_kl_controller(made.config.algorithm.kl_ctrl)
    made.config.data.train_batch_size, made._guard = 2, InfraGuard(1)
    made._compute_advantage(batch, {})
    for row, advantages in enumerate(columns["advantages"].unbind()):
        assert (advantages == 0).all() == (row in silent), row


@pytest.mark.parametrize("estimator", REGISTERED["algorithm.adv_estimator"])
def test_each_estimator_that_is_taken_gets_what_it_reads(queue, estimator):
    batch, columns = queue(*scored({"a": [1.0, 0.0, 0.5, 0.0], "b": [1.0, 0.0, 1.0, 0.0]}))
    made = trainer_of("actor_rollout_ref.rollout.n=4")
    made.config.algorithm.adv_estimator, made.config.data.train_batch_size = estimator, 2
    made._compute_advantage(batch, {})
    best, worst, *_ = (advantages[-1] for advantages in columns["advantages"].unbind())
    assert best > 0 >= worst


@pytest.mark.parametrize(
    ("shares", "sent"), [("true", {*trainer_module.READ_BY_PASSES}), ("false", {"prompts", "raw_prompt"})]
)
def test_passes_over_shared_prompts_get_no_messages_and_tests(queue, shares, sent):
    batch, _ = queue(["r0"], {})
    given = []

    def computed(batch):
        given.append({*batch.fields})
        raise TimeoutError  # what follows needs a model

    trainer = trainer_of(f"cobalt.share_prompts={shares}", "cobalt.loss_weights=tokens")
    trainer._actor_rollout_wg = SimpleNamespace(compute_log_prob=computed, update_actor=computed)
    trainer.ref_policy_wg, trainer.ref_in_actor = SimpleNamespace(compute_ref_log_prob=computed), False
    trainer._method, trainer.distillation_config = None, None
    for compute in (trainer._compute_old_log_prob, trainer._compute_ref_log_prob, trainer._update_actor):
        batch.fields = ["prompts", "raw_prompt"]
        with pytest.raises(TimeoutError):
            compute(batch, {})
    assert given == [sent] * 3


def test_tokens_of_older_policies_are_weighed_by_truncated_ratios(queue):
    """From veRL's queue and back: two rows of a group, whose policy has moved since vLLM wrote them."""
    lengths, moved = (3, 2), torch.tensor([0.0, 0.5, 3.0, -1.0, 0.1])
    rows = {
        "rm_scores": [torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0])],
        "response_mask": [torch.ones(length, dtype=torch.long) for length in lengths],
        "rollout_log_probs": list((-1 - moved).split(lengths)),
        "old_log_probs": [-torch.ones(length) for length in lengths],
    }
    more = {"uid": NonTensorStack("a", "a"), "extra_fields": NonTensorStack({}, {})}
    batch, columns = queue(["a_0_0", "a_1_0"], {name: jagged(values) for name, values in rows.items()} | more)
    made, metrics = trainer_of(*ASYNC, "actor_rollout_ref.rollout.n=2"), {}
    made.config.data.train_batch_size = 1
    made._compute_advantage(batch, metrics)
    made.agent_loop_manager.wait_for_scores.assert_not_called()  # they are scored before
    torch.testing.assert_close(columns["rollout_is_weights"].values(), moved.exp().clamp(max=2.0))
    assert columns["advantages"].values().sign().tolist() == [1, 1, 1, -1, -1]
    assert any(name.startswith("rollout_corr/") for name in metrics)


async def test_what_validation_lost_or_could_not_score_is_no_wrong_program(minicoder, service):
    lost = await make_manager(minicoder).run_single(make_trajectory(minicoder, [respond("fail")], validates=True))
    info = lost["reward_extra_info"]
    made, uids = object.__new__(CobaltTrainerSync), list("abcd")
    expected = {("taco", uid): 1 for uid in uids}
    scored = {"reward": [1.0, 0.0, 1.0], "acc": [1.0, 0.0, 1.0], "infra": [0.0] * 3, "pred": ["x", "y", "z"]}
    failed = {"reward": lost["reward_score"], "acc": info["acc"], "infra": info["infra"], "pred": "w"}
    for more in ({}, failed):
        infos = {name: [*values, more[name]] if more else [*values] for name, values in scored.items()}
        count = len(infos["acc"])
        metrics = made._val_metrics_update(["taco"] * count, uids[:count], infos, [], expected_acc_counts=expected)
        assert metrics["val-core/taco/acc/mean@1"] == metrics["val-aux/taco/reward/mean@1"] == pytest.approx(2 / 3)
        assert metrics["val-aux/taco/infra/mean@1"] == 0.25


@pytest.mark.parametrize("overrides", [[], ASYNC], ids=["sync", "colocate_async"])
def test_failed_groups_come_to_the_trainer_and_nothing_but_failed_groups_ends_the_run(overrides, monkeypatch):
    """veRL would generate others in their place, in vain where the engine is dead. Rows come in the data's order."""
    buffer = trainer_of(*overrides).buffer
    buffer.refill_fn = lambda count: pytest.fail(f"{count} more groups")
    group, row = {"is_prompt": True, "global_steps": 1}, {"global_steps": 1}
    tags = {"c": {**group, "status": "failure"}, "a": {**group, "status": "failure"}}
    tags |= {"b": {**group, "status": "finished"}, **dict.fromkeys(["b_10_0", "b_2_1", "c_2_0", "b_2_0"], row)}
    queue = SimpleNamespace(kv_list=lambda: {"train": tags}, kv_clear=lambda **_where: None)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=3)
    assert batch.keys == ["c_2_0", "b_2_0", "b_2_1", "b_10_0"]
    tags = {name: {**group, "status": "failure"} for name in "ab"}
    with pytest.raises(SetupError, match="stopped: all responses to 2 prompts were lost"):
        buffer.sample(global_steps=1, partition_id="train", batch_size=2)


def test_rollouts_that_go_on_over_updates_have_the_buffer_for_it():
    made = trainer_of(*ASYNC)
    assert isinstance(made.buffer, ReplayBufferAsync) and made.buffer.trainer_mode == "colocate_async"
    assert made.buffer.trainer_config.num_warmup_batches == 1
    assert made.config.algorithm.rollout_correction.rollout_is_threshold == 2.0


@pytest.mark.parametrize("overrides", [[], ASYNC])
def test_the_end_of_rollouts_is_seen_at_once(overrides, monkeypatch):
    """veRL sleeps 2 s between two looks."""
    slept = []
    monkeypatch.setattr(replay_buffer, "time", SimpleNamespace(sleep=slept.append, time=lambda: 0.0))
    trainer_of(*overrides).buffer._wait_for_next_poll("train", 0.0)
    assert slept == [0.2]


def test_a_callback_is_told_of_a_checkpoint_once_it_has_its_name(tmp_path, monkeypatch):
    """Where saving fails nothing is told, and the checkpoint before stays."""
    told, made = [], trainer_of(folder=tmp_path)
    made.checkpoint_callback = SimpleNamespace(on_save=lambda **given: told.append(given))

    def save(trainer):
        folder = Path(trainer.config.trainer.default_local_dir)
        (folder / f"global_step_{trainer.global_steps}").mkdir()
        trainer.checkpoint_callback.on_save(trainer=trainer, global_step=0, checkpoint_dir="")
        if trainer.global_steps == 2:
            raise ValueError("half")
        (folder / TRACKER_NAME).write_text(str(trainer.global_steps))

    monkeypatch.setattr(trainer_module.PPOTrainerSync, "_save_checkpoint", save)
    made.global_steps = 1
    made._save_checkpoint()
    made.global_steps = 2
    with pytest.raises(ValueError, match="half"):
        made._save_checkpoint()
    assert [(given["global_step"], given["checkpoint_dir"]) for given in told] == [(1, str(tmp_path / "global_step_1"))]
    assert [*saved_steps(tmp_path)] == [1] and (tmp_path / TRACKER_NAME).read_text() == "1"


def test_the_group_filter_asks_for_the_reward():
    plain, filtering = trainer_of().buffer, trainer_of(*FILTER).buffer
    assert isinstance(plain, ReplayBuffer) and type(plain) is type(filtering) is not ReplayBufferAsync
    assert (plain.filter_groups_metric, filtering.filter_groups_metric) == (None, "reward")


async def test_a_group_that_could_not_be_scored_is_not_filtered_so_a_dead_service_ends_the_run(
    minicoder, service, monkeypatch
):
    lost = await make_manager(minicoder).run_single(make_trajectory(minicoder, [respond("fail")]))
    scores = {"lost_0_0": lost["reward_score"], "lost_1_0": lost["reward_score"], "equal_0_0": 0.5, "equal_1_0": 0.5}
    scores |= {"unlike_0_0": 0.0, "unlike_1_0": 1.0}

    def get(keys, **_where):
        return {"rm_scores": [torch.tensor([0.0, scores[key]]) for key in keys]}

    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(kv_batch_get=get))
    buffer = trainer_of(*FILTER).buffer
    buffer.partitions["train"] = dict.fromkeys(scores)
    buffer.finished_keys["train"] = {"lost", "equal", "unlike"}
    assert buffer._dapo_filtered_keys("train")[0] == {"equal"}


def test_costs_are_those_of_all_responses_also_of_those_that_the_filter_throws_away(monkeypatch):
    made = trainer_of(*FILTER)
    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(kv_clear=lambda **_where: None))
    monkeypatch.setattr(trainer_base.PPOTrainer, "_compute_metrics", lambda *_args, **_kwargs: None)
    size = {"prompt_len": 5, "response_len": 2}
    made.buffer.partitions["train"] = dict.fromkeys(("equal_0_0", "equal_1_0", "kept_0_0", "kept_1_0"), size)
    made.buffer._clear_groups("train", {"equal"})
    for responses in (4, 2):  # the next step pays for its own
        metrics = {}
        made._compute_metrics(SimpleNamespace(tags=[size, size, {"is_padding": True}]), metrics, {})
        paid = [metrics[f"cost/{name}"] for name in ("responses", "prompt_tokens", "response_tokens")]
        assert (paid, metrics["cost/gpus"]) == ([responses, 5 * responses, 2 * responses], 1)


def test_the_guard_has_the_limit_of_our_reward_manager_and_others_have_none():
    """Nothing notes failures of veRL's own managers."""
    assert trainer_of("reward.reward_kwargs.max_infra_rate=0.125")._guard.max_infra_rate == 0.125
    naive = ["reward.reward_manager.name=naive", "reward.reward_manager.source=register"]
    assert trainer_of(*naive, "+reward.reward_kwargs.overlong=5")._guard.max_infra_rate == 0.25


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Trains from after the given step on. Each step costs 10 responses and 10 GPU-seconds. Gives the steps."""
    config = {"data": {"train_batch_size": 1}, "trainer": {"n_gpus_per_node": 2, "nnodes": 1}}
    training_manifest(tmp_path).write_text(json.dumps({"config": config}))

    def train(*overrides, after=0, total=TOTAL_STEPS, breaks_at=None):
        rows = [{"step": step, "timing_s/step": 5.0, "cost/responses": 10} for step in range(1, after + 1)]
        write_jsonl(tmp_path / METRICS_FILE, rows)
        made, steps = trainer_of(*overrides, folder=tmp_path), []
        made.global_steps, made.total_training_steps = after, total

        def fit(self, _manager):
            self.logger, self.global_steps = SimpleNamespace(log=lambda **_: None), self.global_steps + 1
            while True:
                is_last = self.global_steps >= self.total_training_steps  # as veRL asks, before the step
                (tmp_path / f"global_step_{self.global_steps}").mkdir()
                (tmp_path / TRACKER_NAME).write_text(str(self.global_steps))
                metrics = {"timing_s/step": 5.0, "cost/responses": 10, "training/global_step": self.global_steps}
                metrics["val-core/cobalt/acc/mean@1"] = float(self.global_steps == BEST)
                self.logger.log(data=metrics, step=self.global_steps)
                steps.append(self.global_steps)
                self.global_steps += 1
                if is_last or breaks_at == steps[-1]:
                    return

        monkeypatch.setattr(trainer_base.PPOTrainer, "fit", fit)
        made.fit(None)
        return steps

    return train


@pytest.mark.parametrize(("keep", "kept"), [("2", {BEST, 5, 6}), ("1", {BEST, 6}), ("null", set(range(1, 7)))])
def test_the_last_checkpoints_stay_and_the_best_by_validation(run, tmp_path, keep, kept):
    run(f"cobalt.keep_checkpoints={keep}", total=6)
    assert saved_steps(tmp_path).keys() == kept


@pytest.mark.parametrize("after", [0, 3])
def test_an_unfinished_run_trains(run, after):
    assert run(after=after) == [*range(after + 1, TOTAL_STEPS + 1)]


@pytest.mark.parametrize("after", [TOTAL_STEPS, 9])
def test_a_finished_run_is_left_alone_and_says_so_but_can_be_validated(run, after, capsys):
    assert run(after=after) == []
    assert f"finished already: checkpoint {after} of {TOTAL_STEPS} steps" in capsys.readouterr().out
    assert run("trainer.val_only=true", after=after)


def test_a_run_that_ends_before_its_last_step_is_a_failure(run):
    with pytest.raises(CobaltError, match=f"^training ended after step 2 of {TOTAL_STEPS}$"):
        run(breaks_at=2)


@pytest.mark.parametrize(
    ("budget", "after", "last"),
    [
        *((f"{{responses: {limit}}}", 0, last) for limit, last in [(26, 3), (30, 3), (34, 3), (36, 4)]),
        *((f"{{gpu_seconds: {limit}}}", 0, last) for limit, last in [(34, 3), (36, 4)]),
        ("{responses: 34}", 2, 3),  # known before the first step of a resumed run
        ("{responses: 30}", 3, 3),  # spent
    ],
)
def test_training_ends_closest_to_the_budget(run, budget, after, last):
    assert run(f"cobalt.budget={budget}", after=after, total=100) == [*range(after + 1, last + 1)]


def test_the_metrics_file_holds_what_is_logged_a_line_for_each_call_and_verls_loggers_get_it_too(tmp_path, capsys):
    made = trainer_of(folder=tmp_path)
    made.logger = Tracking("cobalt", "run", default_backend=["console"], config={})
    for step, data in ((1, {"reward/total": 0.25}), (2, {"reward/total": 0.5}), (2, {"reward/acc": 3})):
        made.logger.log(data=data, step=step)
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert lines == [{"step": 1, "reward/total": 0.25}, {"step": 2, "reward/total": 0.5}, {"step": 2, "reward/acc": 3}]
    assert read_metrics(tmp_path / METRICS_FILE)[1] == {"step": 2, "reward/total": 0.5, "reward/acc": 3}
    assert "step:1 - reward/total:0.25" in capsys.readouterr().out
