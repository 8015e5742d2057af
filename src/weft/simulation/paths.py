"""Which links every transfer of a schedule crosses, as the engine takes it.

The C++ half is `PathFinder` in ``cpp/simulation/simulator.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule


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
