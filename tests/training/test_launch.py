"""What is refused before anything starts."""

import pytest
from test_recipes import compose_recipe

from cobalt.errors import InputError, SetupError
from cobalt.training import launch


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    monkeypatch.setattr(launch, "_connect", lambda *_arguments: pytest.fail("it started"))


def test_a_missing_data_file_is_named(tmp_path):
    config = compose_recipe("multi_turn", "cpu", f"data.train_files={tmp_path}/train.parquet", "data.val_files=[]")
    with pytest.raises(InputError, match=r"train\.parquet: no such file"):
        launch.train(config)


def test_hugging_face_rollouts_need_their_backend():
    with pytest.raises(InputError, match=r"cobalt\.backend=hf"):
        launch.train(compose_recipe("multi_turn", "paper-qwen3", "actor_rollout_ref.rollout.name=hf"))


def test_an_unknown_backend_is_refused():
    with pytest.raises(SetupError, match=r"cobalt\.backend=tpu"):
        launch.train(compose_recipe("multi_turn", "cpu", "cobalt.backend=tpu"))
