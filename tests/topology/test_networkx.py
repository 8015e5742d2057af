"""Graphs of networkx become topologies, and back."""

from __future__ import annotations

import sys
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from support.clusters import clusters

from weft.errors import DisconnectedError, InputError, LimitError, TopologyError
from weft.topology import Topology, load_topology
from weft.topology.networkx_bridge import from_networkx, to_networkx

GB = 10**9


@pytest.mark.parametrize(
    "spec",
    [
        "torus:4x4",
        "ring:2@links=3,wrap2=double",
        "fullmesh:5@back=1GB/s,links=2",
        "hosts:8,4,2",
        "bigraph:2,4@routing=ecmp,seed=5",
        "dgx-h100:2@fabric=flat",
        "torus:4x4+fail=0>1",
        "ring:5+fail=rank:2",
    ],
)
def test_a_round_trip_gives_the_same_digest(spec: str) -> None:
    before = load_topology(spec)
    after = load_topology(to_networkx(before))
    assert after == before
    assert after.name == before.name


@given(clusters())
def test_any_topology_survives_the_round_trip(topology: Topology) -> None:
    assert from_networkx(to_networkx(topology)) == topology


def test_addresses_survive_the_round_trip() -> None:
    addresses = ((0, "10.0.0.1", "10.0.0.2"), (1, "10.0.0.2", "10.0.0.1"))
    before = Topology.from_links("x", 2, 0, [(0, 1)], bandwidth="1GB/s", latency="0s", addresses=addresses)
    assert from_networkx(to_networkx(before)).addresses == addresses


def test_an_undirected_edge_is_a_cable_of_default_speed() -> None:
    found = load_topology(nx.cycle_graph(4))
    assert (found.ranks, found.links) == (4, 8)
    assert set(found.bandwidth.tolist()) == {25 * GB}
    assert set(found.latency_ps.tolist()) == {10**6}
    assert found.routing.kind == "shortest"


def test_attributes_are_read() -> None:
    graph = nx.MultiDiGraph(name="mine")
    graph.add_node("core", kind="switch")
    graph.add_node("alice", host="left")
    graph.add_node("bob", host="right", kind="rank")
    graph.add_edge("alice", "core", bandwidth="10GB/s", latency="5us")
    graph.add_edge("core", "bob", bandwidth=10**9, latency="1ns")
    graph.add_edge("bob", "core", bandwidth=np.int64(7), latency=0)
    graph.add_edge("core", "alice", bandwidth=2e9)
    graph.add_edge("core", "alice", bandwidth=3 * GB)
    found = from_networkx(graph)
    assert (found.name, found.ranks, found.switches, found.hosts) == ("mine", 2, 1, ((0,), (1,)))
    names = [found.link_name(link) for link in range(found.links)]
    assert dict(zip(names, found.bandwidth.tolist(), strict=True)) == {
        "0->s0": 10 * GB,
        "s0->1": GB,
        "1->s0": 7,
        "s0->0#0": 2 * GB,
        "s0->0#1": 3 * GB,
    }


def test_whole_numbers_are_ranks_in_their_order_and_others_as_they_came() -> None:
    by_number = nx.Graph()
    by_number.add_edge(30, 10, bandwidth="1GB/s")
    by_number.add_edge(10, 20, bandwidth="2GB/s")
    found = from_networkx(by_number)
    assert found.neighbours == ((1, 2), (0,), (0,))
    by_name = nx.Graph([("z", "a"), ("a", "m")])
    assert from_networkx(by_name).neighbours == ((1,), (0, 2), (1,))


def test_edges_removed_or_added_by_hand_are_understood() -> None:
    graph = to_networkx(load_topology("fullmesh:4"))
    graph.remove_edge(0, 1)
    graph.add_edge(0, 1, bandwidth="1GB/s", latency="1us")
    found = from_networkx(graph)
    assert found.links == 12
    assert int(found.bandwidth[-1]) == GB


