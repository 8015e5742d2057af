"""Whole buffers to partners ever further away: the fewest steps there can be, at log2 N times the volume.

For small buffers, where a step costs more than its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.algorithms.common import halving_rounds
from weft.algorithms.common.folded_rounds import add_recursive_doubling
from weft.algorithms.common.host_groups import host_major
from weft.schedule import ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "recursive_doubling"


def all_reduce(topology: Topology) -> Schedule:
    """Exchange the whole buffer with rank r XOR 2^s in step s.

    With N no power of two, p the largest one below and x = N - p, the first 2x ranks pair up: the even one
    hands its buffer to the odd one before the exchange and gets the result after it.

    Parameters
    ----------
    topology
        Any cluster. Ranks take part in host-major order, so that low distances stay inside hosts.

    Returns
    -------
    Schedule
        A single chunk. A rank sends its chunk in the very step that adds to it: an executor must send the
        value from before the step.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("switch:8"))
    <Schedule recursive_doubling all_reduce on switch:8: 1 chunks, 3 steps, 24 transfers>
    >>> all_reduce(load_topology("switch:6")).steps
    4

    Notes
    -----
    Steps: log2 N for a power of two, else floor(log2 N) + 2. Each rank sends and receives the whole buffer
    once per step; a link of a hypercube carries it once.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005.
    """
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=1)
    add_recursive_doubling(builder, host_major(topology))
    return builder.build()


def all_gather(topology: Topology) -> Schedule:
    """Exchange everything gathered so far, with partners at distance 1, 2, 4 ..

    Parameters
    ----------
    topology
        Any cluster. Ranks take part in host-major order.

    Returns
    -------
    Schedule
        Ownership is prescribed.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("switch:8"))
    <Schedule recursive_doubling all_gather on switch:8: 8 chunks, 3 steps, 56 transfers>

    Notes
    -----
    Steps: ceil(log2 N) for any N: where N is no power of two, the last steps follow Bruck's circulant
    pattern, see `weft.algorithms.common.halving_rounds`. Each rank sends and receives (N - 1)/N of the
    buffer, in one message per step, or two. The pattern is the second half of
    `weft.algorithms.halving_doubling`.

    References
    ----------
    .. [1] J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
       systems", IEEE TPDS 8(11), 1997.
    """
    builder = ScheduleBuilder(topology, "all_gather", _NAME)
    halving_rounds.add_collective(builder, host_major(topology), "farthest")
    return builder.build()
