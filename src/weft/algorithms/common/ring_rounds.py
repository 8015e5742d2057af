"""One round of a ring: every chunk goes from rank to rank until all have seen it.

A chunk may be cut into parts that follow each other round the ring, each in a step of its own, so that a part
is on its way while the next one is still being summed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.ring_orders import places_behind
from weft.schedule import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.schedule import ScheduleBuilder


def add_ring_round(
    builder: ScheduleBuilder, order: Sequence[int], op: Op, *, step: int = 0, parts: int = 1, ahead: int = 0
) -> int:
    """Add a reduce-scatter or an all-gather along a ring.

    Parameters
    ----------
    builder
        Where the rows go. Chunks ``r * parts`` to ``r * parts + parts - 1`` are those of rank r.
    order
        In which the ring visits the ranks.
    op
        ``REDUCE``: each chunk is summed on its way to its owner. ``COPY``: it starts there.
    step
        First step.
    parts
        Chunks per rank.
    ahead
        A rank owns the chunks of the one so many places further on, which only an all-reduce may choose.

    Returns
    -------
    int
        The step after the last.
    """
    ranks = len(order)
    ring = np.array(order, np.int32)
    place = np.argsort(ring).astype(np.int32)
    # A chunk that is summed starts behind its owner and ends at it; one that is handed out starts there.
    owner = ring[places_behind(place, first=int(op == Op.REDUCE) - ahead)][:, None, :]
    part = np.arange(parts, dtype=np.int32)[None, :, None]
    hop = np.arange(ranks - 1, dtype=np.int32)[:, None, None]
    builder.add(
        step=step + hop * np.int32(parts) + part,
        chunk=owner if parts == 1 else owner * np.int32(parts) + part,
        src=np.arange(ranks),
        dst=ring[(place + 1) % ranks],
        op=op,
    )
    return step + (ranks - 1) * parts
