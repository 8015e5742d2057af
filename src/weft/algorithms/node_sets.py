"""Sets of nodes whose borders may be what limits a collective, and how much their borders carry.

Each family is one natural way to cut a cluster: around a rank, around a host, along a grid, or where the
network is thinnest. A set may hold switches; capacities leaving and entering it are those of the best choice
of switches known, and any choice gives a valid bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from weft.topology import Topology

    Mask = NDArray[np.bool_]

_MOST_SLABS: Final = 512
"""Positions told apart along one dimension."""

_MOST_FLOWS: Final = 256
"""Minimum cuts looked for."""

_MOST_GROWTH: Final = 1 << 25
"""Groups times links up to which each group looks for switches to take in."""


@dataclass(frozen=True, eq=False)
class SetFamily:
    """Sets that each hold some ranks but not all.

    Parameters
    ----------
    kind
        What they are, such as ``one rank``.
    size
        Ranks in each.
    out, into
        Bytes per second that can leave and enter each; rounded, `capacity` is exact.
    has_root
        Whether the root is inside.
    show
        Name and nodes of a set; the flag says whether what leaves it counts, or what enters it.
    """

    kind: str
    size: NDArray[np.int64]
    out: NDArray[np.float64]
    into: NDArray[np.float64]
    has_root: Mask
    show: Callable[[int, bool], tuple[str, Mask]]


def border(topology: Topology, inside: Mask, *, outward: bool) -> NDArray[np.int64]:
    """Links that leave a set of nodes, or that enter it."""
    here, there = inside[topology.link_src], inside[topology.link_dst]
    return np.flatnonzero(here & ~there if outward else there & ~here)


def capacity(topology: Topology, links: NDArray[np.int64]) -> int:
    """Bytes per second of some links together, exactly."""
    return sum(topology.bandwidth[links].tolist())


def port_capacity(topology: Topology) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes per second that can leave and enter each node."""
    ends = (topology.link_src, topology.link_dst)
    out, into = (np.bincount(end, topology.bandwidth, topology.nodes).astype(np.float64) for end in ends)
    return out, into


def families(topology: Topology, root: int) -> Iterator[SetFamily]:
    """Every family that suits a topology."""
    yield _single_ranks(topology, root)
    if topology.groups:
        yield _groups(topology, root)
    if topology.grid is not None:
        for axis, size in enumerate(topology.grid.shape):
            if size > 1:
                yield _slabs(topology, root, axis)
    elif _may_be_thin(topology):
        yield _thinnest(topology, root)


def group_name(topology: Topology, index: int) -> str:
    """Call a group a host if it is one."""
    members = topology.groups[index]
    run = f"ranks {members[0]} to {members[-1]}" if len(members) > 1 else f"rank {members[0]}"
    return f"{'host' if topology.hosts else 'group'} {index} ({run})"


def group_masks(topology: Topology, *, outward: bool) -> list[Mask]:
    """Each group with the switches that make its border smallest, as far as moving one at a time finds."""
    member = _membership(topology)
    owned = _own_switches(topology, member)
    grows = len(topology.groups) * topology.links <= _MOST_GROWTH
    masks = []
    for index in range(len(topology.groups)):
        bare, full = member == index, owned == index
        if grows:
            full = _move_switches(topology, full, outward=outward)
        cuts = [capacity(topology, border(topology, mask, outward=outward)) for mask in (bare, full)]
        masks.append(full if cuts[1] < cuts[0] else bare)
    return masks


def _single_ranks(topology: Topology, root: int) -> SetFamily:
    out, into = port_capacity(topology)

    def show(index: int, _outward: bool) -> tuple[str, Mask]:
        return f"rank {index}", np.arange(topology.nodes) == index

    ranks = np.arange(topology.ranks)
    return SetFamily(
        "one rank", np.ones_like(ranks), out[: topology.ranks], into[: topology.ranks], ranks == root, show
    )


