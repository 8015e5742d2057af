"""Sets of nodes whose borders may be what limits a collective, and how much their borders carry.

Each family is one natural way to cut a cluster: around a rank, around a host, or along a grid; sets without a
name come from `weft.bounds.tight_cuts`. A set may hold switches; capacities leaving and entering it are those
of the best choice of switches known, and any choice gives a valid bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.errors import list_some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from weft.topology import Topology

    Mask = NDArray[np.bool_]

_MOST_SLABS: Final = 512
"""Positions told apart along one dimension."""

_MOST_NAMED: Final = 6
"""Ranks of a set that are spelled out."""

_KEPT_MASKS: Final = 4
"""Masks that are kept: several bounds ask for those of one topology, both ways."""

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


def cut_speeds(topology: Topology, masks: list[Mask], *, outward: bool) -> list[int]:
    """Bytes per second over the border of each set."""
    return [capacity(topology, border(topology, mask, outward=outward)) for mask in masks]


def name_links(topology: Topology, links: NDArray[np.int64]) -> str:
    """Name a few links, or count many, and say how fast they are together."""
    speed = units.human_bandwidth(capacity(topology, links))
    if len(links) > 2:
        return f"{len(links)} links ({speed} together)"
    names = " and ".join(topology.link_name(link) for link in links.tolist())
    return f"{names} ({speed}{' together' if len(links) > 1 else ''})"


def port_capacity(topology: Topology) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes per second that can leave and enter each node."""
    ends = (topology.link_src, topology.link_dst)
    out, into = (np.bincount(end, topology.bandwidth, topology.nodes).astype(np.float64) for end in ends)
    return out, into


def families(topology: Topology, root: int) -> Iterator[SetFamily]:
    """Every family of sets with a name that suits a topology."""
    yield _single_ranks(topology, root)
    if topology.groups:
        yield _groups(topology, root)
    if topology.grid is not None:
        for axis, size in enumerate(topology.grid.shape):
            if size > 1:
                yield _slabs(topology, root, axis)


def chosen(topology: Topology, root: int, kind: str, masks: list[Mask]) -> SetFamily:
    """Sets that somebody found, named by their ranks."""
    out, into = (cut_speeds(topology, masks, outward=outward) for outward in (True, False))

    def show(index: int, _outward: bool) -> tuple[str, Mask]:
        return name_ranks(masks[index][: topology.ranks]), masks[index]

    size = np.array([int(mask[: topology.ranks].sum()) for mask in masks])
    has_root = np.array([bool(mask[root]) for mask in masks])
    return SetFamily(kind, size, np.array(out, float), np.array(into, float), has_root, show)


def name_ranks(inside: Mask) -> str:
    """Name some of all ranks, or those that are missing if they are fewer.

    Examples
    --------
    >>> name_ranks(np.arange(16) < 3), name_ranks(np.arange(16) != 3)
    ('ranks 0, 1, 2', 'all but rank 3')
    """
    members, others = np.flatnonzero(inside).tolist(), np.flatnonzero(~inside).tolist()
    few = others if len(others) < len(members) else members
    some = list_some(map(str, few), _MOST_NAMED)
    return f"{'all but ' if few is others else ''}rank{'s' if len(few) > 1 else ''} {some}"


@lru_cache(_KEPT_MASKS)
def group_masks(topology: Topology, *, outward: bool) -> list[Mask]:
    """Each group with the switches that make its border smallest, as far as moving one at a time finds."""
    member = membership(topology)
    owned = own_switches(topology, member)
    grows = len(topology.groups) * topology.links <= _MOST_GROWTH
    masks = []
    for index in range(len(topology.groups)):
        bare, full = member == index, owned == index
        if grows:
            full = _move_switches(topology, full, outward=outward)
        cuts = cut_speeds(topology, [bare, full], outward=outward)
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
    out, into = (cut_speeds(topology, masks[outward], outward=outward) for outward in (True, False))

    # A group is a host where hosts divide the ranks, and not what hangs on one switch.
    kind = "host" if topology.groups == topology.hosts else "group"

    def show(index: int, outward: bool) -> tuple[str, Mask]:
        members = topology.groups[index]
        run = f"ranks {members[0]} to {members[-1]}" if len(members) > 1 else f"rank {members[0]}"
        return f"{kind} {index} ({run})", masks[outward][index]

    size = np.array([len(group) for group in topology.groups])
    has_root = np.array([root in group for group in topology.groups])
    return SetFamily(f"one {kind}", size, np.array(out, float), np.array(into, float), has_root, show)


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


def own_switches(topology: Topology, member: NDArray[Any]) -> NDArray[np.int64]:
    """Extend a division of the ranks to the switches that ranks of one part alone hang on; -1 for others."""
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


def membership(topology: Topology) -> NDArray[np.int64]:
    """Group of each rank, -1 for switches."""
    member = np.full(topology.nodes, -1)
    for index, group in enumerate(topology.groups):
        member[list(group)] = index
    return member
