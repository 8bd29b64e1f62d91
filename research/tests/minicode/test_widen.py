"""Widened networks compute MiniCoder's function, cannot give padded ids, and learn."""

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from cobalt.errors import InputError
from cobalt.training.cost_model import SHAPES, Shape
from research.benchmarks import widen
from research.benchmarks.widen import WidenConfig, main, wide_settings
from research.minicode.corpus import sample_dialogues
from research.minicode.demonstrator import CLEAN

SHIPPED = Path(__file__).parents[3] / "assets" / "minicoder"
SIZES = {
    "tied": {"hidden_size": 704, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "untied": {"hidden_size": 640, "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": False},
}


def small_shape(name: str) -> Shape:
    sizes = {"intermediate_size": 640, "num_hidden_layers": 8, "head_dim": 128, "vocab_size": 1280}
    return Shape(**sizes, max_position_embeddings=4096, **SIZES[name])


def widen_into(shape: Shape, output: Path, **flags) -> Path:
    """As the command does for a published shape."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(widen.SHAPES, "qwen3-0.6b", shape)
        main(WidenConfig(shape="qwen3-0.6b", output=output, model=SHIPPED, **flags))
    return output


@pytest.fixture(scope="module", params=list(SIZES))
def widened(request, tmp_path_factory) -> Path:
    return widen_into(small_shape(request.param), tmp_path_factory.mktemp(request.param) / "wide")


def load(folder: Path, dtype: str = "float32"):
    return AutoModelForCausalLM.from_pretrained(folder, torch_dtype=getattr(torch, dtype)).eval()


@pytest.fixture(scope="module")
def wide(widened):
    """In float32, not to be trained."""
    return load(widened)


@pytest.fixture(scope="module")
def minicoder():
    return load(SHIPPED)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(SHIPPED)


@pytest.fixture(scope="module")
def texts(tokenizer) -> list[list[int]]:
    """Token ids: conversations of all turns, and noise."""
    dialogues = sample_dialogues(random.Random(3), CLEAN, 2)
    noise = random.Random(0).choices(range(len(tokenizer)), k=200)
    return [*(tokenizer(sample.prompt + sample.response).input_ids for sample in dialogues), noise]


def logits(model, ids: list[int]):
    """(tokens, vocabulary), float32."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def test_logits_are_minicoders_and_padded_ids_cannot_be_sampled(wide, minicoder, tokenizer, texts):
    assert wide.config.vocab_size > len(tokenizer)
    for ids in texts:
        expected, found = logits(minicoder, ids), logits(wide, ids)
        assert (found[:, : expected.shape[1]] - expected).abs().max() < 1e-4
        assert found.softmax(-1)[:, len(tokenizer) :].sum(-1).max() < 1e-6


def train(model, ids: list[int], steps: int, learning_rate: float) -> None:
    """Steps towards the text of ``ids``."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    batch = torch.tensor([ids])
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def test_padded_ids_stay_unreachable_in_training(widened, tokenizer, texts):
    model = load(widened)
    train(model, texts[-1], steps=5, learning_rate=2e-4)  # noise: gradients far above those of a policy
    for ids in texts[-3:]:
        assert logits(model, ids).softmax(-1)[:, len(tokenizer) :].sum(-1).max() < 1e-6


def without_gradient(model, ids: list[int]) -> set[str]:
    """Weights of which a step moves nothing."""
    model.zero_grad()
    batch = torch.tensor([ids])
    model(batch, labels=batch).loss.backward()
    return {name for name, weight in model.named_parameters() if not weight.grad.any()}


def test_every_weight_learns_at_once_or_in_the_second_step(widened, texts):
    model = load(widened)
    before = logits(model, texts[0])
    at_first = without_gradient(model, texts[0])
    assert at_first and not any("o_proj" in name or "down_proj" in name for name in at_first)
    for layer in model.model.layers[:-2]:  # the last of MiniCoder's six is the last but one of eight
        down, attended = layer.mlp.down_proj.weight.grad, layer.self_attn.o_proj.weight.grad
        assert down[0].all() and attended[0].all()  # what any unit and head writes to the first channel
        assert down[-1].any() and attended[-1].any()  # what they write to the last one, which is free
    train(model, texts[0], steps=1, learning_rate=1e-4)
    assert (logits(model, texts[0]) - before).abs().max() > 0.01
    assert not without_gradient(model, texts[0])


def test_the_largest_shape_has_the_published_number_of_parameters():
    narrow = json.loads((SHIPPED / "config.json").read_text())
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**wide_settings(narrow, SHAPES["qwen3-8b"], norm_eps=1e-6)))
    assert model.num_parameters() == 8_190_735_360


@pytest.mark.parametrize("size", [{"hidden_size": 512}, {"num_hidden_layers": 5}, {"head_dim": 96}])
def test_a_shape_without_room_is_refused_and_nothing_is_written(size, tmp_path):
    with pytest.raises(InputError, match=next(iter(size))):
        widen_into(Shape(**{**vars(small_shape("tied")), **size}), tmp_path / "wide")
    assert not list(tmp_path.iterdir())