def _groups(topology: Topology, root: int) -> SetFamily:
    masks = {outward: group_masks(topology, outward=outward) for outward in (True, False)}
    out, into = (
        np.array(
            [capacity(topology, border(topology, mask, outward=outward)) for mask in masks[outward]], float
        )
        for outward in (True, False)
    )

    def show(index: int, outward: bool) -> tuple[str, Mask]:
        return group_name(topology, index), masks[outward][index]

    size = np.array([len(group) for group in topology.groups])
    has_root = np.array([root in group for group in topology.groups])
    return SetFamily("one host" if topology.hosts else "one group", size, out, into, has_root, show)


def _slabs(topology: Topology, root: int, axis: int) -> SetFamily:
    """All runs of positions along one dimension that do not wrap; those that do are their complements."""
    grid = topology.grid
    assert grid is not None
    size = grid.shape[axis]
    slabs = min(size, _MOST_SLABS)
    position = np.arange(topology.ranks) // int(np.prod(grid.shape[axis + 1 :])) % size
    slab = position * slabs // size
    first, after = np.triu_indices(slabs + 1, 1)
    proper = after - first < slabs
    first, after = first[proper], after[proper]
    flow = np.zeros((slabs + 1, slabs + 1))
    np.add.at(flow, (slab[topology.link_src] + 1, slab[topology.link_dst] + 1), topology.bandwidth)
    flow = flow.cumsum(axis=0).cumsum(axis=1)
    within = flow[after, after] - flow[first, after] - flow[after, first] + flow[first, first]
    count = np.concatenate([[0], np.cumsum(np.bincount(slab, minlength=slabs))])

    def show(index: int, _outward: bool) -> tuple[str, Mask]:
        inside = (slab >= first[index]) & (slab < after[index])
        low, high = int(position[inside].min()), int(position[inside].max())
        run = f"positions {low} to {high}" if high > low else f"position {low}"
        return f"{run} of dimension {axis}", inside

    return SetFamily(
        "one slab",
        count[after] - count[first],
        flow[after, -1] - flow[first, -1] - within,
        flow[-1, after] - flow[-1, first] - within,
        (slab[root] >= first) & (slab[root] < after),
        show,
    )


def _own_switches(topology: Topology, member: NDArray[np.int64]) -> NDArray[np.int64]:
    """Extend groups to the switches that only their own ranks hang on."""
    lowest = np.full(topology.nodes, topology.nodes)
    highest = np.full(topology.nodes, -1)
    for here, there in ((topology.link_src, topology.link_dst), (topology.link_dst, topology.link_src)):
        by_rank = here < topology.ranks
        np.minimum.at(lowest, there[by_rank], member[here[by_rank]])
        np.maximum.at(highest, there[by_rank], member[here[by_rank]])
    owned = np.where(lowest == highest, lowest, -1)
    owned[: topology.ranks] = member[: topology.ranks]
    return owned


def _move_switches(topology: Topology, inside: Mask, *, outward: bool) -> Mask:
    """Take switches in or out, one at a time, as long as that makes the border smaller."""
    ends = (topology.link_src, topology.link_dst)
    src, dst = ends if outward else ends[::-1]
    inside = inside.copy()
    for _ in range(2 * topology.switches):
        beyond = ~inside[dst]
        leaving = np.bincount(src[beyond], topology.bandwidth[beyond], topology.nodes)
        arriving = np.bincount(dst[inside[src]], topology.bandwidth[inside[src]], topology.nodes)
        gain = np.where(inside, leaving - arriving, arriving - leaving)[topology.ranks :]
        best = int(gain.argmax()) if len(gain) else 0
        if not len(gain) or gain[best] <= 0:
            break
        inside[topology.ranks + best] ^= True
    return inside


