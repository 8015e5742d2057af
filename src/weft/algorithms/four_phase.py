"""The hierarchical all-reduce of accelerators in packages: inside a package, between packages, inside.

The first axis of a torus joins the ranks of a package, by links much faster than those of the other axes. A
package first reduces its buffers so that each rank has a share; each share is then reduced along the second
axis, and along the third; and the package gathers the shares again: four phases on three axes. Every phase
is a pair of rings in opposite directions, so that all links of its axis are busy. A rank is in one phase at
a time with one buffer; with many small buffers one after the other, all axes are busy at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.common.blocks import Blocks
from weft.algorithms.common.grids import (
    WAYS,
    Axis,
    check_whole,
    grid_axes,
)
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
    lanes = check_whole(axes, _NAME, _INSTEAD)
    inside, outside = axes[0], axes[1:]
    channels = [(way, lane) for way in WAYS for lane in range(lanes)]
    pieces = math.lcm(*(axis.size for axis in outside))
    shares = inside.size * len(channels)
    longest = sum(2 * (axis.size - 1) for axis in axes) * len(channels) * pieces * topology.ranks
    limits.check(f"{_NAME}: transfers", longest, limits.MAX_TRANSFERS)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=shares * pieces)
    blocks = Blocks()
    for number, (way, lane) in enumerate(channels):
        first = number * pieces
        mine = first + inside.at * (len(channels) * pieces)
        package = _Ring(builder, blocks, inside, way, lane)
        step = package.go_round(0, Op.REDUCE, np.full_like(mine, first), len(channels) * pieces, pieces)
        for axis in outside:
            ring = _Ring(builder, blocks, axis, way, lane)
            for op in (Op.REDUCE, Op.COPY):
                step = ring.go_round(step, op, mine, pieces // axis.size, pieces // axis.size)
        package.go_round(step, Op.COPY, np.full_like(mine, first), len(channels) * pieces, pieces)
    blocks.write(builder)
    return builder.build()


class _Ring:
    """All rings along one axis, one way round, over one of its parallel links."""

    def __init__(self, builder: ScheduleBuilder, blocks: Blocks, axis: Axis, way: int, lane: int) -> None:
        # An open axis of two ranks is one cable: each end has it on the one side only.
        sides = zip(axis.links[way], axis.links[-way], strict=True)
        rows = [row or other for row, other in sides]
        self._blocks, self._axis, self._way = blocks, axis, way
        self._dst = axis.onward[way]
        self._route = np.array([builder.route((row[lane],)) for row in rows], np.int64)

    def go_round(self, step: int, op: Op, base: NDArray[np.int64], stride: int, count: int) -> int:
        """Reduce-scatter or all-gather blocks of `count` chunks, `stride` apart; returns the step after.

        In a reduce-scatter a rank ends with the block of its own place, and in an all-gather begins with it.
        """
        axis = self._axis
        behind = 1 if op == Op.REDUCE else 0
        for turn in range(axis.size - 1):
            place = (axis.at - self._way * (turn + behind)) % axis.size
            self._blocks.add(
                step=step + turn,
                src=np.arange(len(axis.at)),
                dst=self._dst,
                op=op,
                first=base + place * stride,
                count=count,
                route=self._route,
            )
        return step + axis.size - 1
