"""``examples/tutorial.ipynb``: it is small, its outputs are those of a run, and it runs."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "tutorial.ipynb"
MOST_CELLS, MOST_BYTES = 20, 60_000


def test_the_notebook_is_small_and_holds_the_outputs_of_one_run() -> None:
    text = NOTEBOOK.read_text()
    cells = json.loads(text)["cells"]
    assert len(cells) <= MOST_CELLS and len(text) < MOST_BYTES
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|work|Users)/", json.dumps(outputs))


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("RUN", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert (tmp_path / "model" / "config.json").exists()
