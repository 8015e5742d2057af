"""Run the notebooks of examples/notebooks in Jupyter, and store their outputs.

    .venv/bin/python tools/run_notebooks.py            # write the outputs into the notebooks
    .venv/bin/python tools/run_notebooks.py --check    # fail if an output is not what is stored

Cells with the tag "varies" show something that depends on time, such as what a plan found within its limit:
they have to run, and their outputs are not compared.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
TIMEOUT_S = 600


def run(path: Path) -> tuple[Any, Any]:
    """The notebook as it is stored, and as it is after a run in a kernel of its own."""
    stored = nbformat.read(path, as_version=4)
    fresh = copy.deepcopy(stored)
    settings = {"timeout": TIMEOUT_S, "startup_timeout": TIMEOUT_S, "record_timing": False}
    client = NotebookClient(fresh, kernel_name="python3", **settings)
    client.execute(cwd=str(path.parent))
    return stored, fresh


def outputs(cell: Any) -> list[str]:
    """What a cell shows, as text that is the same on every run."""
    shown = []
    for output in cell.get("outputs", []):
        data = output.get("data", {"text/plain": output.get("text", "")})
        # pandas writes a random identifier into its style sheets.
        shown += [f"{kind}: {re.sub(r'T_[0-9a-f]+', '', str(text))}" for kind, text in sorted(data.items())]
    return shown


def differences(stored: Any, fresh: Any) -> list[int]:
    """Numbers of the cells whose outputs are not those that are stored."""
    pairs = enumerate(zip(stored.cells, fresh.cells, strict=True))
    return [
        number
        for number, (old, new) in pairs
        if outputs(old) != outputs(new) and "varies" not in new.metadata.get("tags", [])
    ]


def main() -> None:
    """Run all notebooks, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all by default")
    given = parser.parse_args()
    wrong = []
    for path in given.notebooks or sorted(FOLDER.glob("*.ipynb")):
        stored, fresh = run(path)
        changed = differences(stored, fresh)
        print(f"{path.name}: {len(fresh.cells)} cells, changed: {changed or 'none'}", flush=True)
        wrong += [f"{path.name} cell {number}" for number in changed]
        if not given.check:
            fresh.metadata = stored.metadata  # the versions of this machine's Python say nothing about Weft
            path.write_text(nbformat.writes(fresh, indent=1) + "\n", "utf-8")
    if given.check and wrong:
        sys.exit(f"other outputs than stored: {', '.join(wrong)}; make notebooks stores them anew")


if __name__ == "__main__":
    main()
