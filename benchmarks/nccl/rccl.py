"""What AMD published of RCCL on one box of 8 MI300X beside Weft's simulation of RCCL's rings.

The published table is that of rccl-tests in AMD's page on RCCL and xGMI (copied below, out of place). The
speed of a cable, 48 GB/s, is what protocol and error correction leave of 64 GB/s, by a maintainer of RCCL
(ROCm/rccl#1210) and by the same page's text. Nothing is fitted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

from weft.algorithms import rccl_ring
from weft.planning import compare
from weft.simulation import simulate
from weft.topology import load_topology
from weft.units import format_size

RESULTS = Path(__file__).parent / "rccl.json"
SPEC: Final = "mi300x:1@speed=effective"
SOURCE: Final = (
    "rocm.blogs.amd.com, Understanding RCCL bandwidth and xGMI performance on MI300X, 2 March 2025:"
    " all_reduce_perf -b 8 -e 16G -f 2 -g 1 on 8 ranks, RCCL 2.22.3-develop:f5b15f2, ROCm 6.3, out of place"
)
PUBLISHED_US: Final = {
    1 << 10: 13.11,
    64 << 10: 13.77,
    1 << 20: 27.42,
    16 << 20: 148.8,
    64 << 20: 429.1,
    256 << 20: 1537.1,
    1 << 30: 5970.6,
    4 << 30: 23680.0,
    16 << 30: 94254.0,
}


def main() -> None:
    """Simulate, and write rccl.json."""
    started = result_files.start()
    schedule = rccl_ring.all_reduce(load_topology(SPEC))
    results = []
    for size, published in PUBLISHED_US.items():
        simulated = simulate(schedule, size).seconds * 1e6
        best = compare(SPEC, size, time_limit=None).best_of_others
        assert best is not None
        assert best.seconds is not None
        bus_bytes = size * 2 * 7 / 8 / 1000
        results.append(
            {
                "size_bytes": size,
                "published_us": published,
                "simulated_us": simulated,
                "published_busbw_gb_per_s": bus_bytes / published,
                "simulated_busbw_gb_per_s": bus_bytes / simulated,
                "deviation_of_busbw": published / simulated - 1,
                "best_of_weft": best.algorithm,
                "best_of_weft_us": best.seconds * 1e6,
                "best_of_weft_busbw_gb_per_s": bus_bytes / (best.seconds * 1e6),
            }
        )
    result_files.write(
        RESULTS, started, parameters={"topology": SPEC, "source": SOURCE}, summary={}, results=results
    )


def table() -> str:
    """Published beside simulated."""
    heads = (
        "size",
        "published us",
        "simulated us",
        "published GB/s",
        "simulated GB/s",
        "deviation",
        "Weft's best",
    )
    lines = [f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n"]
    for row in json.loads(RESULTS.read_text("utf-8"))["results"]:
        cells = (
            format_size(row["size_bytes"]),
            *(f"{row[f'{name}_us']:,.0f}" for name in ("published", "simulated")),
            *(f"{row[f'{name}_busbw_gb_per_s']:.1f}" for name in ("published", "simulated")),
            f"{100 * row['deviation_of_busbw']:+.0f} %",
            f"{row['best_of_weft_us']:,.0f} us ({row['best_of_weft']})",
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
