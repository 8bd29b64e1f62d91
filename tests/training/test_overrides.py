"""Misspelt settings and values of a wrong type are refused in one line, before Ray is asked for anything."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import OmegaConf
from test_recipes import ONLINE, PRESETS, run_recipe

from cobalt.errors import InputError
from cobalt.training.overrides import CONFIG_MODULE, CONFIG_NAME, NULL_INTEGERS, REAL, refuse_faulty, refused_by_hydra

CONFIG_DIR = Path(__file__).parents[2] / "verl/config"


def refuse(*overrides, recipe="multi_turn", preset="cpu"):
    """As ``cobalt train`` composes and checks them."""
    overrides = [f"+recipe={recipe}", f"+preset={preset}", *overrides]
    try:
        with initialize_config_module(CONFIG_MODULE, version_base=None):
            config = compose(CONFIG_NAME, [f"hydra.searchpath=['file://{CONFIG_DIR}']", *overrides])
    except HydraException as error:
        raise refused_by_hydra(error, overrides, CONFIG_DIR) from None
    refuse_faulty(config, overrides)


def verl_values():
    with initialize_config_module(CONFIG_MODULE, version_base=None):
        config = OmegaConf.to_container(compose(CONFIG_NAME), resolve=True)

    def walk(section):
        for name, value in section.items():
            yield from walk(value) if isinstance(value, dict) else [(name, value)]

    return list(walk(config))


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.total_training_steps=two", "trainer.total_training_steps=two: expected an integer"),
        ("trainer.total_training_steps=2.5", "trainer.total_training_steps=2.5: expected an integer"),
        ("trainer.total_epochs=null", "trainer.total_epochs=null: expected an integer"),
        ("trainer.nnodes=true", "trainer.nnodes=True: expected an integer"),
        ("actor_rollout_ref.actor.optim.lr=abc", "actor_rollout_ref.actor.optim.lr=abc: expected a number"),
        ("actor_rollout_ref.actor.optim={lr: abc}", "actor_rollout_ref.actor.optim.lr=abc: expected a number"),
        ("actor_rollout_ref.actor.optim=1", "actor_rollout_ref.actor.optim=1: expected settings in braces"),
        ("actor_rollout_ref.rollout.top_p=most", "actor_rollout_ref.rollout.top_p=most: expected a number"),
        ("trainer.val_before_train=no", "trainer.val_before_train=no: expected true or false"),
        ("data.val_batch_size=[1]", "data.val_batch_size=[1]: expected an integer"),
    ],
)
def test_a_value_of_another_type_than_verls(override, told):
    with pytest.raises(InputError) as refused:
        refuse(override)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    "override",
    [
        "trainer.total_training_steps=2",
        "trainer.total_training_steps=null",
        "trainer.logger=console",
        "trainer.experiment_name=20260101",
        "trainer.profile_steps=[1,2]",
        "actor_rollout_ref.actor.optim.lr=1",
        "actor_rollout_ref.actor.optim.lr=5e-5",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.rollout.top_p=0.95",
        "+actor_rollout_ref.model.override_config.dropout=0.1",
        "data.train_files=[a.parquet,b.parquet]",
        "hydra.run.dir=elsewhere",
        "+data.seed=1",
        "+data.gen_batch_size=8",
        "+reward_model.reward_kwargs.cpu_limit_s=9",
        "+custom_reward_function.reward_kwargs.correct_half=0.3",
        "~actor_rollout_ref.rollout.multi_turn",
    ],
)
def test_what_verl_or_we_take(override):
    refuse(override)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("recipe", ["multi_turn", "single_turn", *ONLINE])
def test_recipes_and_presets_are_let_through(recipe, preset):
    refuse(recipe=recipe, preset=preset)


@pytest.mark.parametrize("prefix", ["", "+", "++"])
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("trainer.total_training_step", "trainer.total_training_steps"),
        ("trainr.nnodes", "trainer.nnodes"),
        ("reward_model.reward_kwarg.executor", "reward_model.reward_kwargs.executor"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_one_that_was_meant(prefix, misspelt, meant):
    with pytest.raises(InputError) as refused:
        refuse(f"{prefix}{misspelt}=2")
    assert str(refused.value) == f"'{misspelt}': no such setting; did you mean {meant}?"


def test_the_exceptions_are_settings_of_verl():
    values = verl_values()
    integers = [name for name, value in values if value is None and NULL_INTEGERS.fullmatch(name)]
    assert len(set(integers)) == 17 and not any("path" in name for name in integers)
    assert {name for name, value in values if type(value) is int} >= REAL


def test_the_recipe_and_its_dry_run_say_it(tmp_path):
    for argument, told in (
        ("trainer.total_training_steps=two", "trainer.total_training_steps=two: expected an integer"),
        ("+trainer.total_training_step=2", "did you mean trainer.total_training_steps?"),
    ):
        done = run_recipe("train_grpo_multi_turn.sh", "--dry-run", argument, PRESET="cpu", OUTPUT_DIR=str(tmp_path))
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("cobalt train: error: ") and told in line
    assert not list(tmp_path.iterdir())
