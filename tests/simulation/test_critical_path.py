"""The critical path names who was waited for."""

from __future__ import annotations

from itertools import pairwise

import weft
from weft.schedule import Op, ScheduleBuilder


def test_a_long_chain_of_waits_is_followed_once() -> None:
    topology = weft.load_topology("ring:4@bw=1GB/s,lat=1us")
    builder = ScheduleBuilder(topology, "broadcast", "queue", chunks=2000)
    builder.add(step=range(2000), chunk=range(2000), src=0, dst=1, op=Op.COPY)
    result = weft.simulation.simulate(builder.build(), 2000)
    assert len(result.critical_path) == 2000
    times = [(step.start_ps, step.end_ps) for step in result.critical_path]
    assert all(before[1] == after[0] for before, after in pairwise(times))
    assert {step.waited_for for step in result.critical_path[1:]} == {"link"}
