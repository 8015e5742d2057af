"""Where the clock would run over, the engine says so; it never wraps round to a small time."""

from __future__ import annotations

import pytest

import weft
from weft.errors import LimitError
from weft.schedule import Op, ScheduleBuilder


@pytest.mark.parametrize("sharing", ["queue", "fluid"])
@pytest.mark.parametrize("size", ["10MB", "1GB", "1TB", "1000TB"])
def test_a_transfer_longer_than_the_clock_is_refused(sharing: str, size: str) -> None:
    ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:2@bw=1B/s"))
    with pytest.raises(LimitError, match="s that the engine counts"):
        weft.simulation.simulate(ring, size, sharing=sharing)


@pytest.mark.parametrize("sharing", ["queue", "fluid"])
def test_transfers_that_are_too_long_only_together_are_refused(sharing: str) -> None:
    ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:8@bw=1B/s"))
    assert weft.simulation.simulate(ring, "1MB", sharing=sharing).seconds > 1_700_000
    with pytest.raises(LimitError, match="takes more than the 2,305,843 s"):
        weft.simulation.simulate(ring, "2MB", sharing=sharing)


@pytest.mark.parametrize("sharing", ["queue", "fluid"])
def test_latencies_add_up_without_a_wrap(sharing: str) -> None:
    topology = weft.load_topology("mesh:6000@lat=3600s")
    builder = ScheduleBuilder(topology, "broadcast", "far", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=5999, op=Op.COPY)
    with pytest.raises(LimitError, match="s that the engine counts"):
        weft.simulation.simulate(builder.build(), 1, sharing=sharing)
