"""examples/notebooks: every cell runs, and what they print has the documents' numbers."""

import ast
import re

import nbformat
import numpy
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

# Of each document what it prints; 003 prints nothing that its text has, so what its cells would: its tensors of one word.
PRINTED = {
    "000_life_continued": [("x",), ("omega", 1), ("weights", 1), ("context", 1)],
    "001_journey": [("inputs",), ("W_query",), ("W_key",), ("W_value",), ("queries", 1), ("keys", 1), ("values", 1), ("attn_scores", 1, 1),
                    ("attn_scores",), ("attn_weights", 1), ("attn_weights",), ("context_vec", 1), ("context_vec",),
                    ("v2.W_query",), ("v2.W_key",), ("v2.W_value",), ("v2.context_vec",)],
    "002_life_and_cross": [("x",), ("omega", 1, 4), ("omega", 1), ("weights", 1), ("context", 1)],
    "003_my_name": [("x",), ("queries", 0), ("keys", 0), ("values", 0), ("weights", 0), ("context", 0), ("multi.output", 0)],
    "004_life_heads": [("x",), ("weights", 1), ("context", 1)],
}


@pytest.fixture
def folder(repository):
    return repository / "examples/notebooks"


@pytest.fixture
def jupyter(tmp_path, monkeypatch):
    """What Jupyter and IPython write goes into the test's folder, and nobody's settings or kernels come out of theirs."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def run(path, folder):
    """The notebook after all its cells, in a kernel of this Python; CellExecutionError where one of them failed."""
    notebook = nbformat.read(path, as_version=4)
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    # A kernel that hangs ends with the test, whose limit pytest has.
    NotebookClient(notebook, km=kernel, startup_timeout=1500, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def tensors(notebook):
    """What is printed as PyTorch prints a tensor."""
    text = "".join(output.text for output in outputs(notebook) if output.output_type == "stream" and output.name == "stdout")
    return [numpy.array(ast.literal_eval(found)) for found in re.findall(r"tensor\(([-+\d.e\[\],\s]+)\)", text)]


@pytest.mark.parametrize("name", PRINTED)
def test_a_notebook_prints_the_documents_numbers(folder, repository, jupyter, name):
    notebook = run(folder / f"{name}.ipynb", jupyter)
    printed = tensors(notebook)
    with numpy.load(repository / f"tests/golden/document_{name[:3]}.npz") as golden:
        for tensor, *place in PRINTED[name]:
            expected = golden[tensor][tuple(place)]
            # Four digits, and PyTorch's own rounding before they were cut (numerics.md).
            near = 0.51e-4 + 2e-6 * abs(expected).max()
            same = [each for each in printed if each.shape == expected.shape and (abs(each - expected) <= near).all()]
            # PyTorch's and attend's, where both are printed.
            assert len(same) >= (2 if expected.size <= 36 else 1), (tensor, place)
    kinds = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    assert kinds.count("image/svg+xml") >= 2 and kinds.count("text/html") == 1, kinds


def test_a_cell_that_fails_is_seen(folder, jupyter):
    """The cells hold attend's numbers to PyTorch's and to the document's: other ones end the run."""
    text = (folder / "001_journey.ipynb").read_text()
    assert text.count("0.2264") > 1
    (jupyter / "other.ipynb").write_text(text.replace("0.2264", "0.2265"))
    with pytest.raises(CellExecutionError, match=r"(?s)weights\(journey\).*Tensor-likes are not close"):
        run(jupyter / "other.ipynb", jupyter)


def test_they_are_all_here_without_what_they_print(folder):
    assert {path.stem for path in folder.glob("*.ipynb")} == set(PRINTED)
    for path in folder.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert 8 <= len(notebook.cells) <= 14 and notebook.metadata.kernelspec.name == "python3"
        for cell in notebook.cells:
            for target in re.findall(r"\]\(([^)#]+)", cell.source if cell.cell_type == "markdown" else ""):
                assert target.startswith("http") or (folder / target).exists(), target
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None), path
