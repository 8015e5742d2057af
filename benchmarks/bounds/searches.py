"""What exact bounds cost: CPU seconds of the searches, and of the same question put to scipy's max-flow.

python benchmarks/bounds/searches.py        # into searches.json beside this file
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.bounds import tight_cuts
from weft.bounds.collective_bound import lower_bound
from weft.topology import Topology, load_topology

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SPECS = (
    "torus:8x8",
    "torus:16x16",
    "torus:32x32",
    "torus:32x32+fail=0-1",
    "mesh:32x32",
    "fattree:32,32,32",
    "dgx-h100:128@fabric=flat",
    "dragonfly:33,8,4",
    "ring:1024",
)
MOST_SCIPY_RANKS = 256
REPEATS = 5
SIZE = 1 << 30


def cpu_seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median over a few runs."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return round(statistics.median(times), 4)


def equal_shard_by_scipy(topology: Topology) -> bool:
    """Whether the densest set of `cuts.densest` is confirmed: one maximum flow per rank."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    inside = tight_cuts.densest(topology, outward=True)
    leaving = inside[topology.link_src] & ~inside[topology.link_dst]
    speeds = topology.bandwidth // np.gcd.reduce(topology.bandwidth)
    ranks, capacity = int(inside[: topology.ranks].sum()), int(speeds[leaving].sum())
    source = topology.nodes
    src = np.concatenate([topology.link_src, np.full(topology.ranks, source)])
    dst = np.concatenate([topology.link_dst, np.arange(topology.ranks)])
    value = np.concatenate([speeds * ranks, np.full(topology.ranks, capacity)]).astype(np.int32)
    graph = csr_array((value, (src, dst)), shape=(source + 1, source + 1))
    wanted = topology.ranks * capacity
    return all(maximum_flow(graph, source, sink).flow_value == wanted for sink in range(topology.ranks))


def measure(spec: str) -> dict[str, Any]:
    """CPU seconds of every search on one topology."""
    topology = load_topology(spec)
    row: dict[str, Any] = {
        "topology": spec,
        "nodes": topology.nodes,
        "links": topology.links,
        "densest_cut_cpu_s": cpu_seconds(lambda: tight_cuts.densest(topology, outward=True)),
        "thinnest_cut_cpu_s": cpu_seconds(lambda: tight_cuts.thinnest(topology, 0, outward=True)),
        "strongest_partition_cpu_s": cpu_seconds(lambda: tight_cuts.strongest(topology, outward=True)),
    }
    for collective in ("all_reduce", "all_gather"):
        row[f"lower_bound_{collective}_cpu_s"] = cpu_seconds(
            lambda c=collective: lower_bound(topology, c, SIZE)
        )
    if topology.ranks <= MOST_SCIPY_RANKS:
        assert equal_shard_by_scipy(topology)
        by_scipy = cpu_seconds(lambda: equal_shard_by_scipy(topology), 1)
        row["densest_cut_by_scipy_cpu_s"] = by_scipy
        row["times_faster_than_scipy"] = round(by_scipy / row["densest_cut_cpu_s"], 1)
    return row


def main() -> None:
    """Run all topologies and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    started, rows = result_files.start(), []
    for spec in SPECS:
        rows.append(measure(spec))
        print(json.dumps(rows[-1]), flush=True)
    parameters = {"size_bytes": SIZE, "repeats": REPEATS}
    result_files.write(arguments.output, started, parameters=parameters, results=rows)


if __name__ == "__main__":
    main()
