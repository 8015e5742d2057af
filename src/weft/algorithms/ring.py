"""The ring: every rank sends to the next, and only to the next.

Chunk r belongs to rank r; the ring follows `weft.algorithms.common.ring_orders.ring_order`. While a chunk
travels once round the ring it is summed, and while it travels round once more the sum is handed out.
Broadcast and reduce use the same ring as a chain that starts or ends at the root, with chunks following each
other along it.

References
----------
.. [1] P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
   J. Parallel Distrib. Comput. 69 (2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.common.ring_orders import ring_order
from weft.algorithms.common.ring_rounds import add_ring_round
from weft.errors import InputError
from weft.schedule import Op, ScheduleBuilder, passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

_CHAIN_ROWS: Final = 1 << 22
"""Transfers of a chain beyond which it is cut into fewer chunks than there are ranks."""


def all_reduce(topology: Topology, *, order: Sequence[int] | None = None) -> Schedule:
    """Sum every rank's buffer at every rank, once round the ring and once more.

    Parameters
    ----------
    topology
        Any cluster.
    order
        In which the ring visits the ranks; by default a good one is looked for.

    Returns
    -------
    Schedule
        One chunk per rank, each summed at its owner halfway: `weft.schedule.passes.halves` applies.

    Raises
    ------
    LimitError
        Beyond 5,793 ranks: the table of transfers grows with the square of the ranks.
    InputError
        If the order is not one of all ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4"))
    <Schedule ring all_reduce on torus:4x4: 16 chunks, 30 steps, 480 transfers>

    Notes
    -----
    Cost: 2(N-1) steps; each link of the ring carries 2(N-1)/N of the buffer, which is the least for N ranks
    with one link each.
    """
    if order is not None and sorted(order) != list(range(topology.ranks)):
        raise InputError(f"ring: an order names each of the ranks 0..{topology.ranks - 1} once")
    return _ring(topology, "all_reduce", (Op.REDUCE, Op.COPY), order)


def reduce_scatter(topology: Topology) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        One chunk per rank, with prescribed ownership.

    Raises
    ------
    LimitError
        Beyond 8,192 ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("fattree:16")).steps
    15

    Notes
    -----
    Cost: N-1 steps; each link of the ring carries (N-1)/N of the buffer.
    """
    return _ring(topology, "reduce_scatter", (Op.REDUCE,))


def all_gather(topology: Topology) -> Schedule:
    """Hand every rank's shard to every rank.

    Parameters, result and errors are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("fullmesh:5")).steps
    4

    Notes
    -----
    Cost: N-1 steps; each link of the ring carries (N-1)/N of the gathered buffer.
    """
    return _ring(topology, "all_gather", (Op.COPY,))


def broadcast(topology: Topology, *, root: int = 0) -> Schedule:
    """Copy the root's buffer to every rank, in chunks along a chain that starts at the root.

    Parameters
    ----------
    topology
        Any cluster.
    root
        Where the buffer is.

    Returns
    -------
    Schedule
        As many chunks as ranks (fewer beyond 2,000 ranks), so that the chain is a pipeline without any
        segments.

    Raises
    ------
    ScheduleError
        If the root is not a rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broadcast(load_topology("ring:4"), root=2)
    <Schedule ring broadcast on ring:4: 4 chunks, 6 steps, 12 transfers>

    Notes
    -----
    Cost: C+N-2 steps for C chunks; each link of the chain carries the buffer once.
    """
    ranks = topology.ranks
    chunks = max(1, min(ranks, _CHAIN_ROWS // ranks))
    builder = ScheduleBuilder(topology, "broadcast", "ring", chunks=chunks, root=root)
    order, note = ring_order(topology)
    chain = np.roll(np.array(order, np.int32), -order.index(root))
    hop = np.argsort(chain)
    # The last of the chain sends nothing: its hop would only ever carry chunks that are not there.
    hop[chain[-1]] = ranks + chunks
    chunk = np.arange(ranks + chunks - 2)[:, None] - hop
    step, src = np.nonzero((chunk >= 0) & (chunk < chunks))
    dst = chain[(hop[src] + 1) % ranks]
    builder.add(step=step, chunk=chunk[step, src], src=src, dst=dst, op=Op.COPY)
    builder.note(note)
    return builder.build()


def reduce(topology: Topology, *, root: int = 0) -> Schedule:
    """Sum every rank's buffer at the root, in chunks along a chain that ends there.

    Errors and cost are those of `broadcast`.

    Parameters
    ----------
    topology
        Any cluster.
    root
        Where the sum goes.

    Returns
    -------
    Schedule
        Chunks as in `broadcast`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce(load_topology("hosts:3,2"), root=1).steps
    8
    """
    return passes.reverse(broadcast(topology.transpose(), root=root))


def _ring(
    topology: Topology, collective: str, rounds: tuple[Op, ...], given: Sequence[int] | None = None
) -> Schedule:
    ranks = topology.ranks
    limits.check("ring: transfers", len(rounds) * ranks * (ranks - 1), limits.MAX_TRANSFERS)
    builder = ScheduleBuilder(topology, collective, "ring")
    order, note = ring_order(topology) if given is None else (list(given), "ring order: as asked for")
    step = 0
    for op in rounds:
        step = add_ring_round(builder, order, op, step=step)
    builder.note(note)
    return builder.build()
