"""The notebooks of examples/notebooks: their code runs, and they are stored with outputs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 200_000


def cells(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def as_program(path: Path) -> str:
    """The code of a notebook, in order; the last expression of a cell is shown as Jupyter shows it."""
    parts = ["def show(value):\n    for name in ('_repr_html_', '_repr_svg_', '__repr__'):\n"]
    parts.append("        if hasattr(value, name):\n            return getattr(value, name)()\n\n")
    for cell in cells(path):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            call = ast.Call(ast.Name("show", ast.Load()), [last.value], [])
            tree.body[-1] = ast.Assert(ast.Compare(call, [ast.IsNot()], [ast.Constant(None)]))
        parts.append(ast.unparse(ast.fix_missing_locations(tree)) + "\n\n")
    return "".join(parts)


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own_cluster", "paper_multitree", "training"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_runs_from_first_to_last(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(as_program(path), "utf-8")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_its_outputs_and_is_small(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text) < MOST_BYTES
    assert str(ROOT) not in text
    assert "/home/" not in text
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    for cell in found:
        ends_in_expression = isinstance(ast.parse("".join(cell["source"])).body[-1], ast.Expr)
        assert bool(cell["outputs"]) or not ends_in_expression
        assert all(output["output_type"] != "error" for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_gives_the_outputs_that_are_stored(path: Path) -> None:
    tool = [sys.executable, ROOT / "tools" / "run_notebooks.py", "--check", path]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
