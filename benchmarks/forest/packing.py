"""How near the best a packing of trees comes, what proves it, and what it costs.

python benchmarks/forest/packing.py        # into packing.json beside this file
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from weft.bounds.collective_bound import lower_bound
from weft.bounds.packing import pack
from weft.topology import load_topology

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SPECS = (
    "mesh:4x4@bw=1GB/s",
    "mesh:8x8@bw=1GB/s",
    "mesh:4x4@bw=1GB/s/4GB/s",
    "torus:4x4@bw=1GB/s",
    "torus:8x8@bw=1GB/s",
    "torus:4x4@bw=1GB/s+fail=0-1",
    "torus:8x8@bw=1GB/s+fail=0-1",
    "torus:8x8@bw=1GB/s+fail=0>1",
    "dgx-h100:2@fabric=flat",
    "dgx-h100:2@fabric=flat+fail=0-s2",
    "dgx-a100:2@fabric=flat",
    "dgx-a100:4@fabric=flat",
    "fattree:64",
    "bigraph:4,16",
    "dragonfly:4,4,4",
    "hosts:8,4,2@intra=100GB/s,uplink=25GB/s",
    "mesh:16x16@bw=1GB/s",
    "torus:16x16@bw=1GB/s",
    "torus:16x16@bw=1GB/s+fail=0>1",
    "fattree:16,16,16",
    "dgx-h100:32@fabric=flat",
    "mesh:32x32@bw=1GB/s",
    "torus:32x32@bw=1GB/s",
    "torus:32x32@bw=1GB/s+fail=0>1",
    "fattree:32,32,32",
    "dgx-h100:128@fabric=flat",
    "dgx-h100:128",
)


def measure(spec: str) -> dict[str, Any]:
    """One row of the table."""
    topology = load_topology(spec)
    began = time.process_time()
    packing = pack(topology)
    cpu = time.process_time() - began
    division = 1e9 / lower_bound(topology, "all_reduce", 10**9).bandwidth_seconds
    return {
        "topology": spec,
        "ranks": topology.ranks,
        "trees": len(packing.trees),
        "rate_GBps": round(float(packing.rate) / 1e9, 5),
        "certificate_GBps": round(float(packing.certificate.bound) / 1e9, 5),
        "bound_GBps": round(division / 1e9, 5),
        "gap_percent": round(100 * packing.gap, 4),
        "cpu_seconds": round(cpu, 2),
    }


def main() -> None:
    """Measure every topology and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    output = parser.parse_args().output
    pack(load_topology("dragonfly:3,2,1"), tolerance=0.0)  # the solver is loaded on first use
    started, rows = result_files.start(), []
    for spec in SPECS:
        rows.append(measure(spec))
        row = rows[-1]
        print(
            f"{spec:42s} {row['rate_GBps']:10.4f} of {row['certificate_GBps']:10.4f} GB/s, gap "
            f"{row['gap_percent']:6.3f} %, {row['trees']:4d} trees, {row['cpu_seconds']:5.2f} CPU s",
            flush=True,
        )
    result_files.write(output, started, parameters={}, results=rows)


if __name__ == "__main__":
    main()
