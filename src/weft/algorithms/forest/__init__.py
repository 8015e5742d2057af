"""Forest: many spanning trees that together fill every link, each with its place in a timetable.

Most all-reduces are a reduce-scatter followed by an all-gather with equal shards, and as slow as the rank
with the narrowest links. Here a chunk of the buffer climbs a tree, is summed on the way, and comes down
again, and any rank may be the root of as many trees as suits the network. Trees are grown one by one where
the others left room (`tree_columns`), so that all links carry the same; then all transfers are packed into
slots of time, and trees are changed where a free slot suggests another parent (`timetable`). What results is
within a few slots of the load of the busiest link, and that within a per cent of what linear programming
proves to be the limit (`packing`).

Compared with MultiTree, which grows trees slot by slot and never looks back, every tree and every slot is
reconsidered many times, from both ends of time.

References
----------
.. [1] J. Edmonds, "Edge-disjoint branchings", 1972.
.. [2] K. Y. Li, R. J. Willis, "An iterative scheduling technique for resource-constrained project
   scheduling", EJOR 56, 1992: passes forward and backward in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.forest.rotated import make_rotated
from weft.algorithms.forest.timetable import (
    Clock,
    Timetable,
    busiest_ticks,
    make_clock,
    make_schedule,
    make_timetable,
)
from weft.bounds.tree_columns import (
    DEPTH_PRICE,
    TREE_COLLECTIVES,
    find_centres,
    find_radius,
    grow_trees,
)
from weft.errors import InputError
from weft.schedule import ScheduleBuilder, passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bounds.tree_columns import TreeColumns
    from weft.schedule import Schedule
    from weft.topology import Topology

NAME: Final = "forest"

VARIANTS: Final = ({"size_bytes": 1 << 20},)
"""Further options that `weft.plan` tries: fewer trees and room for latency, for buffers of middling size."""

_TREES_PER_LINK: Final = 64
"""Trees by default for every link between the middle and the edge: then filling the pipeline, and emptying
it, takes little of the time."""

_TREES_PER_RANK: Final = 16
_ENOUGH: Final = 512
"""Trees by default for every rank, up to so many: enough to load uneven links evenly."""

_MOST: Final = 1024
_ROWS: Final = 1 << 19
"""Trees and transfers by default at most: what is made and simulated in a second or two."""

_FEWEST: Final = 512
_MOST_ROWS: Final = 1 << 20
"""Trees by default where `_ROWS` would allow few, unless their transfers are more than this."""

_CROWDED: Final = 3 * _ROWS
_FEWER_HOPS: Final = 4
_STEEP_DEPTH_PRICE: Final = 0.2
"""Links that all trees which would be wanted cross, on networks with switches, beyond which trees are few for
their depth. Then no more than so many links count for each transfer, and this price keeps trees shallow."""

_FEW_RANKS: Final = 128
_SLOW_RANKS: Final = 512
_SLOW_ROWS: Final = 1 << 21
_SLOW_DEPTH_PRICE: Final = 0.3
"""Ranks between which trees are many and shallow where switched links differ in speed, and their transfers at
most: a chunk takes long on slow links, and only smaller chunks fill the pipeline sooner."""

_ROTATED_RANKS: Final = 512
_ROTATED_UNEVEN_RANKS: Final = 32
"""Ranks beyond which trees are copied to all groups of ranks that are alike, and those where switched links
differ in speed."""

_SLACK: Final = 2
"""Links that a root may be farther from the middle of the network than need be."""

_FEWEST_PASSES: Final = 6
_MANY_HOPS: Final = 1 << 21
_PASSES_OF_MANY: Final = 2
"""Passes over the timetable at least, and over one of more hops than so many: the second gains most."""

_ROOM: Final = 4
_HARDLY_LONGER: Final = 1.04
_MOST_HOPS: Final = 1 << 17
"""Latency to leave room for, in transfers of a chunk; how much longer a timetable may get by that; and the
hops up to which it is tried."""

_FEWEST_CHUNKS: Final = 64
_LEAST_CHUNK_BYTES: Final = 4096
"""Chunks of a buffer whose size is known: no smaller than this, unless there would be few."""

_WORK: Final = 1 << 22
"""Hops of transfers that all passes over the timetable may look at together."""


def all_reduce(topology: Topology, *, trees: int | None = None, size_bytes: int | None = None) -> Schedule:
    """All-reduce: each chunk up a tree of its own and down again.

    Parameters
    ----------
    topology
        Any: direct, switched, mixed, uneven, asymmetric, with failed links.
    trees
        How many trees, with an equal share of the buffer each. More come nearer to the limit on large
        buffers; few suit small ones. By default what fills the pipeline of a gigabyte.
    size_bytes
        The buffer to make it for. It is right for every size, but below some MiB much faster for the one that
        it was made for, because then latencies have their place in the timetable.

    Returns
    -------
    Schedule
        With an explicit route for every transfer; a step is a tick of the timetable.

    Raises
    ------
    InputError
        If `trees` or `size_bytes` makes no sense.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("mesh:4x4"), trees=1024).notes
    ('1024 trees, 640 ticks of the busiest link, 650 in all',)

    Notes
    -----
    Cost: with T trees 2 (N - 1) T transfers; a link carries M/T bytes in each tick that it is used. On a
    mesh of 8x8 the busiest link carries 577 chunks of 1024, where equal shards load it with 1008. Building
    takes about 1 CPU s for 64 ranks, 2 to 5 for up to a thousand, and more on large fat-trees.
    """
    return _by_trees(topology, "all_reduce", 0, trees, size_bytes)


def broadcast(
    topology: Topology, *, root: int = 0, trees: int | None = None, size_bytes: int | None = None
) -> Schedule:
    """Broadcast: each chunk down a tree of its own from the root.

    Parameters
    ----------
    topology, trees, size_bytes
        As in `all_reduce`.
    root
        The rank that has the data.

    Returns
    -------
    Schedule
        With an explicit route for every transfer.

    Raises
    ------
    InputError
        If `trees`, `size_bytes` or `root` makes no sense.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broadcast(load_topology("torus:4x4"), trees=64).notes
    ('64 trees, 17 ticks of the busiest link, 26 in all',)

    Notes
    -----
    Cost: (N - 1) T transfers. As many trees can be packed as the smallest cut between the root and a rank is
    wide.
    """
    return _by_trees(topology, "broadcast", root, trees, size_bytes)


def reduce(
    topology: Topology, *, root: int = 0, trees: int | None = None, size_bytes: int | None = None
) -> Schedule:
    """Reduce: each chunk up a tree of its own to the root.

    Result and errors are those of `broadcast`.

    Parameters
    ----------
    topology, trees, size_bytes
        As in `all_reduce`.
    root
        The rank that needs the sum.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce(load_topology("torus:4x4"), root=5, trees=64).collective
    'reduce'

    Notes
    -----
    Cost: as `broadcast`.
    """
    return _by_trees(topology, "reduce", root, trees, size_bytes)


def all_gather(
    topology: Topology, *, trees_per_root: int | None = None, size_bytes: int | None = None
) -> Schedule:
    """All-gather: rank r's shard down trees rooted at r.

    Parameters
    ----------
    topology, size_bytes
        As in `all_reduce`.
    trees_per_root
        Parts with a tree each into which a shard is cut.

    Returns
    -------
    Schedule
        With prescribed ownership and an explicit route for every transfer.

    Raises
    ------
    InputError
        If `trees_per_root` or `size_bytes` makes no sense.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:4x4"), trees_per_root=4).notes
    ('64 trees, 15 ticks of the busiest link, 18 in all',)

    Notes
    -----
    Cost: N (N - 1) transfers for each tree of a root.
    """
    each = trees_per_root
    if each is None:
        wanted = _tree_count(topology, 1, None, size_bytes) // topology.ranks
        each = min(max(1, wanted), limits.MAX_TREES_PER_ROOT)
    if not 1 <= each <= limits.MAX_TREES_PER_ROOT:
        raise InputError(f"{NAME}: trees_per_root is {each}, expected 1..{limits.MAX_TREES_PER_ROOT}")
    owner = np.repeat(np.arange(topology.ranks, dtype=np.int32), each)
    builder = ScheduleBuilder(topology, "all_gather", NAME, chunks=len(owner))
    return _schedule(builder, owner, (False, True), size_bytes)


def reduce_scatter(
    topology: Topology, *, trees_per_root: int | None = None, size_bytes: int | None = None
) -> Schedule:
    """Reduce-scatter: `all_gather` on the transposed topology, run backwards.

    Result and errors are those of `all_gather`.

    Parameters
    ----------
    topology, trees_per_root, size_bytes
        As in `all_gather`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("torus:4x4"), trees_per_root=4).ownership
    'prescribed'

    Notes
    -----
    Cost: as `all_gather`.
    """
    gather = all_gather(topology.transpose(), trees_per_root=trees_per_root, size_bytes=size_bytes)
    return passes.reverse(gather)


def _by_trees(
    topology: Topology, collective: str, root: int, trees: int | None, size_bytes: int | None
) -> Schedule:
    topology.check_root(root)
    roots = find_centres(topology, _SLACK) if collective == "all_reduce" else np.array([root], np.int32)
    halves = TREE_COLLECTIVES[collective]
    count = _tree_count(topology, sum(halves), trees, size_bytes)
    if collective == "all_reduce" and trees is None:
        most = _rotated_trees(topology, size_bytes)
        rotated = make_rotated(topology, roots, most, size_bytes) if most else None
        if rotated is not None:
            builder = ScheduleBuilder(topology, collective, NAME, chunks=len(rotated[0].trees))
            return _write(builder, *rotated)
    builder = ScheduleBuilder(topology, collective, NAME, chunks=count, root=root)
    return _schedule(builder, roots, halves, size_bytes)


def _rotated_trees(topology: Topology, size_bytes: int | None) -> int:
    """Trees at most, copies for all other ranks included; 0 where each tree is better grown by itself.

    Many trees over switches take long to grow, and slow links long to fill with chunks one after the other.
    """
    uneven = int(topology.bandwidth.min()) < int(topology.bandwidth.max())
    if topology.direct or topology.ranks <= (_ROTATED_UNEVEN_RANKS if uneven else _ROTATED_RANKS):
        return 0
    cheap = min(_useful(size_bytes), _SLOW_ROWS // (2 * (topology.ranks - 1)))
    return cheap if topology.ranks <= cheap else 0


def _tree_count(topology: Topology, halves: int, trees: int | None, size_bytes: int | None) -> int:
    edges = halves * (topology.ranks - 1)
    most = min(limits.MAX_CHUNKS, limits.MAX_TRANSFERS // edges)
    if trees is not None and not 1 <= trees <= most:
        raise InputError(f"{NAME}: trees is {trees}, expected 1..{most}")
    if size_bytes is not None and size_bytes < 1:
        raise InputError(f"{NAME}: size_bytes is {size_bytes}, expected at least 1")
    if trees is not None:
        return trees
    wanted, hops = _wanted(topology)
    rows = _ROWS
    if _has_slow_links(topology):
        wanted, hops, rows = _MOST, min(hops, _FEWER_HOPS), _SLOW_ROWS
    elif _is_crowded(topology, halves):
        hops = min(hops, _FEWER_HOPS)
    cheap = max(rows // (edges * hops), min(_FEWEST // hops, _MOST_ROWS // (edges * hops)), 1)
    return min(wanted, cheap, _useful(size_bytes))


def _useful(size_bytes: int | None) -> int:
    """Trees at most, so that a chunk of a buffer whose size is known is not too small."""
    return _MOST if size_bytes is None else min(_MOST, max(_FEWEST_CHUNKS, size_bytes // _LEAST_CHUNK_BYTES))


def _wanted(topology: Topology) -> tuple[int, int]:
    """Trees that fill the pipeline of a gigabyte, and how many links a transfer counts for."""
    radius = find_radius(topology)
    trees = max(_TREES_PER_LINK * radius, min(_ENOUGH, _TREES_PER_RANK * topology.ranks))
    # A transfer through switches costs as many times more as it crosses links.
    return trees, 1 if topology.direct else max(2, radius)


def _is_crowded(topology: Topology, halves: int) -> bool:
    """Whether a switched network is so large that there can be only few of the trees that would be wanted."""
    trees, hops = _wanted(topology)
    return not topology.direct and trees * hops * halves * (topology.ranks - 1) > _CROWDED


def _has_slow_links(topology: Topology) -> bool:
    """Whether a switched network has links of several speeds, such as boxes of GPUs behind their NICs."""
    uneven = int(topology.bandwidth.min()) < int(topology.bandwidth.max())
    return not topology.direct and uneven and _FEW_RANKS < topology.ranks <= _SLOW_RANKS


def _schedule(
    builder: ScheduleBuilder, roots: NDArray[np.int32], halves: tuple[bool, bool], size_bytes: int | None
) -> Schedule:
    topology = builder.topology
    sweeps = 6 if topology.ranks <= 64 else int(topology.direct)
    depth_price = DEPTH_PRICE
    if _has_slow_links(topology):
        depth_price = _SLOW_DEPTH_PRICE
    elif _is_crowded(topology, sum(halves)):
        depth_price = _STEEP_DEPTH_PRICE
    grown, _ = grow_trees(topology, roots, halves, builder.chunks, sweeps, depth_price)
    timetable = _fit(topology, grown, size_bytes)
    return _write(builder, timetable, busiest_ticks(topology, timetable.trees, make_clock(topology)))


def _write(builder: ScheduleBuilder, timetable: Timetable, busiest: int) -> Schedule:
    trees = len(timetable.trees)
    builder.note(f"{trees} trees, {busiest} ticks of the busiest link, {timetable.ticks} in all")
    return make_schedule(builder, timetable)


def _fit(topology: Topology, grown: TreeColumns, size_bytes: int | None) -> Timetable:
    """Timetable for a size, or else for any: with room for latency, if that makes it hardly longer."""
    hops = int(grown.count_links(topology.links).sum())
    rounds = max(_FEWEST_PASSES if hops <= _MANY_HOPS else _PASSES_OF_MANY, _WORK // hops)
    chunk_bytes = None if size_bytes is None else size_bytes / len(grown)
    clock = make_clock(topology, chunk_bytes)
    tight = make_timetable(topology, grown, clock, passes=rounds)
    if chunk_bytes is not None or hops > _MOST_HOPS:
        return tight
    relaxed = make_timetable(topology, grown, Clock(clock.duration, clock.latency * _ROOM), passes=rounds)
    return relaxed if relaxed.ticks <= tight.ticks * _HARDLY_LONGER else tight
