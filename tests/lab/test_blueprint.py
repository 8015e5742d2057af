"""What has to be built for a topology."""

from __future__ import annotations

import pytest

from weft.errors import InputError, LimitError
from weft.lab.blueprint import Blueprint, draw, rank_address
from weft.lab.speed_scale import fit
from weft.topology import Topology, load_topology

SPECS = [
    "ring:5",
    "torus:2x4",
    "torus:2x4@routing=shortest",
    "torus:3x4@routing=ecmp",
    "mesh:3x3",
    "switch:6",
    "fattree:3,2,2",
    "bigraph:2,4",
    "dragonfly:3,2,1",
    "hosts:4,2,1",
    "dgx-a100:2@fabric=flat",
    "torus:3x3+fail=0-1",
    "torus:3x3+fail=0>1",
]


def follow(blueprint: Blueprint, src: int, dst: int) -> list[int]:
    """Cables that a packet takes, by the routes of the spaces it comes through."""
    here, taken = blueprint.space_of[src], []
    while here != blueprint.space_of[dst]:
        routes = blueprint.routes[here]
        by_pair = {(source, target): cable for source, target, cable in routes.by_pair}
        cable = by_pair.get((src, dst), routes.by_target[dst])
        taken.append(cable)
        assert len(taken) <= len(blueprint.cables)
        here = blueprint.cables[cable].far(here).space
    return taken


@pytest.mark.parametrize("spec", SPECS)
def test_packets_take_the_paths_that_schedules_assume(spec: str) -> None:
    topology = load_topology(spec)
    blueprint = draw(topology)
    for src in range(topology.ranks):
        for dst in range(topology.ranks):
            links = topology.route(src, dst)
            cables = [blueprint.find_cable(link) for link in links]
            expected = [blueprint.cables.index(cable) for cable in cables if cable is not None]
            if blueprint.space_of[src] != blueprint.space_of[dst]:
                assert follow(blueprint, src, dst) == expected


@pytest.mark.parametrize("spec", SPECS)
def test_every_link_between_hosts_has_its_end_of_a_cable_with_its_speed(spec: str) -> None:
    topology = load_topology(spec)
    blueprint = draw(topology)
    inside = 0
    for link in range(topology.links):
        cable = blueprint.find_cable(link)
        if cable is None:
            inside += 1
            continue
        end = cable.ends[cable.links.index(link)]
        assert end.speed == topology.bandwidth[link]
    assert (inside > 0) == bool(topology.hosts)
    addresses = [end.address for cable in blueprint.cables for end in cable.ends]
    addresses += [rank_address(rank) for rank in range(topology.ranks)]
    assert len(set(addresses)) == len(addresses)


def test_cables_between_ranks_have_addresses_that_the_runtime_can_choose() -> None:
    assert len(draw(load_topology("torus:2x4")).topology.addresses) == 24
    assert draw(load_topology("switch:4")).topology.addresses == ()
    one_way = draw(load_topology("ring:3+fail=0>1"))
    assert len(one_way.topology.addresses) == 4
    assert [cable.ends[1].speed for cable in one_way.cables].count(None) == 1


def test_ranks_of_a_host_share_a_space_with_what_only_they_hang_on() -> None:
    blueprint = draw(load_topology("hosts:4,2,1"))
    assert [space.name for space in blueprint.spaces if space.ranks] == ["h0", "h1", "h2"]
    assert len(blueprint.spaces) == 4
    assert len(blueprint.cables) == 3


@pytest.mark.parametrize(
    ("topology", "error", "text"),
    [
        ("fattree:32,16,8", LimitError, "hosts and switches in a lab"),
        ("fullmesh:40", LimitError, "cables in a lab"),
    ],
)
def test_what_is_too_large_for_one_machine_is_refused(
    topology: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        draw(load_topology(topology))


def test_one_host_alone_has_no_network() -> None:
    options = {"bandwidth": "1GB/s", "latency": "1us"}
    alone = Topology.from_links("alone", 2, 0, [(0, 1)], hosts=((0, 1),), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no network to emulate"):
        draw(alone)


def test_speeds_are_scaled_to_what_the_machine_can_do_and_inside_hosts_they_stay() -> None:
    topology = load_topology("hosts:4,2,1")
    slow, factor = fit(topology)
    assert factor < 1
    ratio = slow.bandwidth / topology.bandwidth
    assert {round(float(one), 6) for one in ratio} == {1.0, round(factor, 6)}
    same, factor = fit(load_topology("switch:4@bw=10Mbit/s"))
    assert (factor, same.bandwidth[0]) == (1.0, 1_250_000)
    assert fit(load_topology("switch:4@bw=10Mbit/s"), 0.5)[0].bandwidth[0] == 625_000
    with pytest.raises(InputError, match="would have 10,000 bit/s"):
        fit(load_topology("switch:4@bw=10Mbit/s"), 0.001)
