"""Results of nccl-tests that others published: one row per size, with the arithmetic of each row checked.

The tables are in published_tables.toml, as their sources printed them. nccl-tests prints size over time as
algbw, and algbw times 2(n - 1)/n as busbw of an all-reduce among n ranks. A slip in copying, or a wrong
number of ranks, breaks one of the two, and this script then names the row. Nothing is measured or simulated.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

HERE = Path(__file__).parent
FIELDS = (
    "source",
    "found_later",
    "gpu",
    "nodes",
    "gpus_per_node",
    "nics_per_node",
    "nic_gbit_per_s",
    "from_the_product",
    "assumed",
    "processor",
    "network",
    "nccl",
    "algorithm",
    "settings",
    "note",
)
ROUNDING = 0.005
"""nccl-tests prints bandwidths with two digits after the point."""


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """One result for each size of a table."""
    ranks = table["nodes"] * table["gpus_per_node"]
    known = {name: table.get(name) for name in FIELDS}
    found = []
    for line in table["rows"].split("\n"):
        if not line:
            continue
        size, time_us, algbw, busbw = (float(word) for word in line.split())
        check(f"{table['source']}, {size:,.0f} B", size, time_us, algbw, busbw, ranks)
        row = {"kind": "table", "collective": "all_reduce", **known}
        row |= {"size_bytes": int(size), "time_us": time_us, "algbw_gb_per_s": algbw, "busbw_gb_per_s": busbw}
        found.append(row)
    return found


def check(what: str, size: float, time_us: float, algbw: float, busbw: float, ranks: int) -> None:
    """Raise unless both bandwidths follow from size, time and ranks, as far as the printed digits tell."""
    factor = 2 * (ranks - 1) / ranks
    if abs(busbw - algbw * factor) > ROUNDING * (1 + factor) + 1e-9:
        msg = f"{what}: busbw {busbw} is not {factor:.4f} times algbw {algbw}"
        raise ValueError(msg)
    # Times have four or five digits, so a bandwidth reckoned from one is off by up to 0.05 %.
    if abs(algbw - size / time_us / 1000) > ROUNDING + 0.0005 * algbw + 1e-9:
        msg = f"{what}: algbw {algbw} is not size over time, {size / time_us / 1000:.3f}"
        raise ValueError(msg)


def main() -> None:
    """Write published_results.json."""
    started = result_files.start()
    published = tomllib.loads((HERE / "published_tables.toml").read_text("utf-8"))
    rows = [row for table in published["table"] for row in rows_of(table)]
    peaks = [
        {"kind": "peak", "collective": "all_reduce", **dict.fromkeys(FIELDS), **peak}
        for peak in published["peak"]
    ]
    result_files.write(
        HERE / "published_results.json",
        started,
        parameters={"tables": "published_tables.toml", "columns": "out of place"},
        summary={"tables": len(published["table"]), "rows": len(rows), "peaks": len(peaks)},
        results=rows + peaks,
    )


if __name__ == "__main__":
    main()
