"""The links of a mesh or torus, by axis and direction.

Grid algorithms speak of "the link ahead along axis 1". Here that becomes a link number, with parallel
cables kept apart as lanes, and the two cables of a wrapped axis of size two told apart as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import UnsupportedError
from weft.schedule import Op
from weft.schedule.ir import DEFAULT_ROUTE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from weft.algorithms.common.blocks import Blocks
    from weft.topology import Topology

AHEAD: Final = 1
BACK: Final = -1
WAYS: Final = (AHEAD, BACK)


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension of two ranks or more.

    Parameters
    ----------
    size, stride, wrap
        Ranks along it, the difference of two neighbours' numbers, and whether it closes.
    at
        Coordinate of each rank.
    onward
        For each way, the next rank along the axis, as if it closed.
    following
        The same, but -1 at the end of a line.
    links
        For each way and rank, the parallel links to that neighbour; none where there is no neighbour, or
        where they failed.
    """

    size: int
    stride: int
    wrap: bool
    at: NDArray[np.int64]
    onward: dict[int, NDArray[np.int64]]
    following: dict[int, NDArray[np.int64]]
    links: dict[int, list[tuple[int, ...]]]

    def lane(self, way: int, lane: int) -> NDArray[np.int64]:
        """Link of each rank to its neighbour; -1 where there is none."""
        return np.array([row[lane] if row else -1 for row in self.links[way]], np.int64)


def grid_axes(topology: Topology, algorithm: str, instead: str) -> list[Axis]:
    """Axes of a grid that have two ranks or more.

    Parameters
    ----------
    topology
        The cluster.
    algorithm, instead
        For the error message.

    Raises
    ------
    UnsupportedError
        If it is not a grid.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> rows, columns = grid_axes(load_topology("mesh:3x1x2"), "bucket", "use ring")
    >>> rows.size, columns.following[AHEAD].tolist()
    (3, [1, -1, 3, -1, 5, -1])
    """
    grid = topology.grid
    if grid is None:
        why = "a rank of this one failed" if topology.rank_labels else f"{topology.name} is none"
        raise UnsupportedError(algorithm, f"needs a mesh or torus, and {why}", instead)
    stride = topology.ranks
    axes = []
    for size, wrap in zip(grid.shape, grid.wrap, strict=True):
        stride //= size
        if size > 1:
            axes.append(_axis(topology, size, wrap, stride))
    return axes


def check_whole(axes: list[Axis], algorithm: str, instead: str) -> int:
    """Return how many parallel links every two neighbours have at least.

    Raises
    ------
    UnsupportedError
        If two neighbours have none.
    """
    lanes = []
    for axis in axes:
        for way in WAYS:
            for rank, (other, row) in enumerate(
                zip(axis.following[way].tolist(), axis.links[way], strict=True)
            ):
                if other >= 0 and not row:
                    raise UnsupportedError(algorithm, f"the grid has lost its link {rank}->{other}", instead)
            lanes += [len(row) for row in axis.links[way] if row]
    return min(lanes)


def add_rings(
    blocks: Blocks,
    axis: Axis,
    way: int,
    op: Op,
    *,
    step: int,
    first: NDArray[np.int64] | int,
    stride: int,
    count: int,
    route: ArrayLike = DEFAULT_ROUTE,
) -> int:
    """Add a ring along every line of an axis: a reduce-scatter or an all-gather of one block per place.

    Parameters
    ----------
    blocks
        Where the messages go.
    axis, way
        The lines, and which way round.
    op
        ``REDUCE`` leaves each rank with the block of its own place; with ``COPY`` it begins with that.
    step
        First step.
    first, stride, count
        First chunk of the block of place 0, how far blocks are apart, and the chunks of each.
    route
        Of each rank to the one that follows it.

    Returns
    -------
    int
        The step after the last.
    """
    turn = np.arange(axis.size - 1)[:, None]
    place = (axis.at - way * (turn + (op == Op.REDUCE))) % axis.size
    blocks.add(
        step=step + turn,
        src=np.arange(len(axis.at)),
        dst=axis.onward[way],
        op=op,
        first=first + place * stride,
        count=count,
        route=route,
    )
    return step + axis.size - 1


def _axis(topology: Topology, size: int, wrap: bool, stride: int) -> Axis:
    ranks = np.arange(topology.ranks)
    at = ranks // stride % size
    onward, following, links = {}, {}, {}
    for way in WAYS:
        inside = wrap | ((at + way >= 0) & (at + way < size))
        onward[way] = ranks + ((at + way) % size - at) * stride
        following[way] = np.where(inside, onward[way], -1)
        ends = zip(ranks.tolist(), following[way].tolist(), strict=True)
        links[way] = [topology.links_between(rank, other) if other >= 0 else () for rank, other in ends]
        if wrap and size == 2:
            # Two cables join the same two ranks; the one that the lower rank drew ahead comes first.
            own = [(way == AHEAD) == (here == 0) for here in at.tolist()]
            pairs = zip(links[way], own, strict=True)
            links[way] = [
                row[: -(-len(row) // 2)] if first else row[-(-len(row) // 2) :] for row, first in pairs
            ]
    return Axis(size, stride, wrap, at, onward, following, links)
