"""Explicit routes must lead from source to destination."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.topology import load_topology
from weft.verification import inspect
from weft.verification.routes import check_routes


def pair(links: Sequence[int] | None, spec: str = "ring:4") -> Schedule:
    """Rank 0 sends to rank 2, then a scratch move at rank 2; the links are those of the first transfer."""
    topology = load_topology(spec)
    builder = ScheduleBuilder(topology, "broadcast", "pair", chunks=1)
    way = topology.route(0, 2) if links is None else links
    builder.add(step=0, chunk=0, src=0, dst=1, op=Op.COPY, route=builder.route(topology.route(0, 1)))
    builder.add(step=1, chunk=0, src=0, dst=2, op=Op.COPY, route=builder.route(way))
    builder.add(step=2, chunk=0, src=2, dst=3, op=Op.COPY)
    return builder.build()


def test_a_chain_of_links_passes_whichever_way_it_goes() -> None:
    topology = load_topology("ring:4")
    other_way = [topology.links_between(0, 3)[0], topology.links_between(3, 2)[0]]
    assert inspect(pair(None)).ok
    assert inspect(pair(other_way)).ok


def links_of(*hops: tuple[int, int]) -> list[int]:
    return [load_topology("ring:4").links_between(a, b)[0] for a, b in hops]


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        (links_of((0, 1)), "route 0 leads from 0 to 1, but the transfer goes from 0 to 2"),
        (links_of((1, 2)), "route 1 leads from 1 to 2, but the transfer goes from 0 to 2"),
        (links_of((0, 1), (3, 2)), "route 1 is broken: link 3->2 does not begin where 0->1 ends"),
        (links_of((0, 1), (0, 1), (1, 2)), "route 1 is broken: link 0->1 does not begin where 0->1 ends"),
        ([], "route 1 is empty, but the transfer goes from rank 0 to rank 2"),
    ],
)
def test_a_route_that_does_not_lead_there_is_named(links: list[int], problem: str) -> None:
    error = inspect(pair(links)).problem
    assert error is not None
    assert str(error) == f"route: transfer 1, rank 0, chunk 0: {problem}"


def test_a_move_within_a_rank_crosses_no_link() -> None:
    builder = ScheduleBuilder(load_topology("ring:3"), "reduce", "local", chunks=1)
    empty = builder.route([])
    loop = builder.route(load_topology("ring:3").route(0, 1) + load_topology("ring:3").route(1, 0))
    for route in (empty, loop):
        builder.add(step=0, chunk=0, src=0, dst=0, op=Op.COPY, route=route, dst_slot=route + 1)
    error = check_routes(builder.build())
    assert error is not None
    assert error.transfer == 1
    assert error.problem == "route 1 crosses links, but the transfer stays at rank 0"


def test_gaps_between_one_route_and_the_next_are_no_gaps() -> None:
    topology = load_topology("torus:3x3")
    builder = ScheduleBuilder(topology, "broadcast", "star", chunks=1)
    for dst in (8, 1, 5, 2, 7, 4, 6, 3):
        builder.add(step=0, chunk=0, src=0, dst=dst, op=Op.COPY, route=builder.route(topology.route(0, dst)))
    assert check_routes(builder.build()) is None
