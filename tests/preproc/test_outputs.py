"""Dataset cards and uploads."""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import pytest
from huggingface_hub import DatasetCard

from cobalt.errors import InputError, SetupError
from cobalt.preproc.outputs import card_path, publish, refuse_livecodebench
from cobalt.records import write_jsonl


def make(outputs: list[Path], inputs: list[Path], repo_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """Publish a set; the metadata of its card."""
    publish("Some problems", "some_command.py", outputs, inputs, repo_id, **fields)
    return DatasetCard.load(card_path(outputs[0])).data.to_dict()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "set.jsonl", [{"id": 1}])
    (tmp_path / "set.jsonl.manifest.json").write_text("{}")
    return tmp_path / "set.jsonl"


def test_the_card_names_source_licence_command_and_hash(output: Path) -> None:
    assert make([output], [], licence="mit", source="the source set")["license"] == "mit"
    for text in ("the source set", "`some_command.py`", hashlib.sha256(output.read_bytes()).hexdigest()):
        assert text in DatasetCard.load(card_path(output)).text


def test_a_derived_set_has_the_licence_of_its_input_if_that_is_known(output: Path) -> None:
    derived = output.with_name("derived.jsonl")
    derived.touch()
    assert make([derived], [output])["license"] == "unknown"
    make([output], [], licence="cc-by-4.0")
    assert make([derived], [output])["license"] == "cc-by-4.0"
    assert "`set.jsonl`" in DatasetCard.load(card_path(derived)).text


class FakeApi:
    uploads: ClassVar[list[str]] = []

    def create_repo(self, repo_id: str, **_: Any) -> None:
        if repo_id == "nobody/unreachable":
            raise OSError("no connection")

    def upload_file(self, path_in_repo: str, **_: Any) -> None:
        self.uploads.append(path_in_repo)


def test_an_upload_holds_data_manifest_and_card_and_a_failed_one_is_told(output: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    make([output], [], "me/set")
    assert FakeApi.uploads == ["set.jsonl", "set.jsonl.manifest.json", "README.md"]
    with pytest.raises(SetupError, match="nobody/unreachable: no connection"):
        make([output], [], "nobody/unreachable")


def test_livecodebench_records_are_refused_for_upload_only(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mixed.jsonl", [{"id": 1, "source": "taco"}, {"id": 2, "source": "livecodebench"}])
    refuse_livecodebench([tmp_path / "mixed.jsonl"], repo_id=None)
    with pytest.raises(InputError, match="must not be redistributed"):
        refuse_livecodebench([tmp_path / "mixed.jsonl"], repo_id="me/set")
