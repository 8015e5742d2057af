"""The hierarchical all-reduce of accelerators in packages: inside a package, between packages, inside.

The first axis of a torus joins the ranks of a package, by links much faster than those of the other axes. A
package first reduces its buffers so that each rank has a share; each share is then reduced along the second
axis, and along the third; and the package gathers the shares again: four phases on three axes. Every phase
is a pair of rings in opposite directions, so that all links of its axis are busy. A rank is in one phase at
a time with one buffer; with many small buffers one after the other, all axes are busy at once.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.blocks import Blocks
from weft.algorithms.common.grids import WAYS, Axis, add_rings, check_whole, grid_axes
from weft.algorithms.common.host_groups import check_rows
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "four_phase"
_INSTEAD: Final = "use bucket"


def all_reduce(topology: Topology) -> Schedule:
    """Sum every rank's buffer at every rank: inside packages, between them axis by axis, inside packages.

    Parameters
    ----------
    topology
        A torus of two axes or more with all its links; the first axis is that inside packages.

    Returns
    -------
    Schedule
        Each message is one run of chunks.

    Raises
    ------
    UnsupportedError
        If the topology is not such a torus.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4x4"))
    <Schedule four_phase all_reduce on torus:4x4x4: 32 chunks, 18 steps, 4608 transfers>

    Notes
    -----
    Cost: 2(L-1) + 2(V-1) + 2(H-1) steps on LxVxH. Each rank sends 2(L-1)/L + 2(V-1)/(VL) + 2(H-1)/(HL) of the
    buffer: more than the bound, but little of it over the slow links outside packages.

    References
    ----------
    .. [1] S. Rashidi et al., "Enabling compute-communication overlap in distributed deep learning training
       platforms", ISCA 2021.
    """
    axes = grid_axes(topology, _NAME, _INSTEAD)
    if len(axes) < 2:
        raise UnsupportedError(_NAME, f"needs two axes or more, {topology.name} has {len(axes)}", "use ring")
    if any(not axis.wrap and axis.size > 2 for axis in axes):
        raise UnsupportedError(_NAME, f"needs rings along every axis, {topology.name} has lines", _INSTEAD)
    channels = list(product(WAYS, range(check_whole(axes, _NAME, _INSTEAD))))
    inside, *outside = axes
    pieces = math.lcm(*(axis.size for axis in outside))
    apart = len(channels) * pieces
    check_rows(_NAME, sum(2 * (axis.size - 1) for axis in axes) * apart * topology.ranks)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=inside.size * apart)
    blocks = Blocks()
    between = [(axis, op) for axis in outside for op in (Op.REDUCE, Op.COPY)]
    for number, (way, lane) in enumerate(channels):
        start, step = np.full_like(inside.at, number * pieces), 0
        for axis, op in [(inside, Op.REDUCE), *between, (inside, Op.COPY)]:
            first, stride, count = start, apart, pieces
            if axis is not inside:
                first = start + inside.at * apart
                stride = count = pieces // axis.size
            route = _routes(builder, axis, way, lane)
            step = add_rings(
                blocks, axis, way, op, step=step, first=first, stride=stride, count=count, route=route
            )
    blocks.write(builder)
    return builder.build()


def _routes(builder: ScheduleBuilder, axis: Axis, way: int, lane: int) -> NDArray[np.int64]:
    """Route of each rank over one of the parallel links to the rank that follows it."""
    # An open axis of two ranks is one cable: each end has it on the one side only.
    rows = [row or other for row, other in zip(axis.links[way], axis.links[-way], strict=True)]
    return np.array([builder.route((row[lane],)) for row in rows], np.int64)
