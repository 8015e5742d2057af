"""How well work on schedules is estimated before it is done.

Each case is estimated, then done without a bound, and both are set side by side: operations of the estimate
(about a nanosecond each) over nanoseconds of CPU time. The cases are large schedules of Weft's own, and
hostile ones: small files that ask for much.

    python benchmarks/limits/estimates.py        # into estimates.json beside this file
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import weft
from weft import limits
from weft.algorithms import registry
from weft.packets import default_ports, make_tables, simulate_tables
from weft.schedule import Schedule
from weft.schedule.codec import decode_schedule, encode_schedule
from weft.verification import inspect

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from support import costly

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

OWN = (
    ("ring", "all_reduce", "ring:1024"),
    ("halving_doubling", "all_reduce", "hypercube:10"),
    ("bucket", "all_reduce", "torus:32x32"),
    ("direct", "all_to_all", "fattree:32,32,32"),
    ("forest", "all_reduce", "torus:16x16"),
    ("direct", "all_gather", "torus:16x16"),
)
PACKETS = (("multitree", "torus:8x8", "4MiB"), ("ring", "ring:128", "4MiB"), ("direct", "fattree:64", "4MiB"))
SIZE = "64MiB"


def compare(what: str, work: Callable[[float], object]) -> dict[str, Any]:
    """Operations of all estimates that work makes on its way, beside the nanoseconds of CPU time it takes."""
    estimates: list[float] = []
    asked, limits.check_work = limits.check_work, lambda _what, found, _most: estimates.append(found)
    began = time.process_time()
    work(math.inf)
    spent = time.process_time() - began
    limits.check_work = asked
    ratio = sum(estimates) / spent / 1e9
    print(f"{what:52} {sum(estimates):16,.0f} {spent:9.3f} s {ratio:6.2f}", flush=True)
    return {
        "what": what,
        "operations": round(sum(estimates)),
        "cpu_seconds": spent,
        "operations_per_ns": ratio,
    }


def check(schedule: Schedule) -> Callable[[float], object]:
    """Verification."""
    return lambda max_work: inspect(schedule, max_work=max_work)


def run(schedule: Schedule, segment_bytes: int | None = None) -> Callable[[float], object]:
    """Simulation, on paths that are found first."""
    return lambda max_work: weft.simulate(schedule, SIZE, segment_bytes=segment_bytes, max_work=max_work)


def measure() -> Iterator[dict[str, Any]]:
    """All cases."""
    for name, collective, spec in OWN:
        schedule = registry.find(name).build(weft.load_topology(spec), collective)
        title = f"{name} {collective} on {spec}"
        data = encode_schedule(schedule)
        yield compare(f"read {title}", lambda max_work, data=data: decode_schedule(data, max_work=max_work))
        yield compare(f"verify {title}", check(schedule))
        yield compare(f"simulate {title}", run(schedule))
    yield compare(f"simulate {title} in segments", run(schedule, 64 << 10))
    yield compare("verify many places", check(costly.many_places(100_000)))
    yield compare("verify and find the fewest slots", check(costly.swapped_in_reverse(1_000_000)))
    yield compare("simulate long routes", run(costly.long_routes(5000)))
    yield compare("find paths through a large switch", run(costly.many_pairs(4000)))
    for name, spec, size in PACKETS:
        schedule = registry.find(name).build(weft.load_topology(spec), "all_reduce")
        ports = default_ports(schedule.topology)
        yield compare(
            f"tables of {name} on {spec}",
            lambda max_work, schedule=schedule, size=size, ports=ports: make_tables(
                schedule, size, ports=ports, max_work=max_work
            ),
        )
        tables = make_tables(schedule, size, ports=ports)
        yield compare(
            f"packets of {name} on {spec}",
            lambda max_work, tables=tables: simulate_tables(tables, max_work=max_work),
        )


def main() -> None:
    """Measure and write."""
    started = result_files.start()
    cases = list(measure())
    ratios = [case["operations_per_ns"] for case in cases]
    result_files.write(
        Path(__file__).with_suffix(".json"),
        started,
        parameters={"size": SIZE},
        summary={"least_operations_per_ns": min(ratios), "most_operations_per_ns": max(ratios)},
        results=cases,
    )


if __name__ == "__main__":
    main()
