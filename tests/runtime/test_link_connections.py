"""Which connections a topology prescribes, and which of them a transfer takes."""

from __future__ import annotations

from weft.runtime.transport.link_connections import IN_TURN, ConnectionEnds, find_link_connections
from weft.schedule import Op, ScheduleBuilder
from weft.topology import Topology, load_topology

Cable = tuple[int, int, str, str]


def wired(cables: list[Cable], *, ranks: int, switches: int = 0) -> Topology:
    """Full-duplex cables with an address at each end; empty ones have none."""
    addresses = []
    for number, (_, _, here, there) in enumerate(cables):
        if here:
            addresses += [(2 * number, here, there), (2 * number + 1, there, here)]
    return Topology.from_links(
        "wired",
        ranks,
        switches,
        [(a, b) for a, b, _, _ in cables],
        bandwidth="1GB/s",
        latency="1us",
        addresses=tuple(addresses),
    )


PARALLEL: list[Cable] = [(0, 1, "a0", "b0"), (0, 1, "a1", "b1"), (1, 2, "b2", "c0"), (2, 0, "", "")]


def test_without_addresses_nothing_is_prescribed() -> None:
    for topology in (None, load_topology("ring:4")):
        assert find_link_connections(topology, range(4), 0).ends == {}


def test_every_cable_with_addresses_is_a_lane_that_both_ends_number_alike() -> None:
    topology = wired(PARALLEL, ranks=3)
    first, second = (find_link_connections(topology, range(3), rank) for rank in (0, 1))
    assert first.ends == {1: (ConnectionEnds("a0", "b0"), ConnectionEnds("a1", "b1"))}
    assert second.ends[0] == (ConnectionEnds("b0", "a0"), ConnectionEnds("b1", "a1"))
    assert second.ends[2] == (ConnectionEnds("b2", "c0"),)
    assert first.digest == second.digest == topology.digest


def test_the_networks_own_way_is_one_of_the_lanes_and_the_same_seen_from_both_ends() -> None:
    topology = wired(PARALLEL, ranks=3)
    first, second = (find_link_connections(topology, range(3), rank) for rank in (0, 1))
    forward = topology.links_between(0, 1).index(topology.route(0, 1)[0])
    assert first.out[1] == second.into[0] == forward
    assert first.into[1] == second.out[0]


def test_a_route_takes_the_lane_of_its_cable() -> None:
    topology = wired(PARALLEL, ranks=3)
    builder = ScheduleBuilder(topology, "broadcast", "by hand", chunks=2)
    for chunk, link in enumerate(topology.links_between(0, 1)):
        builder.add(step=0, chunk=chunk, src=0, dst=1, op=Op.COPY, route=builder.route([link]))
    builder.add(step=0, chunk=[0, 1], src=0, dst=2, op=Op.COPY)
    schedule = builder.build()
    for rank in (0, 1):
        assert find_link_connections(topology, range(3), rank).of_routes(schedule).tolist() == [0, 1]


def test_a_route_over_no_cable_takes_no_lane() -> None:
    topology = wired(PARALLEL, ranks=3)
    builder = ScheduleBuilder(topology, "broadcast", "by hand", chunks=1)
    builder.route([])
    schedule = builder.build()
    assert len(schedule.route_offsets) == 2
    assert find_link_connections(topology, range(3), 0).of_routes(schedule).tolist() == [IN_TURN]


def test_a_cable_that_goes_one_way_only_is_no_lane() -> None:
    addresses = ((0, "a", "b"),)
    one_way = Topology.from_links(
        "one way", 2, 0, [(0, 1)], bandwidth="1GB/s", latency="1us", addresses=addresses
    )
    assert find_link_connections(one_way, range(2), 0).ends == {}


def test_several_network_cards_at_switches_are_lanes() -> None:
    cables: list[Cable] = [(0, 2, "a0", "-"), (0, 3, "a1", "-"), (1, 2, "b0", "-"), (1, 3, "b1", "-")]
    found = find_link_connections(wired(cables, ranks=2, switches=2), range(2), 1)
    assert found.ends == {0: (ConnectionEnds("b0", "a0"), ConnectionEnds("b1", "a1"))}
    assert 0 <= found.out[0] < 2


def test_ranks_of_one_host_share_its_cables_and_have_none_between_them() -> None:
    topology = wired([(0, 1, "a", "b")], ranks=2)
    found = find_link_connections(topology, [0, 0, 1, 1], 1)
    assert found.ends == {2: (ConnectionEnds("a", "b"),), 3: (ConnectionEnds("a", "b"),)}


def test_some_of_the_ranks_keep_their_lanes_under_new_numbers() -> None:
    found = find_link_connections(wired(PARALLEL, ranks=3), range(3), 1).among([2, 1])
    assert found.ends == {0: (ConnectionEnds("b2", "c0"),)}
    assert set(found.out) == set(found.into) == {0}
