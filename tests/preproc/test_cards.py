"""Dataset cards and uploads."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from huggingface_hub import DatasetCard

from cobalt.errors import InputError, SetupError
from cobalt.preproc.cards import CardInfo, card_path, publish, refuse_livecodebench
from cobalt.records import write_jsonl


def info(**fields: Any) -> CardInfo:
    return CardInfo("Some problems", ["at least 8 tests", "no images"], {"read": 10, "written": 7}, **fields)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "set.jsonl", [{"id": 1}])
    (tmp_path / "set.jsonl.manifest.json").write_text("{}")
    return tmp_path / "set.jsonl"


def test_the_card_names_source_licence_rules_and_counts(output: Path) -> None:
    publish(info(license="mit", source="the source set"), [output], [], repo_id=None)
    card = DatasetCard.load(card_path(output))
    assert card.data.to_dict()["license"] == "mit"
    for text in ("the source set", "at least 8 tests", "no images", '"written": 7'):
        assert text in card.text


def test_a_derived_set_has_the_licence_of_its_input(output: Path) -> None:
    publish(info(license="cc-by-4.0"), [output], [], repo_id=None)
    derived = output.with_name("derived.jsonl")
    publish(info(), [derived], [output], repo_id=None)
    card = DatasetCard.load(card_path(derived))
    assert card.data.to_dict()["license"] == "cc-by-4.0" and "`set.jsonl`" in card.text


def test_without_a_known_licence_the_card_says_so(output: Path) -> None:
    publish(info(), [output], [], repo_id=None)
    assert DatasetCard.load(card_path(output)).data.to_dict()["license"] == "unknown"


class FakeApi:
    uploads: ClassVar[list[str]] = []

    def create_repo(self, repo_id: str, **_: Any) -> None:
        if repo_id == "nobody/unreachable":
            raise OSError("no connection")

    def upload_file(self, path_in_repo: str, **_: Any) -> None:
        self.uploads.append(path_in_repo)


def test_an_upload_holds_data_manifest_and_card(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    monkeypatch.setattr(FakeApi, "uploads", [])
    publish(info(), [output], [], repo_id="me/set")
    assert FakeApi.uploads == ["set.jsonl", "set.jsonl.manifest.json", "README.md"]


def test_a_failed_upload_is_an_error_of_the_surroundings(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    with pytest.raises(SetupError, match="nobody/unreachable: no connection"):
        publish(info(), [output], [], repo_id="nobody/unreachable")


def test_livecodebench_records_are_refused_for_upload_only(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mixed.jsonl", [{"id": 1, "source": "taco"}, {"id": 2, "source": "livecodebench"}])
    refuse_livecodebench([tmp_path / "mixed.jsonl"], repo_id=None)
    with pytest.raises(InputError, match="must not be redistributed"):
        refuse_livecodebench([tmp_path / "mixed.jsonl"], repo_id="me/set")
