"""Several rings through all ranks at once, each with its share of the buffer, as libraries for GPUs run them.

Every ring does what `weft.algorithms.ring` does: while a chunk travels once round, it is summed, and while it
travels round once more, the sum is handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.host_groups import check_rows
from weft.algorithms.common.ring_orders import places_behind
from weft.schedule import Op, ScheduleBuilder
from weft.schedule.ir import DEFAULT_ROUTE
from weft.units import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

ROUNDS: Final = {
    "all_reduce": (Op.REDUCE, Op.COPY),
    "reduce_scatter": (Op.REDUCE,),
    "all_gather": (Op.COPY,),
}
"""What happens while a chunk travels round, by collective."""


def build_rings(
    topology: Topology,
    collective: str,
    name: str,
    orders: Sequence[Sequence[int]],
    crossings: Sequence[Mapping[int, tuple[int, ...]]],
) -> Schedule:
    """Build one ring for each order, with a first note that says how many channels there are.

    Parameters
    ----------
    topology, collective, name
        Where, one of `ROUNDS`, and what the schedule is called.
    orders
        Ranks in the order of each ring.
    crossings
        For each ring the links by which some ranks send to the next; all others take the network's own way.

    Raises
    ------
    LimitError
        If the table of transfers would be too long.
    """
    ranks, rounds = topology.ranks, ROUNDS[collective]
    check_rows(name, len(rounds) * len(orders) * ranks * (ranks - 1))
    builder = ScheduleBuilder(topology, collective, name, chunks=len(orders) * ranks)
    builder.note(count(len(orders), "channel"))
    steps = np.arange(ranks - 1)[:, None]
    for number, (order, ways) in enumerate(zip(orders, crossings, strict=True)):
        ring = np.array(order, np.int32)
        place = np.argsort(ring).astype(np.int32)
        route = np.full(ranks, DEFAULT_ROUTE)
        for rank, links in ways.items():
            route[rank] = builder.route(links)
        for index, op in enumerate(rounds):
            owner = ring[places_behind(place, first=int(op == Op.REDUCE))]
            builder.add(
                step=index * (ranks - 1) + steps,
                chunk=owner * len(orders) + number,
                src=np.arange(ranks),
                dst=ring[(place + 1) % ranks],
                op=op,
                route=route,
            )
    return builder.build()
