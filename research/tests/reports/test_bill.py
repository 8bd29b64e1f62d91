"""The bill of a training, and the budget that ends one, on hand-made metrics."""

import json
from pathlib import Path

import pytest

from cobalt.errors import InputError
from cobalt.records import write_jsonl
from research.reports.bill import CostConfig, bill_table, main, read_bill

GPUS, BATCH = 2, 4


def step(number: int, **changes: float) -> dict:
    seconds = {"step": 20, "save_checkpoint": 1, "gen": 6, "judging": 2, "old_log_prob": 1, "ref": 1}
    counts = {"responses": 30, "prompt_tokens": 300, "response_tokens": 100}
    return {
        "step": number,
        **{f"timing_s/{name}": value for name, value in {**seconds, "update_actor": 5, "testing": 3}.items()},
        **{f"cost/{name}": value for name, value in counts.items()},
        **changes,
    }


def write_training(folder: Path, steps: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "metrics.jsonl", steps)
    config = {"data": {"train_batch_size": BATCH}, "trainer": {"n_gpus_per_node": GPUS, "nnodes": 1}}
    (folder / "training.manifest.json").write_text(json.dumps({"config": config}))
    return folder


def write_collection(path: Path, wall_time_s: float, status: str = "done", **counts: float) -> Path:
    manifest = {"status": status, "wall_time_s": wall_time_s, "counts": counts}
    path.with_name(f"{path.name}.manifest.json").write_text(json.dumps(manifest))
    return path


def cost(tmp_path: Path, **flags) -> dict:
    main(CostConfig(training=tmp_path / "training", output=tmp_path / "cost.json", **flags))
    return json.loads((tmp_path / "cost.json").read_text())


def test_phases_add_up_to_the_gpu_seconds_of_the_steps(tmp_path: Path) -> None:
    write_training(tmp_path / "training", [step(1), step(2)])
    record = cost(tmp_path)
    assert record["gpu_seconds"] == {
        "generation": 2 * 6 * GPUS,
        "execution wait": 2 * 2 * GPUS,
        "log-probabilities": 4,
        "reference": 4,
        "update": 20,
        "other": 2 * 4 * GPUS,
    }
    assert record["in_all"]["GPU-s"] == sum(record["gpu_seconds"].values()) == 2 * 19 * GPUS
    assert record["examples"] == 2 * BATCH

    resumed = [{**step(1), "cost/gpus": 3 * GPUS}, {**step(2), "cost/gpus": GPUS}]
    write_training(tmp_path / "resumed" / "training", resumed)  # with a third of the GPUs
    record = cost(tmp_path / "resumed")
    assert record["gpu_seconds"]["generation"] == (3 + 1) * 6 * GPUS
    assert record["in_all"]["GPU-s"] == (3 + 1) * 19 * GPUS
    assert record["per_example"]["response tokens"] == 200 / 8


def test_collecting_the_data_is_paid_once(tmp_path: Path) -> None:
    write_training(tmp_path / "training", [step(1)])
    sampled = write_collection(tmp_path / "a.jsonl", 10, requests=5, prompt_tokens=50, completion_tokens=20)
    judged = write_collection(tmp_path / "b.jsonl", 2.5, tests_run=1)
    record = cost(tmp_path, collection=(sampled, judged), collection_gpus=4)
    assert record["gpu_seconds"]["collection"] == 50
    assert record["in_all"]["GPU-s"] == 19 * GPUS + 50
    assert record["per_example"]["GPU-s"] == (19 * GPUS + 50) / BATCH
    assert record["in_all"]["responses"] == 35


def test_what_made_the_start_belongs_to_the_bill(tmp_path: Path) -> None:
    collected = write_collection(tmp_path / "a.jsonl", 100, requests=5)
    write_training(tmp_path / "training", [step(1)])
    first = cost(tmp_path, collection=(collected,))
    (tmp_path / "first.json").write_text(json.dumps(first))
    both = cost(tmp_path, collection=(collected,), earlier=tmp_path / "first.json")
    trained = first["in_all"]["GPU-s"] - 100  # what both learn from was collected once
    assert both["gpu_seconds"] == {**first["gpu_seconds"], "earlier training": trained}
    collection = {"GPU-s": 100, "responses": 5}
    assert both["in_all"] == {name: 2 * value - collection.get(name, 0) for name, value in first["in_all"].items()}
    assert both["examples"] == 2 * BATCH
    assert read_bill(tmp_path / "cost.json").gpu_seconds_before == trained + 100
    other = write_collection(tmp_path / "b.jsonl", 100, requests=5)
    both = cost(tmp_path, collection=(other,), earlier=tmp_path / "first.json")
    assert both["in_all"] == {name: 2 * value for name, value in first["in_all"].items()}


def test_the_price_is_told_with_collection_and_without(tmp_path: Path) -> None:
    write_training(tmp_path / "training", [step(1)])
    cost(tmp_path)
    online = read_bill(tmp_path / "cost.json")
    cost(tmp_path, collection=(write_collection(tmp_path / "a.jsonl", 19 * GPUS),))
    ours = read_bill(tmp_path / "cost.json")
    rows = {str(row[0]): row[1:] for row in bill_table({"ours": [ours], "online": [online]}, "ours").rows}
    training = 19 * GPUS / BATCH
    assert rows["GPU-s per example"] == [2 * training, training]
    assert rows["GPU-s per example: ours / this run"] == [1, 2]
    assert rows["GPU-s per example, without collection"] == [training, training]


def test_a_collection_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    write_training(tmp_path / "training", [step(1)])
    with pytest.raises(InputError, match=r"a\.jsonl\.manifest\.json: this command did not end"):
        cost(tmp_path, collection=(write_collection(tmp_path / "a.jsonl", 10, status="running"),))


def test_a_record_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    write_training(tmp_path / "training", [step(1)])
    record = cost(tmp_path, collection=(write_collection(tmp_path / "a.jsonl", 100),))
    record["collected"] = {name: one["GPU-s"] for name, one in record["collected"].items()}
    (tmp_path / "cost.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"cost.json: no record of this version's"):
        read_bill(tmp_path / "cost.json")
