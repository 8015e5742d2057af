"""One stage of a ring all-reduce, and what it costs: ``ring_scaling.py`` starts this for each measurement.

It loads no more than a program that simulates has to, because the whole process is compared with the peer's.
"""

from __future__ import annotations

import json
import resource
import sys

import weft
from weft.algorithms import ring

SIZE = "64MiB"


def main(stage: str, spec: str) -> None:
    """Do one stage; what it needs is prepared before its clock starts."""
    # Named here, and thereby loaded: no import falls into a measured stretch.
    verify, simulate = weft.verify, weft.simulate
    topology = weft.load_topology(spec)
    before = cpu_now()
    schedule = ring.all_reduce(topology)
    answer: dict[str, float] = {}
    if stage != "synthesis":
        before = cpu_now()
    if stage == "verification":
        verify(schedule, max_work=None)
    elif stage == "simulation":
        answer["simulated_ns"] = simulate(schedule, SIZE, segment_bytes=None, max_work=None).time_ps / 1000
    user, system = (after - start for after, start in zip(cpu_now(), before, strict=True))
    print(json.dumps(answer | {"cpu_seconds": user + system, "system_seconds": system}))


def cpu_now() -> tuple[float, float]:
    """User and system CPU seconds of this process so far, all threads together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
