"""FlexReduce beside ring, leaders, BlueConnect and double tree, on uneven hosts and unequal links.

Every schedule is verified, then simulated whole and in segments of several sizes; the best time counts, and
the time without segments stands beside it. Fractions are of the proven bound.

    python benchmarks/flexreduce/uneven.py        # into uneven.json beside this file
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weft import units
from weft.algorithms import (
    blueconnect,
    double_binary_tree,
    flexreduce,
    hierarchical,
    ring,
)
from weft.bounds.collective_bound import lower_bound
from weft.errors import UnsupportedError
from weft.schedule import Schedule
from weft.simulation import simulate
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.verification import verify

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SIZES = ("1MiB", "64MiB", "1GiB")
HOSTS = ("8,8", "8,4", "8,4,2", "4,3,1", "8,8,8,1", "16,8")
LINKS = {
    "hosts:8,4,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s": "{8,4,2}, uplinks 10, 5, 1 GB/s",
    "hosts:8,4,2@intra=10GB/s,uplink=10GB/s/5GB/s/1GB/s": "the same, hosts 10 GB/s",
    "hosts:8,8,8,8@intra=100GB/s,uplink=25GB/s/25GB/s/25GB/s/10GB/s": "{8,8,8,8}, one uplink 10 GB/s",
    "hosts:4,4,4@intra=100GB/s,uplink=25GB/s/25GB/s/5GB/s": "{4,4,4}, one uplink 5 GB/s",
    "hosts:1,1,1,1,1,1,1,1@bw=25GB/s,"
    "uplink=25GB/s/25GB/s/25GB/s/2.5GB/s/25GB/s/25GB/s/25GB/s/25GB/s": "8 ranks, one port 2.5 GB/s",
    "hosts:1,1,1,1,1,1,1,1@bw=25GB/s,"
    "uplink=25GB/s/5GB/s/25GB/s/5GB/s/25GB/s/5GB/s/25GB/s/25GB/s": "8 ranks, three ports 5 GB/s",
    "dgx-h100:2@fabric=flat+fail=0-s2": "dgx-h100:2@fabric=flat, one card dead",
}
"""Specs, and what docs/flexreduce.md calls them."""
SHOWN = {
    "flexreduce": "FlexReduce",
    "ring": "ring",
    "hierarchical": "leaders",
    "blueconnect": "BlueConnect",
    "double_binary_tree": "double tree",
}
RESULTS = Path(__file__).with_suffix(".json")


def racks(rack_speed: int) -> Topology:
    """Two racks of 16 and 8 ranks, in hosts of 8; ranks have 100 GB/s, hosts 25 GB/s."""
    wiring = CableNotes(24, 6)
    for host in range(3):
        for rank in range(8 * host, 8 * host + 8):
            wiring.cable(rank, wiring.switch(host), bandwidth=100 * 10**9, latency_ps=10**6)
        wiring.cable(
            wiring.switch(host), wiring.switch(3 + host // 2), bandwidth=25 * 10**9, latency_ps=10**6
        )
    for rack in range(2):
        wiring.cable(wiring.switch(3 + rack), wiring.switch(5), bandwidth=rack_speed, latency_ps=10**6)
    hosts = tuple(tuple(range(8 * host, 8 * host + 8)) for host in range(3))
    return wiring.build(f"racks of 16 and 8, {units.format_bandwidth(rack_speed)} each", hosts=hosts)


def clusters() -> Iterator[Topology]:
    """Every cluster of the comparison."""
    for counts in HOSTS:
        for intra in ("100GB/s", "25GB/s"):
            yield load_topology(f"hosts:{counts}@intra={intra},uplink=25GB/s")
    for speed in (10, 25):
        yield racks(speed * 10**9)
    for spec in LINKS:
        yield load_topology(spec)


def widest_blueconnect(topology: Topology) -> Schedule:
    """BlueConnect on the largest levels that divide all hosts evenly."""
    common = math.gcd(*(len(group) for group in topology.groups))
    return blueconnect.all_reduce(topology, levels=(common, topology.ranks // common))


CONTENDERS: dict[str, Callable[[Topology, int], Schedule]] = {
    "flexreduce": lambda topology, size: flexreduce.all_reduce(topology, size_bytes=size),
    "flexreduce, levels": lambda topology, size: flexreduce.all_reduce(
        topology, shape="levels", size_bytes=size
    ),
    "flexreduce, ring": lambda topology, _: flexreduce.all_reduce(topology, shape="ring"),
    "flexreduce, even portions": lambda topology, size: flexreduce.all_reduce(
        topology, portions="even", size_bytes=size
    ),
    "ring": lambda topology, _: ring.all_reduce(topology),
    "hierarchical": lambda topology, _: hierarchical.all_reduce(topology),
    "blueconnect": lambda topology, _: widest_blueconnect(topology),
    "double_binary_tree": lambda topology, _: double_binary_tree.all_reduce(topology),
}


def compare(topology: Topology) -> Iterator[dict[str, Any]]:
    """Rows of one cluster: a dictionary per contender and size."""
    for name, make in CONTENDERS.items():
        for size in SIZES:
            size_bytes = units.parse_size(size)
            began = time.process_time()
            try:
                schedule = make(topology, size_bytes)
            except UnsupportedError:
                continue
            building = time.process_time() - began
            verify(schedule, max_work=None)
            bound = lower_bound(topology, "all_reduce", size_bytes)
            best = simulate(schedule, size_bytes, max_work=None)
            whole = simulate(schedule, size_bytes, segment_bytes=None, max_work=None)
            yield {
                "topology": topology.name,
                "size": size,
                "algorithm": name,
                "seconds": best.seconds,
                "fraction_of_bound": round(bound.seconds / best.seconds, 4),
                "segment_bytes": best.segment_bytes,
                "seconds_without_segments": whole.seconds,
                "bound_seconds": bound.seconds,
                "bound_kind": bound.kind,
                "chunks": schedule.chunks,
                "steps": schedule.steps,
                "build_cpu_seconds": round(building, 3),
                "verified": True,
                "notes": list(schedule.notes) if name == "flexreduce" else [],
            }


def table() -> str:
    """Write the table of docs/flexreduce.md: fractions of the bound by cluster and contender."""
    fractions: dict[str, dict[tuple[str, str], float]] = {}
    for row in result_files.read(RESULTS)["results"]:
        by_contender = fractions.setdefault(row["topology"], {})
        by_contender[row["algorithm"], row["size"]] = row["fraction_of_bound"]
    lines = [f"| cluster | {' | '.join(SHOWN.values())} |", "|---" * (1 + len(SHOWN)) + "|"]
    for topology, found in fractions.items():
        cells = (" / ".join(f"{found[name, size]:.3f}" for size in SIZES) for name in SHOWN)
        lines.append(f"| {label(topology)} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def label(topology: str) -> str:
    """What docs/flexreduce.md calls a cluster."""
    if topology in LINKS:
        return LINKS[topology]
    if topology.startswith("racks"):
        speed = topology.removeprefix("racks of 16 and 8, ").removesuffix(" each").replace("GB/s", " GB/s")
        return f"racks {{8+8, 8}}, rack uplinks {speed}"
    counts, _, links = topology.removeprefix("hosts:").partition("@")
    return f"{{{counts}}}, hosts {links.removeprefix('intra=').partition('GB/s')[0]} GB/s"


def main() -> None:
    """Run all clusters and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started, rows = result_files.start(), []
    for topology in clusters():
        found = list(compare(topology))
        rows += found
        print(topology.name)
        for size in SIZES:
            line = [f"{r['algorithm']} {r['fraction_of_bound']:.3f}" for r in found if r["size"] == size]
            print(f"  {size:>6}  {'  '.join(line)}", flush=True)
    result_files.write(arguments.output, started, parameters={"sizes": SIZES}, results=rows)


if __name__ == "__main__":
    main()
