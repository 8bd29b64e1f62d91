"""The parquet files, through veRL 0.5.0's own data set class."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import ROOT, manifest_of, one_complaint, read_rows, run_command, write_rows
from evaluated import json_tests
from tokenizers_for_tests import make_tokenizer

from cobalt.preproc import verl_parquet
from cobalt.prompts import first_messages


def bandit(index: int, **fields: object) -> dict:
    conversation = first_messages(f"Problem {index}")
    if index % 2:
        conversation += [{"role": "assistant", "content": "a"}, {"role": "user", "content": f"f{index}"}]
    row = {"example_id": index, "conversation": conversation, "test_cases": json_tests(8), "difficulty": "EASY"}
    return {**row, "prev_best_pass_rate": 0.5 if index % 2 else 0, **fields}


def problem(index: int) -> dict:
    return {"id": index, "instruction": f"Problem {index}", "test_cases": json_tests(8), "question": "q"}


def build(kind: str, directory: Path, train: list[dict], val: list[dict]) -> int:
    directory.mkdir(exist_ok=True)
    files = {name: write_rows(directory / f"{name}.jsonl", rows) for name, rows in (("train", train), ("val", val))}
    flags = [text for name, path in files.items() for text in (f"--{name}_data_file", path)]
    return run_command(f"verl_preproc_{kind}_turn", "--local_dir", directory / "verl", *flags)


def test_half_a_surrogate_pair_is_refused_by_its_line(tmp_path: Path, capsys) -> None:
    half = bandit(1)
    half["conversation"][-1]["content"] = "\ud800"
    assert build("multi", tmp_path, [bandit(0), half], [bandit(0)]) == 2
    assert "train.jsonl: line 2: a text cannot be written as UTF-8" in one_complaint(capsys)


@pytest.mark.parametrize(("kind", "make"), [("single", problem), ("multi", bandit)])
def test_verl_loads_both_files(tmp_path: Path, kind: str, make, monkeypatch) -> None:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    assert build(kind, tmp_path, [make(i) for i in range(6)], [make(i) for i in range(3)]) == 0
    tokenizer = make_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    config = OmegaConf.create({"max_prompt_length": 512, "truncation": "error", "filter_overlong_prompts": True})
    config.cache_dir = str(tmp_path / "verl_cache")
    for split, size in (("train", 6), ("test", 3)):
        data = RLHFDataset(str(tmp_path / "verl" / f"{split}.parquet"), tokenizer, config)
        assert len(data) == size
        item = data[1]
        row = make(1)
        prompt = row["conversation"] if kind == "multi" else first_messages(row["instruction"])
        assert list(item["raw_prompt"]) == prompt
        assert item["id"] == item["extra_info"]["id"] == "1"
        assert item["data_source"] == "code_taco_verified" and item["ability"] == "code"
        assert item["reward_model"] == {"style": "rule", "ground_truth": row["test_cases"]}
        assert item["extra_info"].get("instruction") == row.get("instruction")
        assert item["extra_info"]["split"] == split and item["extra_info"]["index"] == 1
        assert item["extra_info"]["prev_best_pass_rate"] == (0.5 if kind == "multi" else 0)


def test_extra_info_carries_the_conversation_or_public_tests(tmp_path: Path) -> None:
    assert build("multi", tmp_path, [bandit(1), bandit(3, prev_best_pass_rate=None)], [bandit(1)]) == 0
    row, without_rate = pq.read_table(tmp_path / "verl" / "train.parquet").to_pylist()
    assert row["extra_info"]["conversation"] == row["prompt"] == bandit(1)["conversation"]
    assert without_rate["extra_info"]["prev_best_pass_rate"] == 0
    problems = [problem(1), {**problem(2), "public_test_cases": json_tests(4)}]
    assert build("single", tmp_path / "single", problems, problems) == 0
    rows = pq.read_table(tmp_path / "single" / "verl" / "train.parquet").to_pylist()
    tests = [row["extra_info"]["tools_kwargs"]["public_test_cases"] for row in rows]
    assert tests == [None, json_tests(4)]


def test_shipped_problems_keep_split_and_licence_through_both_commands(tmp_path: Path) -> None:
    shipped = read_rows(ROOT / "assets" / "minicode" / "problems.jsonl")
    rows = [*shipped[:3], *[row for row in shipped if row["split"] == "dev"][:2]]
    flags = ("-i", write_rows(tmp_path / "raw.jsonl", rows), "-o", tmp_path / "out.jsonl", "--executor", "local")
    assert run_command("preproc_taco", *flags, "--license", "apache-2.0") == 0
    train, dev = tmp_path / "out_train.jsonl", tmp_path / "out_dev.jsonl"
    assert [row["id"] for row in read_rows(train) + read_rows(dev)] == [row["id"] for row in rows]
    files = ("--train_data_file", train, "--val_data_file", dev)
    assert run_command("verl_preproc_single_turn", "--local_dir", tmp_path / "verl", *files) == 0
    assert [pq.read_metadata(tmp_path / "verl" / f"{name}.parquet").num_rows for name in ("train", "test")] == [3, 2]
    assert "license: apache-2.0" in (tmp_path / "verl" / "train.parquet.card.md").read_text()


def test_validation_prompts_are_unique_and_training_prompts_may_repeat(tmp_path: Path) -> None:
    rows = [bandit(0), bandit(1), bandit(0)]
    assert build("multi", tmp_path, rows, rows) == 0
    assert pq.read_metadata(tmp_path / "verl" / "train.parquet").num_rows == 3
    assert pq.read_metadata(tmp_path / "verl" / "test.parquet").num_rows == 2
    assert manifest_of(tmp_path / "verl" / "test.parquet")["counts"]["test prompts dropped: repeated"] == 1


def test_rows_are_written_in_groups_of_bounded_size_the_same_each_time(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(verl_parquet, "ROW_GROUP_BYTES", 2000)
    rows = [bandit(i) for i in range(40)]
    assert build("multi", tmp_path, rows, rows) == build("multi", tmp_path / "again", rows, rows) == 0
    one, other = (folder / "verl" / "train.parquet" for folder in (tmp_path, tmp_path / "again"))
    assert one.read_bytes() == other.read_bytes()
    file = pq.ParquetFile(tmp_path / "verl" / "train.parquet")
    assert file.num_row_groups > 3
    assert [row["extra_info"]["index"] for row in file.read().to_pylist()] == list(range(40))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (bandit(1, conversation=bandit(1)["conversation"][:3]), "'conversation' must end with a user message"),
        (bandit(1, conversation=[{"role": "user"}]), "'conversation'[0]['content']: Field required"),
        (bandit(1, conversation=[]), "'conversation': List should have at least 1 item"),
        (bandit(1, test_cases='{"inputs": [], "outputs": []}'), "'test_cases': there are no tests"),
        (bandit(1, test_cases='{"inputs": ["1"], "outputs": ["1"], "checker": "x"}'), "'test_cases': checker must be"),
        (bandit(1, test_cases={"inputs": ["1"], "outputs": ["1"]}), "'test_cases' must be a JSON text"),
        (bandit(1, prev_best_pass_rate=2), "'prev_best_pass_rate'"),
    ],
)
def test_a_bad_validation_file_leaves_both_old_files(tmp_path: Path, capsys, row: dict, complaint: str) -> None:
    assert build("multi", tmp_path, [bandit(0)], [bandit(0)]) == 0
    before = [(tmp_path / "verl" / f"{split}.parquet").read_bytes() for split in ("train", "test")]
    assert build("multi", tmp_path, [bandit(0), bandit(2)], [bandit(0), row]) == 2
    line = one_complaint(capsys)
    assert "val.jsonl: line 2" in line and complaint in line
    assert before == [(tmp_path / "verl" / f"{split}.parquet").read_bytes() for split in ("train", "test")]
    assert not list((tmp_path / "verl").glob("*.tmp"))


def test_a_missing_default_names_its_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command("verl_preproc_multi_turn") == 2
    assert one_complaint(capsys).endswith("data/bandit_train.jsonl: no such file (--train_data_file)")
