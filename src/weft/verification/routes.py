"""Whether every route leads from its source to its destination.

An explicit route must be a chain of links that starts at the transfer's source and ends at its destination; a
move within one rank crosses no link. The network's own routes need no check: a `Topology` in which some rank
cannot reach another cannot be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.errors import VerificationError
from weft.schedule.ir import DEFAULT_ROUTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule

_NOWHERE = -1


def check_routes(schedule: Schedule) -> VerificationError | None:
    """Find the first transfer whose explicit route is broken or leads elsewhere."""
    rows = np.flatnonzero(schedule.route != DEFAULT_ROUTE)
    if not len(rows):
        return None
    begin, end, gap = _trace_routes(schedule)
    route, src, dst = schedule.route[rows], schedule.src[rows], schedule.dst[rows]
    local = src == dst
    astray = (begin[route] != src) | (end[route] != dst)
    bad = np.where(local, begin[route] != _NOWHERE, astray | (gap[route] != _NOWHERE))
    if not bad.any():
        return None
    row = int(rows[np.flatnonzero(bad)[0]])
    return _describe(schedule, row, begin, end, gap)


def _trace_routes(schedule: Schedule) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """First node, last node and first gap of each explicit route, -1 where there is none.

    A gap is the index, in `route_links`, of a link that does not begin where the one before it ends.
    """
    offsets, links = schedule.route_offsets, schedule.route_links
    filled = np.flatnonzero(np.diff(offsets) > 0)
    begin = np.full(schedule.routes, _NOWHERE, np.int32)
    end = np.full(schedule.routes, _NOWHERE, np.int32)
    gap = np.full(schedule.routes, _NOWHERE, np.int64)
    link_src, link_dst = schedule.topology.link_src[links], schedule.topology.link_dst[links]
    begin[filled] = link_src[offsets[filled]]
    end[filled] = link_dst[offsets[filled + 1] - 1]
    joints = np.flatnonzero(link_src[1:] != link_dst[:-1]) + 1
    owner = np.searchsorted(offsets, joints, side="right") - 1
    inside = joints > offsets[owner]
    # In reverse, so that the first gap of a route is the one that stays.
    gap[owner[inside][::-1]] = joints[inside][::-1]
    return begin, end, gap


def _describe(
    schedule: Schedule, row: int, begin: NDArray[np.int32], end: NDArray[np.int32], gap: NDArray[np.int64]
) -> VerificationError:
    topology = schedule.topology
    route, src, dst = int(schedule.route[row]), int(schedule.src[row]), int(schedule.dst[row])
    if src == dst:
        problem = f"route {route} crosses links, but the transfer stays at rank {src}"
    elif begin[route] == _NOWHERE:
        problem = f"route {route} is empty, but the transfer goes from rank {src} to rank {dst}"
    elif gap[route] != _NOWHERE:
        at = int(gap[route])
        before, after = (topology.link_name(int(schedule.route_links[i])) for i in (at - 1, at))
        problem = f"route {route} is broken: link {after} does not begin where {before} ends"
    else:
        ends = " to ".join(topology.node_name(int(node)) for node in (begin[route], end[route]))
        problem = f"route {route} leads from {ends}, but the transfer goes from {src} to {dst}"
    return VerificationError("route", problem, transfer=row, rank=src, chunk=int(schedule.chunk[row]))
