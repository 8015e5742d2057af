"""The form that files embed: exact through JSON and MessagePack, bounded, checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.clusters import clusters

from weft.errors import TopologyError
from weft.topology import Topology, load_topology
from weft.topology.record import TopologyRecord, from_record, to_record

SPECS = (
    "torus:4x4",
    "ring:5+fail=rank:2",
    "bigraph:2,4@routing=ecmp,seed=5",
    "hosts:3,1",
    "mesh:2x2@back=1GB/s",
)


@pytest.mark.parametrize("form", [msgspec.json, msgspec.msgpack])
@pytest.mark.parametrize("spec", SPECS)
def test_a_record_gives_the_same_topology_back(spec: str, form: Any) -> None:
    before = load_topology(spec)
    after = from_record(form.decode(form.encode(to_record(before)), type=TopologyRecord))
    assert after.digest == before.digest
    assert after.name == before.name


@given(clusters())
def test_any_topology_survives(topology: Topology) -> None:
    data = msgspec.msgpack.encode(to_record(topology))
    assert from_record(msgspec.msgpack.decode(data, type=TopologyRecord)) == topology


def test_addresses_survive() -> None:
    options = {"addresses": ((1, "a", "b"),), "hosts": ((1,), (0,))}
    before = Topology.from_links("x", 2, 0, [(0, 1)], bandwidth="1GB/s", latency="0s", **options)
    data = msgspec.json.encode(to_record(before))
    assert from_record(msgspec.json.decode(data, type=TopologyRecord)) == before


def broken(**changes: Any) -> bytes:
    tree = msgspec.to_builtins(to_record(load_topology("ring:4")))
    tree["links"] = {**tree["links"], **changes.pop("links", {})}
    return msgspec.json.encode({**tree, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 1},
        {"ranks": 10**9},
        {"ranks": "4"},
        {"switches": -1},
        {"surprise": 1},
        {"name": "x" * 5000},
        {"routing": {"kind": "shortest", "seed": -1}},
        {"routing": {"kind": "shortest", "speed": 1}},
        {"grid": {"shape": [], "wrap": []}},
        {"grid": {"shape": [0], "wrap": [True]}},
        {"grid": {"shape": [2] * 17, "wrap": [True] * 17}},
        {"rank_labels": [-1, 0, 1, 2]},
        {"addresses": [[0, "a"]]},
        {"links": {"src": [2**40]}},
        {"links": {"bandwidth": [0]}},
        {"links": {"latency_ps": [-1]}},
        {"links": {"latency_ps": [10**17]}},
    ],
)
def test_a_value_out_of_bounds_fails_while_it_is_decoded(changes: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(broken(**changes), type=TopologyRecord)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"links": {"src": [0]}}, "link columns differ in length"),
        ({"links": {"dst": [9] * 8}}, "ends at a node that is not there"),
        ({"grid": {"shape": [2, 4], "wrap": [True, True]}}, "a grid of 2x4 does not have 4 ranks"),
        ({"grid": {"shape": [4], "wrap": []}}, "length >= 1"),
        ({"grid": {"shape": [4], "wrap": [True, True]}}, "wrap has 2 entries for a grid of 1 dimensions"),
        ({"grid": {"shape": [65536] * 16, "wrap": [True] * 16}}, "does not have 4 ranks"),
        ({"routing": {"kind": "fastest"}}, "routing 'fastest' is unknown"),
        ({"rank_labels": [1]}, "1 rank labels for 4 ranks"),
        ({"host_sizes": [2], "host_ranks": [0, 1]}, "hosts must name every rank"),
        ({"addresses": [[8, "a", "b"]]}, "given for link 8, which is not there"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TopologyError, msgspec.ValidationError), match=message):
        from_record(msgspec.json.decode(broken(**changes), type=TopologyRecord))
