"""Widened networks compute MiniCoder's function, cannot give padded ids, and learn."""

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from cobalt.errors import InputError
from cobalt.training.cost_model import SHAPES, Shape
from research.benchmarks import widen
from research.benchmarks.widen import WidenConfig, heads_in_wide, main, wide_settings
from research.minicode.corpus import sample_dialogues
from research.minicode.demonstrator import CLEAN

SHIPPED = Path(__file__).parents[3] / "assets" / "minicoder"
SIZES = {
    "tied": {"hidden_size": 704, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True},
    "untied": {"hidden_size": 640, "num_attention_heads": 8, "num_key_value_heads": 2, "tie_word_embeddings": False},
}
PUBLISHED_PARAMETERS = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
}


def small_shape(name: str) -> Shape:
    return Shape(
        intermediate_size=640,
        num_hidden_layers=8,
        head_dim=128,
        vocab_size=1280,
        max_position_embeddings=4096,
        **SIZES[name],
    )


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
def dialogues():
    return list(sample_dialogues(random.Random(3), CLEAN, 2))


@pytest.fixture(scope="module")
def texts(tokenizer, dialogues) -> list[list[int]]:
    """Token ids: conversations of all turns, and noise."""
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


def test_rounding_in_bf16_is_no_worse_than_minicoders(widened, minicoder, texts):
    def deviation(folder: Path) -> float:
        model = load(folder, "bfloat16")
        pairs = [(logits(model, ids), logits(minicoder, ids)) for ids in texts]
        return torch.cat([found[:, : exact.shape[1]] - exact for found, exact in pairs]).std().item()

    assert deviation(widened) < 1.3 * deviation(SHIPPED)


def test_greedy_generations_are_minicoders(wide, minicoder, tokenizer, dialogues):
    for sample in dialogues[::4]:
        prompt = torch.tensor([tokenizer(sample.prompt).input_ids])
        answers = [model.generate(prompt, do_sample=False, max_new_tokens=160) for model in (minicoder, wide)]
        assert torch.equal(*answers)
        assert answers[0][0, -1] == tokenizer.eos_token_id


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


def test_the_checkpoint_is_whole(widened, tokenizer):
    wide, report = AutoModelForCausalLM.from_pretrained(widened, torch_dtype="auto", output_loading_info=True)
    assert not any(report.values())
    assert str(wide.dtype) == "torch.bfloat16"
    index = json.loads((widened / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * sum(weight.numel() for weight in wide.parameters())
    own = AutoTokenizer.from_pretrained(widened)
    assert own.get_vocab() == tokenizer.get_vocab() and own.chat_template == tokenizer.chat_template
    assert wide.generation_config.eos_token_id == tokenizer.eos_token_id
    assert "no better than MiniCoder" in (widened / "README.md").read_text()
    manifest = json.loads(widened.with_name("wide.manifest.json").read_text())
    assert manifest["status"] == "done" and manifest["counts"]["parameters"] == wide.num_parameters()


def test_a_seed_decides_the_added_weights(tmp_path):
    def added(name: str, seed: int):
        output = widen_into(small_shape("untied"), tmp_path / name, seed=seed)
        return load_file(output / "model-00003-of-00010.safetensors")["model.layers.1.mlp.up_proj.weight"]

    first, again, other = added("first", 0), added("again", 0), added("other", 1)
    assert first.equal(again) and not first.equal(other)


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_shapes_have_the_published_number_of_parameters(name):
    narrow = json.loads((SHIPPED / "config.json").read_text())
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**wide_settings(narrow, SHAPES[name], norm_eps=1e-6)))
    assert model.num_parameters() == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_read_a_copy_of_their_own_keys(groups):
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    narrow = Shape(**{**vars(small_shape("tied")), **heads})
    wide = Shape(**{**vars(narrow), "num_attention_heads": 8 * groups, "num_key_value_heads": 8})
    query_heads, key_value_heads = heads_in_wide(narrow, wide)
    assert len(set(query_heads)) == 6 and max(query_heads) < wide.num_attention_heads
    assert key_value_heads == [head // groups for head in query_heads]
    assert not set(key_value_heads[:3]) & set(key_value_heads[3:])  # the narrow network's two groups


def test_an_existing_output_and_a_folder_without_a_minicoder_are_refused(tmp_path):
    with pytest.raises(InputError, match="exists already") as error:
        main(WidenConfig(shape="qwen3-8b", output=tmp_path, model=SHIPPED))
    assert error.value.exit_code == 2
    with pytest.raises(InputError, match=r"config\.json"):
        main(WidenConfig(shape="qwen3-8b", output=tmp_path / "wide", model=tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="not a Qwen3"):
        main(WidenConfig(shape="qwen3-8b", output=tmp_path / "wide", model=tmp_path))


@pytest.mark.parametrize(
    "size",
    [
        {"hidden_size": 512},
        {"intermediate_size": 256},
        {"num_hidden_layers": 5},
        {"num_attention_heads": 2, "num_key_value_heads": 1},
        {"head_dim": 96},
        {"vocab_size": 1000},
    ],
)
def test_a_shape_without_room_is_refused_and_nothing_is_written(size, tmp_path):
    with pytest.raises(InputError, match="|".join(["num_key_value_heads", *size])):
        widen_into(Shape(**{**vars(small_shape("tied")), **size}), tmp_path / "wide")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_smallest_published_shape_has_minicoders_logits(minicoder, texts, tmp_path):
    main(WidenConfig(shape="qwen3-0.6b", output=tmp_path / "wide", model=SHIPPED))
    wide = load(tmp_path / "wide")
    for ids in texts[::4]:
        expected = logits(minicoder, ids)
        found = logits(wide, ids)
        assert (found[:, : expected.shape[1]] - expected).abs().max() < 1e-4
        assert found[:, expected.shape[1] :].max() < -1000
