"""docs/planning.md shows what ``benchmarks/planning/zoo.py`` found, and it is what plans promise.

``WEFT_UPDATE_GOLDEN=1`` writes the page's table anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "planning.md"
RESULTS = ROOT / "benchmarks" / "planning" / "zoo.json"
START, END = "<!-- zoo -->\n", "<!-- end of zoo -->\n"


@pytest.fixture(scope="module")
def zoo() -> list[dict[str, Any]]:
    """What the benchmark found, a dictionary for each network."""
    results: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["results"]
    return results


def table(zoo: list[dict[str, Any]]) -> str:
    lines = ["| network | ranks | at 1 GiB | % of bound | worst between sizes |", "|---|---|---|---|---|"]
    for row in zoo:
        good, worst = 100 * row["fraction_of_bound_1GiB"], row["worst_ratio"]
        name, label = row["topology"], row["algorithm_1GiB"]
        lines.append(f"| `{name}` | {row['ranks']} | {label} | {good:.1f} | {worst:.3f} |")
    near = sum(row["fraction_of_bound_1GiB"] >= 1 / 1.1 for row in zoo)
    lines.append(f"\nWithin 10 % of the bound at 1 GiB: {near} of {len(zoo)}.")
    return "\n".join(lines) + "\n"


def test_the_table_of_the_page_is_that_of_the_benchmark(zoo: list[dict[str, Any]]) -> None:
    head, _, rest = PAGE.read_text("utf-8").partition(START)
    shown, _, tail = rest.partition(END)
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        PAGE.write_text(f"{head}{START}{table(zoo)}{END}{tail}", "utf-8")
    else:
        assert shown == table(zoo)


def test_the_benchmark_holds_what_plans_promise(zoo: list[dict[str, Any]]) -> None:
    assert len(zoo) >= 30
    assert max(row["worst_ratio"] for row in zoo) <= 1.02
    misses = [row["topology"] for row in zoo if row["fraction_of_bound_1GiB"] < 1 / 1.1]
    assert len(misses) <= len(zoo) / 6
    explained = PAGE.read_text("utf-8").partition("### Misses")[2]
    assert [name for name in misses if f"`{name}`" not in explained] == []
