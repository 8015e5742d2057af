"""What ``benchmarks/planning/zoo.py`` found is what plans promise; docs/planning.md explains every miss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "planning.md"
RESULTS = ROOT / "benchmarks" / "planning" / "zoo.json"


@pytest.fixture(scope="module")
def zoo() -> list[dict[str, Any]]:
    """What the benchmark found, a dictionary for each network."""
    results: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["results"]
    return results


def test_the_benchmark_holds_what_plans_promise(zoo: list[dict[str, Any]]) -> None:
    assert len(zoo) >= 30
    assert max(row["worst_ratio"] for row in zoo) <= 1.02
    misses = [row["topology"] for row in zoo if row["fraction_of_bound_1GiB"] < 1 / 1.1]
    assert len(misses) <= len(zoo) / 6
    explained = PAGE.read_text("utf-8").partition("### Networks more than 10 % from the bound")[2]
    assert [name for name in misses if f"`{name}`" not in explained] == []
