"""NCCL's rings: one per channel, each through all boxes on a rail of its own.

`weft.algorithms.common.nccl_channels` says how many channels there are and in which order each visits the
GPUs. The buffer is divided evenly over them, and every channel does what `weft.algorithms.ring` does: while a
chunk travels once round, it is summed, and while it travels round once more, the sum is handed out.

All three collectives take a cluster of boxes; `pxn` says whether the last GPU of a box sends through the one
next to the rail's interface, which is NCCL's default. All raise `UnsupportedError` where ranks are not in
boxes, and `LimitError` where the table of transfers would be too long. The first note of a schedule says how
many channels there are.

References
----------
.. [1] NVIDIA/nccl 2.30.7: src/device/all_reduce.h (runRing), src/graph/connect.cc (connectRings).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.host_groups import check_rows
from weft.algorithms.common.nccl_channels import NcclChannels
from weft.algorithms.common.ring_orders import places_behind
from weft.schedule import Op, ScheduleBuilder
from weft.schedule.ir import DEFAULT_ROUTE
from weft.units import count

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "nccl_ring"


def all_reduce(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Sum every rank's buffer at every rank, once round each ring and once more.

    Parameters
    ----------
    topology, pxn
        As the module says.

    Returns
    -------
    Schedule
        One chunk per rank and channel, each summed at its owner halfway: `weft.schedule.passes.halves`
        applies.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("dgx-h100:2"))
    >>> schedule, schedule.notes[0]
    (<Schedule nccl_ring all_reduce on dgx-h100:2: 128 chunks, 30 steps, 3840 transfers>, '8 channels')

    Notes
    -----
    Cost: 2(N-1) steps. With C channels, each of C network interfaces of a box sends 2(N-1)/N of the buffer
    divided by C, and NVLink of a GPU carries 2(N-1)/N of the buffer.
    """
    return _rings(topology, "all_reduce", (Op.REDUCE, Op.COPY), pxn=pxn)


def reduce_scatter(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters and errors are those of the module.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("dgx-h100:2")).steps
    15

    Notes
    -----
    Cost: N-1 steps, and half of what `all_reduce` sends.
    """
    return _rings(topology, "reduce_scatter", (Op.REDUCE,), pxn=pxn)


def all_gather(topology: Topology, *, pxn: bool = True) -> Schedule:
    """Hand every rank's shard to every rank.

    Parameters and errors are those of the module, the cost is that of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("dgx-h100:1")).notes[0]
    '1 channel'
    """
    return _rings(topology, "all_gather", (Op.COPY,), pxn=pxn)


def _rings(topology: Topology, collective: str, rounds: tuple[Op, ...], *, pxn: bool) -> Schedule:
    ranks = topology.ranks
    channels = NcclChannels(topology, _NAME, pxn=pxn)
    rails = channels.rails
    check_rows(_NAME, len(rounds) * len(rails) * ranks * (ranks - 1))
    builder = ScheduleBuilder(topology, collective, _NAME, chunks=len(rails) * ranks)
    builder.note(count(len(rails), "channel"))
    steps = np.arange(ranks - 1)[:, None]
    for number, rail in enumerate(rails):
        ring = np.array(channels.order(rail), np.int32)
        place = np.argsort(ring).astype(np.int32)
        route = np.full(ranks, DEFAULT_ROUTE)
        for box in range(len(channels.boxes) if len(channels.boxes) > 1 else 0):
            route[channels.inside(rail, box)[-1]] = builder.route(channels.crossing(rail, box))
        for index, op in enumerate(rounds):
            owner = ring[places_behind(place, first=int(op == Op.REDUCE))]
            builder.add(
                step=index * (ranks - 1) + steps,
                chunk=owner * len(rails) + number,
                src=np.arange(ranks),
                dst=ring[(place + 1) % ranks],
                op=op,
                route=route,
            )
    return builder.build()
