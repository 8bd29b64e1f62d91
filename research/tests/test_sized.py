"""Models and prompts of chosen sizes: their lengths are those that were asked for."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cobalt.errors import InputError
from cobalt.training.cost_model import Shape
from research.benchmarks import sized
from research.benchmarks.sized import SPREAD, SizedConfig, main

TOKENIZER = Path(__file__).parents[2] / "assets" / "minicoder"
SHAPE = Shape(256, 512, 2, 4, 2, 64, 1280, tie_word_embeddings=False, max_position_embeddings=4096)
MEAN = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """By the command, from 40 rows whose prompts have 8 tokens or so."""
    folder = tmp_path_factory.mktemp("sized")
    messages = [[{"role": "user", "content": f"Add {i} to each number."}] for i in range(40)]
    rows = {"prompt": messages, "extra_info": [{"index": i} for i in range(40)]}
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sized.SHAPES, "qwen3-8b", SHAPE)
        flags = {"tokenizer": str(TOKENIZER), "contexts": folder / "rows.parquet", "output": folder / "made"}
        main(SizedConfig(**flags, response=MEAN, prompt=300))
    return folder / "made"


def test_every_token_is_the_last_with_the_same_chance(made):
    model = AutoModelForCausalLM.from_pretrained(made / "model", dtype=torch.float32)
    end = AutoTokenizer.from_pretrained(made / "model").eos_token_id
    ids = torch.randint(SHAPE.vocab_size, (4, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        chances = model(ids).logits.softmax(-1)[..., end]
    assert chances.mean().item() == pytest.approx(1 / MEAN, rel=0.1)
    assert chances.std() < 0.2 / MEAN


def test_what_is_computed_changes_no_logit_but_is_there(made):
    model = AutoModelForCausalLM.from_pretrained(made / "model")
    layer = model.model.layers[0]
    assert not layer.self_attn.o_proj.weight.any()
    assert not layer.mlp.down_proj.weight.any()
    assert layer.self_attn.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert (len(model.model.layers), model.config.hidden_size) == (2, 256)


def test_prompts_have_the_lengths_that_were_asked_for_and_keep_their_rows(made):
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    rows = pq.read_table(made / "train.parquet").to_pylist()
    lengths = [len(tokenizer.encode(row["prompt"][-1]["content"])) for row in rows]
    assert sum(lengths) / len(lengths) == pytest.approx(300, rel=0.15)
    assert min(lengths) > 0.9 * 300 * (1 - SPREAD)
    assert max(lengths) < 1.1 * 300 * (1 + SPREAD)
    assert [row["extra_info"]["index"] for row in rows] == list(range(40))
    assert all(row["prompt"][-1]["content"].endswith(f"Add {i} to each number.") for i, row in enumerate(rows))


def test_the_manifest_counts_both(made):
    manifest = json.loads(Path(f"{made}.manifest.json").read_text())
    assert (manifest["status"], manifest["counts"]["prompts"]) == ("done", 40)
    assert manifest["counts"]["parameters"] > 2 * SHAPE.vocab_size * SHAPE.hidden_size


def test_wrong_inputs_are_told(made, tmp_path):
    flags = {"tokenizer": str(TOKENIZER), "contexts": made / "train.parquet", "output": tmp_path / "more"}
    for columns, told in (
        ({"a": [1]}, "no column 'prompt'"),
        ({"prompt": ["Add 1."]}, "no column 'prompt' of messages"),
        ({"prompt": [[{"role": "user", "content": ""}]]}, "no prompts"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=told):
            main(SizedConfig(**{**flags, "contexts": tmp_path / "a.parquet"}))
    with pytest.raises(InputError, match="not a parquet file, or damaged"):
        main(SizedConfig(**{**flags, "contexts": TOKENIZER / "config.json"}))
    with pytest.raises(InputError, match="exists already"):
        main(SizedConfig(**{**flags, "output": made}))
    assert not (tmp_path / "more").exists()
