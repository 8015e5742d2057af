"""Right schedules written by hand, one per trait that a verifier could get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import Topology, load_topology


def chain_broadcast(topology: Topology) -> Schedule:
    builder = ScheduleBuilder(topology, "broadcast", "chain", chunks=3, root=1)
    rank = np.arange(topology.ranks - 1)
    order = np.roll(np.arange(topology.ranks), -1)
    for chunk in range(3):
        builder.add(step=rank + chunk, chunk=chunk, src=order[:-1], dst=order[1:], op=Op.COPY)
    return builder.build()


def routed_star_broadcast(topology: Topology) -> Schedule:
    """Every route explicit."""
    builder = ScheduleBuilder(topology, "broadcast", "star", chunks=2)
    for dst in range(1, topology.ranks):
        route = builder.route(topology.route(0, dst))
        builder.add(step=0, chunk=[0, 1], src=0, dst=dst, op=Op.COPY, route=route)
    return builder.build()


def star_reduce(topology: Topology) -> Schedule:
    """Several reduces meet in one place in one step."""
    builder = ScheduleBuilder(topology, "reduce", "star", chunks=2, root=topology.ranks - 1)
    others = np.arange(topology.ranks - 1)[:, None]
    builder.add(step=0, chunk=[0, 1], src=others, dst=topology.ranks - 1, op=Op.REDUCE)
    return builder.build()


def chain_reduce(topology: Topology) -> Schedule:
    builder = ScheduleBuilder(topology, "reduce", "chain", chunks=1)
    rank = np.arange(topology.ranks - 1, 0, -1)
    builder.add(step=np.arange(len(rank)), chunk=0, src=rank, dst=rank - 1, op=Op.REDUCE)
    return builder.build()


def ring_all_reduce(topology: Topology) -> Schedule:
    ranks = topology.ranks
    builder = ScheduleBuilder(topology, "all_reduce", "ring")
    rank = np.arange(ranks)
    step = np.arange(ranks - 1)[:, None]
    following = (rank + 1) % ranks
    builder.add(step=step, chunk=(rank - step) % ranks, src=rank, dst=following, op=Op.REDUCE)
    later = step + ranks - 1
    builder.add(step=later, chunk=(rank + 1 - step) % ranks, src=rank, dst=following, op=Op.COPY)
    return builder.build()


def exchange_all_reduce(topology: Topology) -> Schedule:
    """Every place is read and written in every step; ranks beyond a power of two hand over and wait."""
    ranks = topology.ranks
    core = 1 << (ranks.bit_length() - 1)
    builder = ScheduleBuilder(topology, "all_reduce", "exchange", chunks=2)
    chunks, steps = np.arange(2), core.bit_length() - 1
    for rank in range(core, ranks):
        builder.add(step=0, chunk=chunks, src=rank, dst=rank - core, op=Op.REDUCE)
        builder.add(step=steps + 1, chunk=chunks, src=rank - core, dst=rank, op=Op.COPY)
    for step in range(steps):
        for rank in range(core):
            builder.add(step=step + 1, chunk=chunks, src=rank, dst=rank ^ (1 << step), op=Op.REDUCE)
    return builder.build()


def all_at_once_all_reduce(topology: Topology) -> Schedule:
    """Every place is read, and written several times, in one step."""
    builder = ScheduleBuilder(topology, "all_reduce", "all at once", chunks=1)
    for rank in range(topology.ranks):
        others = [other for other in range(topology.ranks) if other != rank]
        builder.add(step=0, chunk=0, src=rank, dst=others, op=Op.REDUCE)
    return builder.build()


def direct_all_gather(topology: Topology) -> Schedule:
    builder = ScheduleBuilder(topology, "all_gather", "direct")
    for rank in range(topology.ranks):
        others = [other for other in range(topology.ranks) if other != rank]
        builder.add(step=0, chunk=rank, src=rank, dst=others, op=Op.COPY)
    return builder.build()


def direct_reduce_scatter(topology: Topology) -> Schedule:
    builder = ScheduleBuilder(topology, "reduce_scatter", "direct", chunks=2 * topology.ranks)
    for rank in range(topology.ranks):
        others = [other for other in range(topology.ranks) if other != rank]
        for chunk in (2 * rank, 2 * rank + 1):
            builder.add(step=chunk % 2, chunk=chunk, src=others, dst=rank, op=Op.REDUCE)
    return builder.build()


def relayed_all_to_all(topology: Topology) -> Schedule:
    """Every value passes through a scratch slot of another rank."""
    ranks = topology.ranks
    builder = ScheduleBuilder(topology, "all_to_all", "relayed")
    for src in range(ranks):
        for dst in range(ranks):
            hub = (src + 1) % ranks
            if src == dst:
                continue
            chunk = src * ranks + dst
            builder.add(step=0, chunk=chunk, src=src, dst=hub, op=Op.COPY, dst_slot=1)
            builder.add(step=1, chunk=chunk, src=hub, dst=dst, op=Op.COPY, src_slot=1)
    return builder.build()


def gathered_all_to_all(topology: Topology) -> Schedule:
    """Two values that lie apart at their sender, its own and one that it relays, travel as one message."""
    ranks = topology.ranks
    builder = ScheduleBuilder(topology, "all_to_all", "gathered")
    if ranks > 3:
        together = [ranks - 1, ranks]  # from 0 to the last rank, and from 1 to 0
        builder.add(step=0, chunk=ranks - 1, src=0, dst=1, op=Op.COPY)
        builder.add(step=1, chunk=together, src=1, dst=2, op=Op.COPY)
        builder.add(step=2, chunk=together, src=2, dst=[ranks - 1, 0], op=Op.COPY)
    for src in range(ranks):
        for dst in range(ranks):
            chunk = src * ranks + dst
            if src != dst and not (ranks > 3 and chunk in together):
                builder.add(step=0, chunk=chunk, src=src, dst=dst, op=Op.COPY)
    return builder.build()


def staged_reduce(topology: Topology) -> Schedule:
    """Values arrive in scratch slots and are added by moves within the rank."""
    builder = ScheduleBuilder(topology, "reduce", "staged", chunks=1)
    for rank in range(1, topology.ranks):
        builder.add(step=0, chunk=0, src=rank, dst=0, op=Op.COPY, dst_slot=rank)
        builder.add(step=rank, chunk=0, src=0, dst=0, op=Op.REDUCE, src_slot=rank)
    return builder.build()


def careless_all_reduce(topology: Topology) -> Schedule:
    """Right in the end, wrong on the way: doubled and undefined values that a copy overwrites later."""
    ranks = topology.ranks
    builder = ScheduleBuilder(topology, "all_reduce", "careless", chunks=1)
    others = np.arange(1, ranks)
    builder.add(step=0, chunk=0, src=others, dst=0, op=Op.REDUCE)
    builder.add(step=1, chunk=0, src=0, dst=others, op=Op.REDUCE)
    builder.add(step=3, chunk=0, src=1, dst=1, op=Op.COPY, src_slot=3)
    builder.add(step=4, chunk=0, src=0, dst=others, op=Op.COPY)
    return builder.build()


def weightless_all_reduce(topology: Topology) -> Schedule:
    """A chunk that no buffer has an element of; it must be right all the same."""
    builder = ScheduleBuilder(topology, "all_reduce", "weightless", chunks=3, weights=[2, 0, 1])
    others = np.arange(1, topology.ranks)[:, None]
    chunks = np.arange(3)
    builder.add(step=0, chunk=chunks, src=others, dst=0, op=Op.REDUCE)
    builder.add(step=1, chunk=chunks, src=0, dst=others, op=Op.COPY)
    return builder.build()


HANDMADE: tuple[Callable[[Topology], Schedule], ...] = (
    chain_broadcast,
    routed_star_broadcast,
    star_reduce,
    chain_reduce,
    ring_all_reduce,
    exchange_all_reduce,
    all_at_once_all_reduce,
    direct_all_gather,
    direct_reduce_scatter,
    relayed_all_to_all,
    gathered_all_to_all,
    staged_reduce,
    careless_all_reduce,
    weightless_all_reduce,
)

SMALL_TOPOLOGIES = (
    "ring:2",
    "ring:5",
    "mesh:2x3",
    "torus:3x3",
    "hypercube:3",
    "fullmesh:4",
    "switch:6",
    "fattree:2,2,3",
    "bigraph:2,4",
    "dragonfly:2,2,2",
    "hosts:3,2,1",
)


def pinned(schedule: Schedule) -> Schedule:
    """The same with every route explicit."""
    routes = [schedule.route_of(row) for row in range(schedule.transfers)]
    table = sorted(set(routes))
    return replace(
        schedule,
        route=np.array([table.index(route) for route in routes]),
        route_offsets=np.cumsum([0, *(len(route) for route in table)]),
        route_links=np.array([link for route in table for link in route]),
    )


def handmade_schedules() -> list[Schedule]:
    """Every trait on every small topology; explicit routes; and more ranks than a machine word has bits."""
    small = [make(load_topology(spec)) for spec in SMALL_TOPOLOGIES for make in HANDMADE]
    wide = [make(load_topology("ring:70")) for make in (star_reduce, staged_reduce, exchange_all_reduce)]
    routed = [pinned(schedule) for schedule in small if schedule.topology.name in ("mesh:2x3", "bigraph:2,4")]
    return small + wide + routed
