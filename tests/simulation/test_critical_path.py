"""The critical path names who was waited for."""

from __future__ import annotations

from itertools import pairwise

import weft
from weft.schedule import Op, ScheduleBuilder
from weft.simulation.result import PathStep


def ends(step: PathStep) -> tuple[int, int]:
    return step.src, step.dst


def test_in_strict_lockstep_a_rank_waits_for_its_own_send_to_leave() -> None:
    """Rank 0's second send starts when its first has left, one latency before that one is applied."""
    topology = weft.load_topology("fullmesh:3@bw=1GB/s,lat=1us")
    builder = ScheduleBuilder(topology, "broadcast", "two", chunks=2)
    builder.add(step=[0, 1], chunk=[0, 1], src=0, dst=[1, 2], op=Op.COPY)
    result = weft.simulate(builder.build(), 2000, execution="strict")
    assert result.time_ps == 3_000_000
    first, second = result.critical_path
    assert (ends(first), first.start_ps, first.end_ps, first.waited_for) == ((0, 1), 0, 1_000_000, "start")
    assert (ends(second), second.start_ps, second.end_ps) == ((0, 2), 1_000_000, 3_000_000)


def test_a_long_chain_of_waits_is_followed_once() -> None:
    topology = weft.load_topology("ring:4@bw=1GB/s,lat=1us")
    builder = ScheduleBuilder(topology, "broadcast", "queue", chunks=2000)
    builder.add(step=range(2000), chunk=range(2000), src=0, dst=1, op=Op.COPY)
    result = weft.simulate(builder.build(), 2000, execution="dependency")
    assert len(result.critical_path) == 2000
    times = [(step.start_ps, step.end_ps) for step in result.critical_path]
    assert all(before[1] == after[0] for before, after in pairwise(times))
    assert {step.waited_for for step in result.critical_path[1:]} == {"link"}
