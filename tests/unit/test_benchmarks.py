"""benchmarks/README.md lists every script and every result, and every result file has the one layout."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
README = FOLDER / "README.md"
RESULTS = sorted(FOLDER.rglob("*.json"))
LINK = re.compile(r"\]\(([^)]+)\)")
PROVENANCE = {
    "commit": str,
    "uncommitted_changes": bool,
    "date": str,
    "duration_s": (int, float),
    "processor": str,
    "cores": int,
    "kernel": str,
    "load_before": list,
    "load_after": list,
    "versions": dict,
    "note": str,
}


def rows() -> list[list[str]]:
    """Cells of the table, without its head."""
    lines = [line for line in README.read_text("utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def linked(text: str) -> set[Path]:
    """What a text links to, a folder by what is in it."""
    found = set()
    for target in LINK.findall(text):
        path = (FOLDER / target).resolve()
        assert path.exists(), f"benchmarks/README.md: {target} does not exist"
        found |= set(path.rglob("*.json")) if path.is_dir() else {path}
    return found


def test_every_row_has_a_claim_a_script_results_and_minutes() -> None:
    table = rows()
    assert len(table) > 30
    for cells in table:
        claim, script, results, minutes, _needs = cells
        assert claim
        assert [path.suffix for path in linked(script)] == [".py"], script
        assert results == "none kept" or {path.suffix for path in linked(results)} == {".json"}, results
        assert int(minutes) > 0


def test_every_script_is_listed() -> None:
    listed = linked(README.read_text("utf-8"))
    assert [path.name for path in FOLDER.rglob("*.py") if path not in listed] == []


def test_every_result_file_is_listed_once() -> None:
    listed = [path for cells in rows() for path in linked(cells[2])]
    assert sorted(listed) == RESULTS


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_result_file_says_where_it_comes_from(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert set(document) - {"summary"} == {"provenance", "parameters", "results"}
    provenance = document["provenance"]
    assert list(provenance) == list(PROVENANCE)
    for name, kind in PROVENANCE.items():
        value = provenance[name]
        assert value is None or isinstance(value, kind), (name, value)
        # Only what was measured before there was this layout may lack something, and a note says why.
        assert value is not None or provenance["note"] or name == "note", name
    assert re.fullmatch("[0-9a-f]{40}", provenance["commit"])
    assert datetime.fromisoformat(provenance["date"]).tzinfo is not None


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_results_are_objects_with_units_in_names(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert document["results"]
    for row in document["results"]:
        assert isinstance(row, dict)
        assert not set(row) & {"cpu", "wall", "took", "time", "before", "after", "bytes", "rate"}


def test_writing_and_reading_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    result_files = importlib.import_module("result_files")
    path = tmp_path / "deeper" / "one.json"
    rows = [{"size_bytes": 4, "median_s": 1 / 3}]
    result_files.write(path, result_files.start(), parameters={"rounds": 1}, results=rows)
    assert result_files.read(path)["results"] == [{"size_bytes": 4, "median_s": 0.333333}]
    if shutil.which("git") is None:  # a clone can be tried without it
        assert "git was not there" in result_files.read(path)["provenance"]["note"]
        return
    test_result_file_says_where_it_comes_from(path)
    assert result_files.read(path)["provenance"]["note"] is None
