"""Two rings in opposite directions at once, each with its share of the buffer.

On full-duplex links the way back costs nothing, so two opposite rings take half the time of one. Shares are
equal where both directions are equally fast, and in proportion to speed where they are not.

References
----------
.. [1] E. Chan, M. Heimlich, A. Purkayastha and R. van de Geijn, "Collective communication: theory,
   practice, and experience", Concurrency Computat.: Pract. Exper. 19 (2007).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.common.ring_orders import link_seconds, places_behind, ring_order
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "bidirectional_ring"
_LARGEST_SHARE: Final = 1000


def all_reduce(topology: Topology) -> Schedule:
    """Sum every rank's buffer at every rank, over two opposite rings.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        Two chunks per rank, one for each ring; `weft.schedule.passes.halves` applies.

    Raises
    ------
    UnsupportedError
        If the way back needs detours that make two rings slower than one.
    LimitError
        Beyond 4,096 ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4"))
    <Schedule bidirectional_ring all_reduce on torus:4x4: 32 chunks, 30 steps, 960 transfers>

    Notes
    -----
    Cost: 2(N-1) steps; each link of the ring carries (N-1)/N of the buffer in either direction.
    """
    return _two_rings(topology, "all_reduce", (Op.REDUCE, Op.COPY))


def reduce_scatter(topology: Topology) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        Two chunks per rank, with prescribed ownership.

    Raises
    ------
    UnsupportedError
        If the way back needs detours that make two rings slower than one.
    LimitError
        Beyond 5,793 ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("ring:8")).steps
    7

    Notes
    -----
    Cost: N-1 steps; each link of the ring carries (N-1)/2N of the buffer in either direction.
    """
    return _two_rings(topology, "reduce_scatter", (Op.REDUCE,))


def all_gather(topology: Topology) -> Schedule:
    """Hand every rank's shard to every rank, one part either way round.

    Parameters, result and errors are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("ring:8@bw=20GB/s,back=10GB/s")).notes[-1]
    'shares of the two rings: 2/3 and 1/3'

    Notes
    -----
    Cost: N-1 steps; each link of the ring carries (N-1)/2N of the gathered buffer in either direction.
    """
    return _two_rings(topology, "all_gather", (Op.COPY,))


def _two_rings(topology: Topology, collective: str, rounds: tuple[Op, ...]) -> Schedule:
    ranks = topology.ranks
    limits.check(f"{_NAME}: transfers", 2 * len(rounds) * ranks * (ranks - 1), limits.MAX_TRANSFERS)
    order, note = ring_order(topology, duplex=True)
    ring = np.array(order, np.int32)
    share = _forward_share(topology, ring)
    # Chunks 2r and 2r+1 are rank r's, for the ring ahead and the ring back.
    weights = np.tile([share.numerator, share.denominator - share.numerator], ranks)
    builder = ScheduleBuilder(topology, collective, _NAME, chunks=2 * ranks, weights=weights)
    back = ring[::-1]
    place, place_back = np.argsort(ring).astype(np.int32), np.argsort(back).astype(np.int32)
    dst = np.stack([ring[(place + 1) % ranks], back[(place_back + 1) % ranks]], axis=1)
    lower = np.argsort(dst, axis=1, kind="stable")
    for index, op in enumerate(rounds):
        first = int(op == Op.REDUCE)
        ahead = 2 * ring[places_behind(place, first)]
        behind = 2 * back[places_behind(place_back, first)] + 1
        chunk = np.stack([ahead, behind], axis=2)
        builder.add(
            step=np.arange(index * (ranks - 1), (index + 1) * (ranks - 1))[:, None, None],
            chunk=np.take_along_axis(chunk, lower[None], axis=2),
            src=np.arange(ranks)[:, None],
            dst=np.take_along_axis(dst, lower, axis=1),
            op=op,
        )
    builder.note(note)
    if share != Fraction(1, 2):
        builder.note(f"shares of the two rings: {share} and {1 - share}")
    return builder.build()


def _forward_share(topology: Topology, ring: NDArray[np.int32]) -> Fraction:
    """Share of the ring ahead for which the two rings take equally long on their busiest links."""
    ahead, back = link_seconds(topology, ring), link_seconds(topology, ring[::-1])
    slow_ahead, slow_back = float(ahead.max()), float(back.max())
    share = Fraction(slow_back / (slow_ahead + slow_back)).limit_denominator(_LARGEST_SHARE)
    share = min(max(share, Fraction(1, _LARGEST_SHARE)), 1 - Fraction(1, _LARGEST_SHARE))
    together = float((float(share) * ahead + float(1 - share) * back).max())
    alone = float(link_seconds(topology, ring_order(topology)[0]).max())
    if together > alone * 1.000001:
        worse = f"the busiest link would be busy {together / alone:.2f}x as long as in one ring"
        raise UnsupportedError(_NAME, f"the way back takes detours, {worse}", "use ring")
    return share
