"""The 2D ring of the MultiTree paper: a baseline on 2D meshes and tori.

The buffer is cut into four flows, named after the direction in which each leaves a rank first: east and
west run along the rows first and the columns second, south and north the other way round. In each
dimension a flow does a whole ring all-reduce, reduce-scatter and all-gather. That keeps all four links of
a rank busy, but carries about twice the bytes that are needed: after the first dimension each rank of a
row holds the same sums, and each of them takes part in the second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.algorithms.common.blocks import Blocks
from weft.algorithms.common.grids import WAYS, add_rings, grid_axes
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "ring2d"
_INSTEAD: Final = "use ring or bucket"


def all_reduce(topology: Topology) -> Schedule:
    """Sum every rank's buffer at every rank, by a ring all-reduce along rows and one along columns.

    Parameters
    ----------
    topology
        A mesh or torus with two dimensions of two ranks or more; they need not be equal.

    Returns
    -------
    Schedule
        Four flows of a quarter each, cut so that both dimensions divide them.

    Raises
    ------
    UnsupportedError
        If the topology is not a two-dimensional grid.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4"))
    <Schedule ring2d all_reduce on torus:4x4: 16 chunks, 12 steps, 768 transfers>

    Notes
    -----
    Cost on a torus d x d: 4(d-1) steps; each link carries (d-1)/d of the buffer, about twice the optimum. On
    a mesh the hop that closes a ring goes back over the whole line, and each link carries 2(d-1)/d. A hop
    whose link failed takes the network's detour.

    References
    ----------
    .. [1] J. Huang et al., "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning",
       ISCA 2021; this is its baseline 2D-Ring.
    .. [2] C. Ying et al., "Image Classification at Supercomputer Scale", arXiv:1811.06992 (2018).
    """
    axes = grid_axes(topology, _NAME, _INSTEAD)
    if len(axes) != 2:
        raise UnsupportedError(_NAME, f"needs a grid of two dimensions, this one has {len(axes)}", _INSTEAD)
    columns, rows = axes
    pieces = math.lcm(columns.size, rows.size)
    flows = [(order, way) for order in ((rows, columns), (columns, rows)) for way in WAYS]
    per_axis = sum(2 * (axis.size - 1) * pieces // axis.size for axis in axes)
    limits.check(f"{_NAME}: transfers", len(flows) * topology.ranks * per_axis, limits.MAX_TRANSFERS)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=len(flows) * pieces)
    blocks = Blocks()
    for index, (order, way) in enumerate(flows):
        step = 0
        for axis in order:
            each = pieces // axis.size
            for op in (Op.REDUCE, Op.COPY):
                step = add_rings(
                    blocks, axis, way, op, step=step, first=index * pieces, stride=each, count=each
                )
    blocks.write(builder)
    return builder.build()
