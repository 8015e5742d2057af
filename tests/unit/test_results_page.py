"""The page of results: rows from one run each, and a refusal of others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import results_page
from results_page import DifferentRunsError, Figure, Row


def document(results: list[dict[str, Any]]) -> str:
    """The text of a result file."""
    return json.dumps({"provenance": {"date": "2026-11-19"}, "parameters": {}, "results": results})


def test_a_row_whose_peer_is_from_another_run_is_refused_with_both_runs_named() -> None:
    with pytest.raises(DifferentRunsError, match="gloo is from the run Tuesday, Weft from Monday"):
        Row("work", Figure(1, "Monday"), {"gloo": Figure(2, "Tuesday")}, Figure(0.5, "Monday"), "memory")


def test_a_row_whose_limit_is_from_another_run_is_refused() -> None:
    with pytest.raises(DifferentRunsError, match="the limit is from the run Tuesday"):
        Row("work", Figure(1, "Monday"), {"gloo": Figure(2, "Monday")}, Figure(0.5, "Tuesday"), "memory")


def test_rows_have_ratios_caps_and_the_share_of_the_limit(tmp_path: Path) -> None:
    own = {"median_s": 0.01, "p10_s": 0.01, "p90_s": 0.01}
    theirs = {"median_s": 0.025, "p10_s": 0.02, "p90_s": 0.03}
    row = {
        "dtype": "float32",
        "ranks": 4,
        "size_bytes": 16 << 20,
        "limit": {"memory_s": 0.004, "wire_s": 0.008},
        "contestants": {"weft": own, "weft tcp": own, "gloo": theirs},
        "capped": {"mpich": {"cap_s": 0.5}},
    }
    small = {**row, "size_bytes": 4, "limit": {}}
    (tmp_path / "ranks-4.json").write_text(document([small, row]), "utf-8")
    private, tcp = results_page.table(tmp_path, tmp_path, tmp_path).splitlines()[2:]
    assert private.startswith("| all-reduce of 16 MiB float32, 4 ranks, private memory | 10 ms |")
    assert private.endswith("| 10 ms | gloo 25 ms (2.50x); mpich capped | 4 ms, memory | 40 % |")
    assert tcp.endswith("4 ranks, over TCP | 10 ms | gloo 25 ms (2.50x) | 8 ms, sockets | 80 % |")


def test_training_without_computing_alone_has_no_limit_and_no_row(tmp_path: Path) -> None:
    rows = [{"way": "dear", "iteration_s": [1.0]}, {"way": "auto", "iteration_s": [1.0]}]
    found = json.loads(document(rows))
    found["parameters"]["size_bytes"] = 8_404_992
    (tmp_path / "training-hosts.json").write_text(json.dumps(found), "utf-8")
    assert results_page.table(tmp_path, tmp_path, tmp_path).count("\n") == 2
    found["results"] += [{"way": "ddp 1", "iteration_s": [1.5]}, {"way": "alone", "iteration_s": [0.78]}]
    (tmp_path / "training-hosts.json").write_text(json.dumps(found), "utf-8")
    (line,) = results_page.table(tmp_path, tmp_path, tmp_path).splitlines()[2:]
    assert "| 1 s | DDP on gloo, 1 MB 1.5 s (1.50x) |" in line
