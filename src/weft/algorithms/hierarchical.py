"""Inside each group, between the groups' leaders, inside each group again.

Only leaders talk across groups, so the narrow links between hosts carry as little as possible; groups may
differ in size. Where every rank has a network interface of its own, all but the leader's stay idle, and
`weft.algorithms.blueconnect` does better.

Inside a group data runs along a pipelined chain that ends at the leader: each member sends and receives the
buffer once. In a star the leader would receive it g - 1 times, in a binomial tree log2 g times; both are only
better when the buffer is so small that latency counts, and then groups are small as well.

All three collectives take a cluster with groups, of any sizes. The leader of a group is the member with the
most bandwidth, the first of equals; the root of a broadcast or reduce leads its group. `parts` are pieces of
the buffer that follow one another through the stages. All three raise `UnsupportedError` if the topology has
no groups, and `InputError` if an option makes no sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common import halving_rounds
from weft.algorithms.common.host_groups import (
    check_count,
    check_rows,
    leader_first,
    port_speeds,
    require_groups,
)
from weft.errors import check_choice, list_some
from weft.schedule import Op, ScheduleBuilder, passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "hierarchical"
_ACROSS = ("halving_doubling", "ring")
_INSTEAD = "use double_binary_tree or halving_doubling"
_MOST_PARTS = 512

VARIANTS = ({"parts": 1}, {"parts": 32}, {"across": "ring"})
"""Further options that `weft.plan` tries."""


def all_reduce(topology: Topology, *, across: str = "halving_doubling", parts: int = 8) -> Schedule:
    """Sum along each group's chain, all-reduce between leaders, send back along the chains.

    Parameters
    ----------
    topology, parts
        As the module says.
    across
        How leaders all-reduce: ``halving_doubling`` (default), or ``ring`` in the order of groups. Both send
        the same volume; halving-doubling needs 2 ceil(log2 G) steps instead of 2 (G - 1), a ring only ever
        talks to neighbours.

    Returns
    -------
    Schedule
        ``parts`` times the number of groups chunks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("hosts:4,2,1"))
    >>> schedule, schedule.notes
    (<Schedule hierarchical all_reduce on hosts:4,2,1: 24 chunks, 17 steps, 288 transfers>, ('leaders: 0, 4,
    6',))

    Notes
    -----
    Steps: 2 (g - 1) + 2 ceil(log2 G) + parts - 1 for G groups of at most g ranks. A leader sends and receives
    2 (G - 1)/G of the buffer across groups, and every link of a chain carries the buffer once in each
    direction.
    """
    check_choice(f"{_NAME}: across", across, _ACROSS)
    check_count(_NAME, "parts", parts)
    groups = require_groups(topology, _NAME, _INSTEAD)
    speeds = port_speeds(topology)
    chains = [leader_first(speeds, group) for group in groups]
    check_rows(_NAME, 2 * topology.ranks * parts * len(groups))
    leaders = np.array([chain[0] for chain in chains], np.int64)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=parts * len(groups))
    builder.note(_name_leaders(leaders.tolist()))
    longest = max(len(chain) for chain in chains) - 1
    every = np.arange(parts * len(groups)).reshape(parts, -1)
    for part, chunk in enumerate(every):
        step = longest + part
        if across == "ring":
            step = _add_ring(builder, leaders, chunk, step)
        else:
            shard = chunk[halving_rounds.contiguous_shards(len(groups), "nearest")]
            for op in (Op.REDUCE, Op.COPY):
                step = halving_rounds.add_half(builder, leaders, shard, op, order="nearest", step=step)
        _add_chains(builder, chains, chunk, up=part, down=step)
    return builder.build()


def broadcast(topology: Topology, *, root: int = 0, parts: int | None = None) -> Schedule:
    """Send along the chain of leaders, and from each along its group's chain.

    Parameters
    ----------
    topology
        As the module says.
    root
        Rank that has the buffer.
    parts
        The default is four times the longest way, at most 512, so that filling the pipeline takes about a
        quarter of the time.

    Returns
    -------
    Schedule
        ``parts`` chunks.

    Raises
    ------
    ScheduleError
        If `root` is not a rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broadcast(load_topology("hosts:4,2,1"), root=5, parts=10)
    <Schedule hierarchical broadcast on hosts:4,2,1: 10 chunks, 14 steps, 60 transfers>

    Notes
    -----
    Steps: parts - 1 and the longest way, at most (G - 1) + (g - 1) for G groups of at most g ranks. Every
    rank receives the buffer once; leaders send it up to twice, once across groups and once inside.
    """
    return _broadcast(topology, require_groups(topology, _NAME, _INSTEAD), root, parts)


def _broadcast(
    topology: Topology, groups: tuple[tuple[int, ...], ...], root: int, parts: int | None
) -> Schedule:
    """Broadcast within and between given groups, which may be those of the links' other direction."""
    first = next((index for index, group in enumerate(groups) if root in group), 0)
    speeds = port_speeds(topology)
    parent, depth = np.zeros((2, topology.ranks), np.int64)
    leaders: list[int] = []
    for place in range(len(groups)):
        group = groups[(first + place) % len(groups)]
        chain = leader_first(speeds, group, root if root in group else None)
        parent[chain[0]] = leaders[-1] if leaders else root
        parent[chain[1:]] = chain[:-1]
        depth[chain] = place + np.arange(len(chain))
        leaders.append(chain[0])
    count = min(4 * int(depth.max()), _MOST_PARTS) if parts is None else check_count(_NAME, "parts", parts)
    check_rows(_NAME, (topology.ranks - 1) * count)
    builder = ScheduleBuilder(topology, "broadcast", _NAME, chunks=count, root=root)
    builder.note(_name_leaders(leaders))
    chunk, ranks = np.arange(count), np.flatnonzero(depth)[:, None]
    # Down the tree of chains that starts at the root, one more chunk on its way in each step.
    step = depth[ranks] - 1 + chunk
    builder.add(step=step, chunk=chunk, src=parent[ranks], dst=ranks, op=Op.COPY)
    return builder.build()


def reduce(topology: Topology, *, root: int = 0, parts: int | None = None) -> Schedule:
    """Sum along each group's chain, and along the chain of leaders: `broadcast` backwards.

    Result and errors are those of `broadcast`.

    Parameters
    ----------
    topology, parts
        As in `broadcast`.
    root
        Rank that gets the sum.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce(load_topology("hosts:4,2,1"), root=5, parts=10)
    <Schedule hierarchical reduce on hosts:4,2,1: 10 chunks, 14 steps, 60 transfers>

    Notes
    -----
    Steps: parts - 1 and the longest way, at most (G - 1) + (g - 1) for G groups of at most g ranks. Every
    rank but the root sends the buffer once; leaders receive it up to twice.
    """
    # Of links that differ by direction, the other one may show no groups.
    groups = require_groups(topology, _NAME, _INSTEAD)
    return passes.reverse(_broadcast(topology.transpose(), groups, root, parts))


def _name_leaders(leaders: list[int]) -> str:
    return f"leaders: {list_some(map(str, leaders), 16)}"


def _add_chains(
    builder: ScheduleBuilder, chains: list[list[int]], chunk: NDArray[np.int64], *, up: int, down: int
) -> None:
    """One part of the buffer up and down every chain, from steps `up` and `down` on."""
    for chain in chains:
        members = np.array(chain, np.int64)[:, None]
        place = np.arange(1, len(chain))[:, None]
        builder.add(
            step=up + len(chain) - 1 - place, chunk=chunk, src=members[1:], dst=members[:-1], op=Op.REDUCE
        )
        builder.add(step=down + place - 1, chunk=chunk, src=members[:-1], dst=members[1:], op=Op.COPY)


def _add_ring(
    builder: ScheduleBuilder, leaders: NDArray[np.int64], chunk: NDArray[np.int64], step: int
) -> int:
    """Ring all-reduce between leaders, the i-th owning chunk i in between; gives the step after the last."""
    size = len(leaders)
    place, turn = np.arange(size), np.arange(size - 1)[:, None]
    for op in (Op.REDUCE, Op.COPY):
        mine = chunk[(place - turn - (op == Op.REDUCE)) % size]
        builder.add(step=step + turn, chunk=mine, src=leaders, dst=np.roll(leaders, -1), op=op)
        step += size - 1
    return step
