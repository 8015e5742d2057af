"""Routes that no verifier would accept still do not hurt the engine."""

from __future__ import annotations

from support.reference.schedule_engine import simulate_reference

import weft
from weft.schedule import Op, Schedule, ScheduleBuilder


def one_transfer(links: list[int]) -> Schedule:
    builder = ScheduleBuilder(weft.load_topology("ring:4@bw=1GB/s,lat=1us"), "broadcast", "odd", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=2, op=Op.COPY, route=builder.route(links))
    return builder.build()


def test_an_empty_route_takes_no_time() -> None:
    assert weft.simulation.simulate(one_transfer([]), 1000).time_ps == 0
    assert simulate_reference(one_transfer([]), 1000).time_ps == 0


def test_a_route_that_leads_elsewhere_occupies_its_links() -> None:
    result = weft.simulation.simulate(one_transfer([5, 5, 5]), 1000)
    assert result.time_ps == simulate_reference(one_transfer([5, 5, 5]), 1000).time_ps
    assert result.link_busy_ps.tolist() == [0, 0, 0, 0, 0, 3_000_000, 0, 0]
