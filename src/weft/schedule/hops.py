"""How many links each message crosses, without asking for its links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule.ir import Schedule


def message_hops(schedule: Schedule, max_work: float | None = None) -> NDArray[np.int64]:
    """Links on the way of each message, whether its route is explicit or the network's own.

    Raises
    ------
    LimitError
        If finding the network's own would take more operations than `max_work`.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:4"), "broadcast", "star", chunks=1)
    >>> builder.add(step=0, chunk=0, src=0, dst=[1, 2, 3], op=Op.COPY)
    >>> message_hops(builder.build()).tolist()
    [1, 2, 1]
    """
    first = schedule.message_starts
    src, dst, route = schedule.src[first], schedule.dst[first], schedule.route[first]
    hops = np.zeros(len(first), np.int64)
    hops[route >= 0] = np.diff(schedule.route_offsets)[route[route >= 0]]
    ranks = schedule.topology.ranks
    own = np.flatnonzero((route < 0) & (src != dst))
    pairs, which = np.unique(src[own].astype(np.int64) * ranks + dst[own], return_inverse=True)
    ends = ((pairs // ranks).astype(np.int32), (pairs % ranks).astype(np.int32))
    offsets, _ = schedule.topology.routes(*ends, max_work=max_work)
    hops[own] = np.diff(offsets)[which]
    return hops
