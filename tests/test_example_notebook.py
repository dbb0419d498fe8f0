"""The example notebook runs from a clean state, and holds no output."""

from pathlib import Path

import pytest

from late import Late

nbformat, nbclient = Late("nbformat"), Late("nbclient")
NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "example.ipynb"


def test_no_output_is_stored():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            assert (cell.execution_count, cell.outputs) == (None, [])


@pytest.mark.slow
def test_a_real_kernel_runs_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The cells assert what they say; what is shown is the widget and the fault."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert "same size, SmolLM2-135M, has a base of 100,000" in text
    assert "The position settings look correct." in text
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in kinds


@pytest.mark.slow
def test_a_cell_that_is_wrong_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the base in the config there is no finding to fix, and the notebook says so."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)
    book.cells[1].source = book.cells[1].source.replace('"torch_dtype"', '"rope_theta": 100000.0, "torch_dtype"')
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="differs-from-release"):
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
