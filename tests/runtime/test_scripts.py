"""What one rank does in a collective, as the C++ half of the native engine has it written down."""

from __future__ import annotations

import numpy as np

from weft import _runtime
from weft.algorithms import registry
from weft.runtime.element_ranges import cut_into_chunks
from weft.runtime.transport.link_connections import IN_TURN
from weft.topology import load_topology

RANKS, ELEMENTS = 4, 64


def write_script(rank: int, segment: int) -> _runtime.Script:
    """A rank's part of a ring all-reduce, whose chunks have 16 elements each."""
    schedule = registry.find("ring").build(load_topology(f"ring:{RANKS}"), "all_reduce")
    return _runtime.write_script(
        table=schedule.table,
        ranks=RANKS,
        slots=1,
        start=cut_into_chunks(schedule, ELEMENTS),
        pairs=False,
        elsewhere=True,
        output_start=np.zeros(0, np.int64),
        segment=segment,
        rank=rank,
        max_segments=1000,
        connections=np.ones(RANKS, np.int32),
        out=np.full(RANKS, IN_TURN, np.int32),
        in_=np.full(RANKS, IN_TURN, np.int32),
        of_route=np.empty(0, np.int32),
        needs_all=True,
    )


def test_sockets_send_the_first_segments_of_all_messages_before_the_second_ones() -> None:
    whole = write_script(0, segment=16).rows_sent(1)
    assert len(whole) == 2 * (RANKS - 1)
    assert whole == sorted(whole)
    assert write_script(0, segment=8).rows_sent(1) == [*whole, *whole]
    assert write_script(0, segment=4).rows_sent(1) == 4 * whole
    assert write_script(0, segment=4).rows_sent(2) == []
