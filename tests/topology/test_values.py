"""A topology is a value: the same whatever types it was made of, never changed, and never asked nonsense."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from weft import limits
from weft.errors import InputError, LimitError, TopologyError
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.topology.full_mesh import full_mesh
from weft.topology.graph import Grid, Routing


def pair(**changes: Any) -> Topology:
    parts: dict[str, Any] = {
        "name": "pair",
        "ranks": 2,
        "switches": 0,
        "link_src": [0, 1],
        "link_dst": [1, 0],
        "bandwidth": [10**9, 10**9],
        "latency_ps": [1000, 1000],
    }
    return Topology(**{**parts, **changes})


def test_the_digest_does_not_depend_on_how_numbers_were_given() -> None:
    plain = pair(hosts=((0,), (1,)), grid=Grid((2,), (False,)), addresses=((0, "a", "b"),))
    odd = pair(
        ranks=np.int64(2),
        switches=np.uint8(0),
        hosts=[np.array([0]), [np.int32(1)]],
        grid=Grid([np.int64(2)], np.array([False])),  # type: ignore[arg-type]
        addresses=[(np.int64(0), "a", "b")],
        routing=Routing("shortest", np.int64(0)),  # type: ignore[arg-type]
    )
    assert odd.digest == plain.digest
    assert repr((odd.hosts, odd.grid, odd.routing)) == repr((plain.hosts, plain.grid, plain.routing))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"switches": -1}, "-1 switches cannot be"),
        ({"ranks": 2.0}, "ranks: expected a whole number, not 2.0"),
        ({"hosts": ((0, 1), ())}, "host 1 has no ranks"),
        ({"hosts": (5,)}, "host: expected whole numbers, not 5"),
        ({"rank_labels": (-5, 1)}, "rank label -5 is outside"),
        ({"addresses": ((0, "", "b"),)}, "an address of link 0 must not be empty"),
        ({"addresses": ((0, "a" * 5000, "b"),)}, "5,000 is more than the 4,096"),
        ({"addresses": ((0, 5, "b"),)}, "an address of link 0 must be text, not int"),
        ({"link_src": [0, [1]]}, "column link_src"),
        ({"link_src": [0, 2**70]}, "column link_src"),
    ],
)
def test_nonsense_is_refused_where_it_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pair(**changes)


@pytest.mark.parametrize(("kind", "seed"), [("ecmp", -1), ("ecmp", 2**63), ("ecmp", 1.5), ("fastest", 0)])
def test_a_routing_rule_is_checked(kind: str, seed: Any) -> None:
    with pytest.raises(TopologyError, match="routing"):
        Routing(kind, seed)


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ([0, 1, 2], [1], "3 sources and 1 destinations"),
        ([[0]], [[1]], "1 sources and 1 destinations"),
        ([0], [1.9], "expected whole numbers, not float64"),
        ([0], [2**40], "is outside"),
        ([0], [4], "between ranks 0..3"),
    ],
)
def test_routes_run_between_pairs_of_ranks(src: Any, dst: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        load_topology("ring:4").routes(src, dst)
    assert load_topology("ring:4").route(0, 1) == (0,)


@pytest.mark.parametrize("spec", ["ring:9", "switch:9"])
def test_paths_are_bounded_together(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROUTE_ENTRIES", 7)
    topology = load_topology(spec)
    topology.routes([0, 1, 2], [1, 2, 3])
    with pytest.raises(LimitError, match=f"{spec}: the paths of 4 pairs have more than 7 links"):
        topology.routes([0, 0, 1, 2], [4, 3, 2, 3])


def test_speeds_of_a_node_add_up_beyond_64_bits() -> None:
    ends = [0, 1] * 10_000
    fast = pair(
        link_src=ends,
        link_dst=[1 - end for end in ends],
        bandwidth=[limits.MAX_BANDWIDTH] * len(ends),
        latency_ps=[0] * len(ends),
    )
    assert fast.egress(0) == fast.ingress(1) == limits.MAX_BANDWIDTH * 10_000 > 2**63


def test_copies_are_the_same_and_cannot_be_changed() -> None:
    topology = load_topology("hosts:2,1")
    assert copy.copy(topology) is copy.deepcopy(topology) is topology
    again = pickle.loads(pickle.dumps(topology))
    assert again == topology
    assert not again.link_src.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        again.link_src.flags.writeable = True
    assert [getattr(again, part.name) is not None for part in fields(again)].count(False) == 1  # no grid


def test_a_forged_copy_is_checked() -> None:
    kind, parts = load_topology("ring:4").__reduce__()
    forged = list(parts)
    forged[3] = np.array([9] * 8, np.int32)
    with pytest.raises(TopologyError, match="a node that is not there"):
        kind(*forged)
    with pytest.raises(TopologyError, match="a node that is not there"):
        replace(load_topology("ring:4"), link_src=forged[3])


@pytest.mark.parametrize(("ranks", "count", "back"), [(2, 1, None), (5, 3, 7), (9, 1, 7)])
def test_a_full_mesh_has_the_links_that_cables_drawn_one_by_one_have(
    ranks: int, count: int, back: int | None
) -> None:
    wiring = CableNotes(ranks)
    for a, b in combinations(range(ranks), 2):
        wiring.cable(a, b, bandwidth=10, latency_ps=3, back=back, count=count)
    drawn = wiring.build("drawn")
    at_once = full_mesh("at once", ranks, bandwidth=10, latency_ps=3, back=back, count=count)
    assert at_once.digest == drawn.digest


@pytest.mark.parametrize("spec", ["fullmesh:3@links=2", "fattree:2,2,2", "hosts:3,1", "ring:5+fail=0-1"])
def test_neighbours_are_the_ends_of_the_links_of_a_node_each_once(spec: str) -> None:
    topology = load_topology(spec)
    pairs = list(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True))
    for node, found in enumerate(topology.neighbours):
        assert found == tuple(sorted({dst for src, dst in pairs if src == node}))
