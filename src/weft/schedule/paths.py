"""Which links every transfer of a schedule crosses, whether its route is explicit or the network's own.

The C++ half is `PathFinder` in ``cpp/simulation/simulator.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule.ir import Schedule


class Paths(NamedTuple):
    """Rows of links: first the schedule's own routes, then the network's for each pair that has none.

    The fields are named as the arguments of the C++ core that take them.
    """

    pair_src: NDArray[np.int32]
    pair_dst: NDArray[np.int32]
    explicit_routes: int
    path_offsets: NDArray[np.int64]
    path_links: NDArray[np.int32]


def find_paths(schedule: Schedule, max_work: float | None = None) -> Paths:
    """Look up the paths of a schedule on the topology it was made for.

    Raises
    ------
    LimitError
        If that would take more operations than `max_work`.
    """
    src, dst = _core.default_pairs(schedule.table, schedule.topology.ranks)
    offsets, links = schedule.topology.routes(src, dst, max_work=max_work)
    return Paths(
        src,
        dst,
        schedule.routes,
        np.concatenate([schedule.route_offsets, offsets[1:] + len(schedule.route_links)]),
        np.concatenate([schedule.route_links, links]),
    )


def locate_links(
    schedule: Schedule, paths: Paths, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the links of some transfers begin in `path_links`, and how many there are for each."""
    src, dst, route = schedule.src[rows], schedule.dst[rows], schedule.route[rows]
    pairs, pair = (
        a.astype(np.int64) * schedule.ranks + b for a, b in ((paths.pair_src, paths.pair_dst), (src, dst))
    )
    path = np.where(route >= 0, route, paths.explicit_routes + np.searchsorted(pairs, pair))
    lengths = np.append(np.diff(paths.path_offsets), 0)  # one more: a rank to itself may be behind all pairs
    return paths.path_offsets[path], np.where(src == dst, 0, lengths[path])


def count_crossings(schedule: Schedule, paths: Paths) -> int:
    """Links that all messages cross, each on its way.

    Examples
    --------
    >>> from weft.algorithms import ring
    >>> from weft.topology import load_topology
    >>> schedule = ring.all_gather(load_topology("switch:4"))
    >>> schedule.messages, count_crossings(schedule, find_paths(schedule))
    (12, 24)
    """
    _, _, crossings = _core.measure_load(
        table=schedule.table,
        ranks=schedule.ranks,
        chunk_bytes=np.ones(schedule.chunks, np.int64),
        segment_bytes=0,
        **paths._asdict(),
    )
    return int(crossings)


def message_hops(schedule: Schedule, max_work: float | None = None) -> NDArray[np.int64]:
    """Links on the way of each message.

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
    return locate_links(schedule, find_paths(schedule, max_work), schedule.message_starts)[1]