def _may_be_thin(topology: Topology) -> bool:
    """Whether minimum cuts may tell more than ranks and groups do, and are worth looking for.

    Not on one switch, nor on an even full mesh, nor where groups meet only at switches that join all of them:
    there the thinnest place is next to a rank or a group.
    """
    if not topology.groups:
        pairs = np.unique(topology.link_src.astype(np.int64) * topology.nodes + topology.link_dst)
        even = bool((topology.bandwidth == topology.bandwidth[0]).all())
        full_mesh = topology.direct and even and len(pairs) == topology.ranks * (topology.ranks - 1)
        wired_to_switch = (topology.link_src >= topology.ranks) | (topology.link_dst >= topology.ranks)
        return not full_mesh and not (topology.switches == 1 and bool(wired_to_switch.all()))
    member = _membership(topology)
    owned = _own_switches(topology, member)
    a, b = owned[topology.link_src], owned[topology.link_dst]
    up, down = (a >= 0) & (b < 0), (a < 0) & (b >= 0)
    if not bool((up | down | (a == b) & (a >= 0)).all()):
        return True
    core = int((owned < 0).sum())
    joined = [
        len(np.unique(group * topology.nodes + switch))
        for group, switch in ((a[up], topology.link_dst[up]), (b[down], topology.link_src[down]))
    ]
    return joined != [core * len(topology.groups)] * 2


def _membership(topology: Topology) -> NDArray[np.int64]:
    """Group of each rank, -1 for switches."""
    member = np.full(topology.nodes, -1)
    for index, group in enumerate(topology.groups):
        member[list(group)] = index
    return member


def _thinnest(topology: Topology, root: int) -> SetFamily:
    """Minimum cuts between the first group and each other one, both ways; without groups, between ranks."""
    ends = topology.groups or tuple((rank,) for rank in range(topology.ranks))
    others = np.linspace(1, len(ends) - 1, min(len(ends) - 1, _MOST_FLOWS // 2)).astype(int).tolist()
    masks: dict[bytes, Mask] = {}
    for other in others:
        for sources, sinks in ((ends[0], ends[other]), (ends[other], ends[0])):
            mask = _minimum_cut(topology, sources, sinks)
            masks.setdefault(mask.tobytes(), mask)
    cuts = list(masks.values())

    def show(index: int, _outward: bool) -> tuple[str, Mask]:
        ranks = np.flatnonzero(cuts[index][: topology.ranks])
        some = ", ".join(str(rank) for rank in ranks[:6].tolist())
        rest = f" and {len(ranks) - 6} more" if len(ranks) > 6 else ""
        return f"ranks {some}{rest}", cuts[index]

    out, into = (
        np.array([capacity(topology, border(topology, mask, outward=outward)) for mask in cuts], float)
        for outward in (True, False)
    )
    size = np.array([int(mask[: topology.ranks].sum()) for mask in cuts])
    return SetFamily("minimum cut", size, out, into, np.array([bool(mask[root]) for mask in cuts]), show)


def _minimum_cut(topology: Topology, sources: tuple[int, ...], sinks: tuple[int, ...]) -> Mask:
    """Nodes on the side of the sources of a smallest cut between two sets of ranks."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    number = np.arange(topology.nodes) + 2
    number[list(sources)], number[list(sinks)] = 0, 1
    src, dst = number[topology.link_src], number[topology.link_dst]
    # The solver counts in 32 bits. Where exact speeds do not fit, rounded ones find a nearly smallest cut.
    together = capacity(topology, np.arange(topology.links))
    unit = max(int(np.gcd.reduce(topology.bandwidth)), -(-together // (1 << 30)))
    speeds = np.maximum(topology.bandwidth // unit, 1)
    shape = (topology.nodes + 2, topology.nodes + 2)
    graph = csr_array((speeds.astype(np.int32), (src, dst)), shape=shape)
    graph.sum_duplicates()
    left = graph - maximum_flow(graph, 0, 1).flow
    left.eliminate_zeros()
    near = np.zeros(topology.nodes + 2, bool)
    near[breadth_first_order(left, 0, return_predecessors=False)] = True
    mask: Mask = near[number]
    return mask
