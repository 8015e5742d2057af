"""All-gathers of MPI libraries that are neither a ring nor recursive doubling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.schedule import Op

if TYPE_CHECKING:
    from weft.schedule import ScheduleBuilder


def add_bruck(builder: ScheduleBuilder, ranks: int) -> None:
    """Add Bruck's all-gather: all that a rank has, to the rank 1, then 2, then 4 below it.

    Parameters
    ----------
    builder
        Where the rows go; chunk r belongs to rank r.
    ranks
        Any number of them. The last step sends only what is missing.

    References
    ----------
    .. [1] J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
       systems", IEEE TPDS 8(11), 1997.
    """
    here = np.arange(ranks)[:, None]
    for step in range((ranks - 1).bit_length()):
        distance = 1 << step
        held = np.arange(min(distance, ranks - distance))
        chunk = (here + held) % ranks
        builder.add(step=step, chunk=chunk, src=here, dst=(here - distance) % ranks, op=Op.COPY)


def add_neighbour_exchange(builder: ScheduleBuilder, ranks: int) -> None:
    """Add an all-gather in which every rank talks to its two neighbours in turn, two shards at a time.

    Parameters
    ----------
    builder
        Where the rows go; chunk r belongs to rank r.
    ranks
        An even number of them.

    References
    ----------
    .. [1] J. Chen, L. Zhang, Y. Zhang, W. Yuan, "Performance evaluation of allgather algorithms on terascale
       Linux cluster with fast Ethernet", HPC Asia 2005.
    """
    here = np.arange(ranks)
    up = np.where(here % 2, -1, 1)
    partners = ((here + up) % ranks, (here - up) % ranks)
    builder.add(step=0, chunk=here, src=here, dst=partners[0], op=Op.COPY)
    pair = here // 2
    for step in range(1, ranks // 2):
        partner = partners[step % 2]
        chunk = 2 * pair[:, None] + np.arange(2)
        builder.add(step=step, chunk=chunk, src=here[:, None], dst=partner[:, None], op=Op.COPY)
        pair = pair[partner]