def other(value: Any) -> nx.Graph:
    return nx.Graph([(0, 1, value)])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (other({"bandwidth": "fast"}), "edge 0 to 1: bandwidth 'fast': cannot be read"),
        (other({"bandwidth": 1.5}), "edge 0 to 1: bandwidth 1.5: expected text"),
        (other({"bandwidth": None}), "edge 0 to 1: bandwidth None: expected text"),
        (other({"bandwidth": True}), "edge 0 to 1: bandwidth True: expected text"),
        (other({"latency": 5}), "edge 0 to 1: time 5: expected text with a unit"),
        (nx.Graph([(0, 0), (0, 1)]), "joins a node to itself"),
        (nx.Graph(), "a cluster of 0 rank"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(graph: nx.Graph, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        load_topology(graph)


def test_wrong_attributes_of_nodes_and_graphs_are_named() -> None:
    graph = nx.path_graph(3)
    graph.nodes[1]["kind"] = "router"
    with pytest.raises(TopologyError, match="node 1: kind 'router' is unknown, expected 'rank' or 'switch'"):
        from_networkx(graph)
    graph.nodes[1]["kind"] = "rank"
    graph.nodes[1]["host"] = "a"
    with pytest.raises(TopologyError, match="rank 0 has no host, but others have"):
        from_networkx(graph)
    torus = to_networkx(load_topology("torus:3x3"))
    torus.remove_node(4)
    with pytest.raises(TopologyError, match="a grid of 3x3 does not have 8 ranks; delete it where"):
        from_networkx(torus)
    del torus.graph["grid"]
    assert from_networkx(torus).ranks == 8
    with pytest.raises(TopologyError, match="routing seed -1 is outside"):
        from_networkx(nx.Graph([(0, 1)], seed=-1))
    with pytest.raises(TopologyError, match="routing 'fast' is unknown"):
        from_networkx(nx.Graph([(0, 1)], routing="fast"))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"grid": 5}, "graph attribute 'grid'"),
        ({"grid": [4], "wrap": 5}, "graph attribute 'grid'"),
        ({"seed": True}, "routing seed"),
        ({"seed": 10**5000}, "routing seed"),
        ({"name": "\ud800"}, "is no character of Unicode text"),
    ],
    ids=["grid", "wrap", "truth", "huge", "surrogate"],
)
def test_graph_attributes_that_no_file_could_hold_are_refused(
    attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        from_networkx(nx.Graph([(0, 1), (1, 2), (2, 3)], **attributes))


@pytest.mark.parametrize("addresses", [5, "ab", ("a",), (1, 2), ("a", ""), ("a", "\ud800")])
def test_addresses_are_two_texts(addresses: object) -> None:
    with pytest.raises(TopologyError, match="address"):
        from_networkx(nx.Graph([(0, 1, {"addresses": addresses})]))
    with pytest.raises(LimitError, match="characters of"):
        from_networkx(nx.Graph([(0, 1, {"addresses": ("a" * 5000, "b")})]))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("label", -5, "rank label"),
        ("label", True, "rank label"),
        ("label", 10**30, "rank label"),
        ("host", [], r"rank 0: host \[\] cannot be told"),
        ("kind", [], r"kind \[\] is unknown"),
    ],
)
def test_attributes_of_ranks_that_no_file_could_hold_are_refused(
    attribute: str, value: object, message: str
) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, value, attribute)
    with pytest.raises(TopologyError, match=message):
        from_networkx(graph)


def test_a_directed_graph_must_lead_back() -> None:
    with pytest.raises(DisconnectedError, match="rank 1 cannot reach rank 0"):
        load_topology(nx.DiGraph([(0, 1)]))


def test_a_huge_graph_is_refused() -> None:
    with pytest.raises(LimitError, match="nodes: 200,000 is more than"):
        from_networkx(nx.empty_graph(200_000))


def test_a_latency_that_is_no_number_is_refused() -> None:
    with pytest.raises(TopologyError, match="edge 0 to 1: time array"):
        from_networkx(nx.Graph([(0, 1, {"latency": np.array([0, 0])})]))


def test_something_else_is_no_topology() -> None:
    with pytest.raises(TopologyError, match="a topology is a spec, a file or a networkx graph, not int"):
        load_topology(5)


def test_without_networkx_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InputError, match="pip install networkx"):
        to_networkx(load_topology("ring:3"))
