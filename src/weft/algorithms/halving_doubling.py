"""Rabenseifner's algorithm for any number of ranks: halve the data while the distance doubles, then back.

Few steps and optimal volume at once, so it is the usual choice for middling sizes on switched networks.
EFLOPS builds a network around its pattern. `weft.algorithms.common.halving_rounds` explains the rounds, and
what happens when the number of ranks is not a power of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.algorithms.common import halving_rounds
from weft.algorithms.common.host_groups import host_major
from weft.errors import InputError
from weft.schedule import ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "halving_doubling"

VARIANTS = ({"order": "nearest"}, {"order": "farthest"})
"""Further options that `weft.plan` tries."""


def all_reduce(topology: Topology, *, order: str = "nearest") -> Schedule:
    """Reduce-scatter by halving, then all-gather by doubling.

    Parameters
    ----------
    topology
        Any cluster. Ranks take part in host-major order, so that low distances stay inside hosts.
    order
        Whom the reduce-scatter meets first. ``nearest`` (default): distance 1 with half of the data, then 2
        with a quarter, as EFLOPS has it; the largest messages go the shortest way, which is better on rings,
        grids and hosts and no worse on a single switch. ``farthest``: the other way round.

    Returns
    -------
    Schedule
        One chunk per rank, numbered so that each rank sends one message per step (up to two when the number
        of ranks is not a power of two). `weft.schedule.halves` applies.

    Raises
    ------
    InputError
        If `order` is neither.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("hypercube:3"))
    >>> schedule, schedule.messages
    (<Schedule halving_doubling all_reduce on hypercube:3: 8 chunks, 6 steps, 112 transfers>, 48)
    >>> all_reduce(load_topology("switch:6")).steps
    6

    Notes
    -----
    Steps: 2 ceil(log2 N). Each rank sends and receives 2 (N - 1)/N of the buffer, for every N; on a hypercube
    a link of dimension s carries 2 * 2^-(s+1) of it, elsewhere routes overlap.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005.
    .. [2] J. Dong et al., "EFLOPS: Algorithm and system co-design for a high performance distributed training
       platform", HPCA 2020.
    .. [3] J. L. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.
    """
    return _by_halves(topology, "all_reduce", order)


def reduce_scatter(topology: Topology, *, order: str = "farthest") -> Schedule:
    """Leave rank r with the sum of the r-th shard, in halving steps.

    Parameters
    ----------
    topology
        Any cluster.
    order
        ``farthest`` (default) keeps what a step sends contiguous, so that it is one message (up to two when
        the number of ranks is not a power of two). ``nearest`` sends the large parts the short way, as one
        message per chunk: ownership is prescribed, so the chunks cannot be renumbered.

    Returns
    -------
    Schedule
        Ownership is prescribed.

    Raises
    ------
    InputError
        If `order` is neither.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("switch:6"))
    <Schedule halving_doubling reduce_scatter on switch:6: 6 chunks, 3 steps, 30 transfers>

    Notes
    -----
    Steps: ceil(log2 N). Each rank sends and receives (N - 1)/N of the buffer.

    References
    ----------
    .. [1] J. L. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.
    """
    return _by_halves(topology, "reduce_scatter", order)


def all_gather(topology: Topology, *, order: str = "farthest") -> Schedule:
    """Bring every rank's shard to all ranks, in doubling steps.

    Result, errors and cost are those of `reduce_scatter`.

    Parameters
    ----------
    topology
        Any cluster.
    order
        As in `reduce_scatter`, of which this is the exact reverse: the default ends with the farthest
        partner, and is one message per step.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:4x4"))
    <Schedule halving_doubling all_gather on torus:4x4: 16 chunks, 4 steps, 240 transfers>

    References
    ----------
    .. [1] J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
       systems", IEEE TPDS 8(11), 1997.
    """
    return _by_halves(topology, "all_gather", order)


def _by_halves(topology: Topology, collective: str, order: str) -> Schedule:
    if order not in halving_rounds.ORDERS:
        msg = f"{_NAME}: order={order!r} is unknown, expected {' or '.join(halving_rounds.ORDERS)}"
        raise InputError(msg)
    builder = ScheduleBuilder(topology, collective, _NAME)
    halving_rounds.add_collective(builder, host_major(topology), order)
    return builder.build()
