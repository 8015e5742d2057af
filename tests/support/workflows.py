"""Small networks and schedules on which a workflow's times can be computed by hand."""

from __future__ import annotations

from support.reference.workflow_engine import run_reference
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.simulation import Resource, Workflow
from weft.topology import Topology
from weft.topology.cable_notes import CableNotes

BYTE_PER_PS = 10**12
COMPUTE = Resource("compute", BYTE_PER_PS)


def both_ways(ranks: int, latency_ps: int = 0) -> Topology:
    """A ring with links both ways; link 2r goes from r to the next, link 2r + 1 back."""
    wiring = CableNotes(ranks, 0)
    for rank in range(ranks):
        ahead = (rank + 1) % ranks
        wiring.link(rank, ahead, BYTE_PER_PS, latency_ps)
        wiring.link(ahead, rank, BYTE_PER_PS, latency_ps)
    return wiring.build("ring by hand")


def rows(topology: Topology, *sends: tuple[int, int, int], op: Op = Op.COPY) -> Schedule:
    """Send one chunk as (step, src, dst)."""
    builder = ScheduleBuilder(topology, "all_reduce", "by hand", chunks=1)
    for step, src, dst in sends:
        builder.add(step=step, chunk=0, src=src, dst=dst, op=op)
    return builder.build()


def times(flow: Workflow) -> list[tuple[list[int], list[int]]]:
    """When each task began and ended, rank by rank; both engines say so."""
    fast, slow = flow.run(), run_reference(flow)
    assert (fast.began_ps.tolist(), fast.ended_ps.tolist()) == (slow.began_ps, slow.ended_ps)
    assert fast.busy_ps.tolist() == slow.busy_ps
    return list(zip(slow.began_ps, slow.ended_ps, strict=True))
