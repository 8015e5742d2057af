"""A schedule for hosts made into one for all the ranks on them.

Ranks of one host reach each other through memory, which nothing on the network is a match for. So the buffer
is cut into slices, one for each rank of the smallest host: inside each host the slices are summed at their
owners, the owners of a slice all-reduce it between the hosts by a schedule that was made for hosts, and
inside each host the owners hand the slices out. Every rank that owns one is at work on the network, and
nothing waits for a whole stage: what is ready goes on.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import InputError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import Schedule


def spread(across: Schedule, hosts: Sequence[Sequence[int]]) -> Schedule:
    """All-reduce of all ranks out of an all-reduce between their hosts.

    Parameters
    ----------
    across
        Its rank h stands for the h-th host.
    hosts
        The ranks of each host; together all ranks from 0 on.

    Returns
    -------
    Schedule
        On a full mesh of the ranks: between hosts the network finds its own way.

    Raises
    ------
    InputError
        If that is no all-reduce of so many hosts.

    Examples
    --------
    >>> from weft.algorithms import ring
    >>> from weft.topology import load_topology
    >>> spread(ring.all_reduce(load_topology("ring:2")), [[0, 1], [2, 3, 4]])
    <Schedule ring between hosts all_reduce on fullmesh:5: 4 chunks, 4 steps, 32 transfers>
    """
    ranks = sorted(chain.from_iterable(hosts))
    if across.collective != "all_reduce" or across.ranks != len(hosts) or ranks != list(range(len(ranks))):
        found = f"{across.algorithm}: {across.collective} of {across.ranks}"
        raise InputError(f"{found}, not an all_reduce of {len(hosts)} hosts")
    slices = min(len(host) for host in hosts)
    builder = ScheduleBuilder(
        f"fullmesh:{len(ranks)}",
        "all_reduce",
        f"{across.algorithm} between hosts",
        weights=np.tile(across.weights, slices),
    )
    chunks = np.arange(across.chunks)
    for host in hosts:
        for number, owner in enumerate(host[:slices]):
            others = np.array([rank for rank in host if rank != owner], np.int32)[:, None]
            mine = number * across.chunks + chunks
            builder.add(step=0, chunk=mine, src=others, dst=owner, op=Op.REDUCE)
            builder.add(step=across.steps + 1, chunk=mine, src=owner, dst=others, op=Op.COPY)
    for number in range(slices):
        owners = np.array([host[number] for host in hosts], np.int32)
        builder.add(
            step=across.step + 1,
            chunk=number * across.chunks + across.chunk,
            src=owners[across.src],
            dst=owners[across.dst],
            op=across.op,
            src_slot=0 if across.src_slot is None else across.src_slot,
            dst_slot=0 if across.dst_slot is None else across.dst_slot,
        )
    return builder.build()
