"""Networks and schedules that nobody would write, for tests that hold two engines together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.ir import TRANSFER_COLUMNS
from weft.topology import Topology
from weft.topology.cable_notes import CableNotes

# Few values, so that many things happen at the same instant; round ones, and ones that leave remainders.
SPEEDS = (10**12, 5 * 10**11, 2 * 10**12, 3 * 10**11, 7 * 10**11, 25 * 10**9, 1_234_567_891)
LATENCIES_PS = (0, 0, 1, 2, 5, 10, 1000)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Cables from every node to an earlier one, then any links; all speeds and latencies differ both ways."""
    wiring = CableNotes(draw(st.integers(2, 5), label="ranks"), draw(st.integers(0, 2), label="switches"))
    nodes = wiring.ranks + wiring.switches
    ends = [(node, draw(st.integers(0, node - 1))) for node in range(1, nodes)]
    ends += [(b, a) for a, b in ends]
    for src, ahead in draw(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(1, nodes - 1)), max_size=6)
    ):
        ends.append((src, (src + ahead) % nodes))
    speeds = st.sampled_from(draw(st.sampled_from([SPEEDS[:1], SPEEDS[:3], SPEEDS])))
    latencies = st.sampled_from(draw(st.sampled_from([LATENCIES_PS[:1], LATENCIES_PS])))
    for src, dst in draw(st.permutations(ends)):
        wiring.link(src, dst, draw(speeds), draw(latencies))
    return wiring.build("random")


def simple_paths(topology: Topology, src: int, dst: int, most: int = 12) -> list[tuple[int, ...]]:
    """Some paths from one rank to another, parallel links told apart."""
    found: list[tuple[int, ...]] = []
    unfinished: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(src, (), frozenset([src]))]
    while unfinished and len(found) < most:
        node, links, visited = unfinished.pop()
        if node == dst:
            found.append(links)
            continue
        for link in np.flatnonzero(topology.link_src == node).tolist():
            ahead = int(topology.link_dst[link])
            if ahead not in visited:
                unfinished.append((ahead, (*links, link), visited | {ahead}))
    return found


@st.composite
def schedules(draw: st.DrawFn, topology: Topology | None = None) -> Schedule:
    """Any table of legal transfers without two writes of one step into one place."""
    topology = topology or draw(topologies())
    weights = [draw(st.integers(1, 5)), *draw(st.lists(st.integers(0, 5), max_size=4), label="weights")]
    builder = ScheduleBuilder(topology, "all_reduce", "random", chunks=len(weights), weights=weights)
    slots = st.integers(0, draw(st.sampled_from([0, 0, 2]), label="last slot"))
    steps = st.integers(0, draw(st.integers(0, 6), label="last step"))
    ranks = st.integers(0, topology.ranks - 1)
    written: dict[tuple[int, ...], Op] = {}
    for _ in range(draw(st.integers(0, 12), label="blocks")):
        step, src, dst, op = draw(steps), draw(ranks), draw(ranks), draw(st.sampled_from(Op))
        src_slot, dst_slot = draw(slots), draw(slots)
        if (src, src_slot) == (dst, dst_slot):
            continue
        route = {}
        if src != dst and draw(st.booleans()):
            route["route"] = builder.route(draw(st.sampled_from(simple_paths(topology, src, dst))))
        first = draw(st.integers(0, len(weights) - 1))
        for chunk in range(first, draw(st.integers(first, len(weights) - 1)) + 1):
            place = (step, dst, dst_slot, chunk)
            if place in written and not op == written[place] == Op.REDUCE:
                continue  # a hazard: only reduces may meet
            written[place] = op
            builder.add(
                step=step, chunk=chunk, src=src, dst=dst, op=op, src_slot=src_slot, dst_slot=dst_slot, **route
            )
    schedule = builder.build()
    if not draw(st.booleans(), label="shuffled"):
        return schedule
    return shuffle(schedule, draw(st.permutations(range(schedule.transfers))))


def shuffle(schedule: Schedule, order: list[int]) -> Schedule:
    """Another order of the rows within each step; messages and the order of reduces change with it."""
    order = sorted(order, key=lambda row: int(schedule.step[row]))
    columns = {name: getattr(schedule, name) for name in TRANSFER_COLUMNS}
    return replace(schedule, **{name: col[order] for name, col in columns.items() if col is not None})
