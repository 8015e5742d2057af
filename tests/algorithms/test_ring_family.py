"""Rings, one way and both ways: right on every cluster, and as cheap as the formulas say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.loads import busiest_seconds, link_loads
from support.oracle import accepts

from weft.algorithms import bidirectional_ring, ring
from weft.errors import LimitError, ScheduleError, UnsupportedError
from weft.schedule import Op
from weft.schedule.passes import halves
from weft.topology import Topology, load_topology

CLUSTERS = [
    *(
        "ring:2",
        "ring:3",
        "ring:7",
        "torus:4x4",
        "torus:3x5",
        "torus:2x2",
        "mesh:1x4",
        "mesh:3x5",
        "mesh:2x3",
    ),
    *(
        "hypercube:3",
        "fullmesh:5",
        "switch:6",
        "fattree:2,2,3",
        "bigraph:2,4",
        "dragonfly:3,2,2",
        "hosts:4,1,2",
    ),
    *(
        "torus:3x3+fail=0-1",
        "torus:3x3+fail=0>1",
        "torus:3x3+fail=rank:4",
        "ring:6+fail=2-3",
        "mesh:3x3@links=2",
    ),
    *("torus:2x3@wrap2=double", "ring:5@bw=1GB/s,back=9GB/s"),
]
HALVES = ("reduce_scatter", "all_gather")


@pytest.mark.parametrize("spec", CLUSTERS)
def test_a_ring_is_right(spec: str) -> None:
    topology = load_topology(spec)
    for collective in ("all_reduce", *HALVES):
        assert accepts(getattr(ring, collective)(topology))
    for root in range(topology.ranks):
        assert accepts(ring.broadcast(topology, root=root))
        assert accepts(ring.reduce(topology, root=root))


@pytest.mark.parametrize("spec", [spec for spec in CLUSTERS if "fail" not in spec])
def test_two_rings_are_right(spec: str) -> None:
    topology = load_topology(spec)
    for collective in ("all_reduce", *HALVES):
        assert accepts(getattr(bidirectional_ring, collective)(topology))


@pytest.mark.parametrize("spec", CLUSTERS)
def test_steps_and_chunks(spec: str) -> None:
    topology = load_topology(spec)
    ranks = topology.ranks
    assert ring.all_reduce(topology).steps == 2 * (ranks - 1)
    for collective in HALVES:
        schedule = getattr(ring, collective)(topology)
        assert (schedule.steps, schedule.chunks, schedule.ownership) == (ranks - 1, ranks, "prescribed")
    for make in (ring.broadcast, ring.reduce):
        assert (make(topology).steps, make(topology).chunks) == (2 * ranks - 2, ranks)


@pytest.mark.parametrize("module", [ring, bidirectional_ring])
@pytest.mark.parametrize("spec", ["ring:2", "torus:3x5", "hosts:4,1,2", "mesh:1x4"])
def test_an_all_reduce_has_halves_that_are_right(module, spec: str) -> None:
    scatter, gather = halves(module.all_reduce(load_topology(spec)))
    assert accepts(scatter)
    assert accepts(gather)
    assert scatter.target.tolist() == gather.source.tolist() == sorted(scatter.target.tolist())


@pytest.mark.parametrize(
    "spec", ["ring:5", "torus:4x4", "torus:3x5", "mesh:4x3", "hypercube:4", "fullmesh:6"]
)
def test_bytes_per_link_on_a_cycle(spec: str) -> None:
    topology = load_topology(spec)
    once = Fraction(topology.ranks - 1, topology.ranks)
    ranks = topology.ranks
    for module, links, share in ((ring, ranks, 1), (bidirectional_ring, 2 * ranks, Fraction(1, 2))):
        for collective, rounds in (("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)):
            used = [load for load in link_loads(getattr(module, collective)(topology)) if load]
            assert used == [rounds * share * once] * links
    for make in (ring.broadcast, ring.reduce):
        assert [load for load in link_loads(make(topology)) if load] == [1] * (ranks - 1)


def test_two_rings_share_in_proportion_to_speed() -> None:
    topology = load_topology("ring:8@bw=6GB/s,back=2GB/s")
    loads = link_loads(bidirectional_ring.all_reduce(topology))
    times = {load / int(speed) for load, speed in zip(loads, topology.bandwidth, strict=True)}
    assert times == {Fraction(2 * 7, 8) / 8_000_000_000}


def test_two_rings_are_refused_where_the_way_back_would_slow_them_down() -> None:
    links = [(rank, (rank + 1) % 6) for rank in range(6)]
    one_way = Topology(
        "one way",
        6,
        0,
        np.array([a for a, _ in links], np.int32),
        np.array([b for _, b in links], np.int32),
        np.full(6, 10**9),
        np.full(6, 1000),
    )
    assert accepts(ring.all_reduce(one_way))
    with pytest.raises(UnsupportedError, match=r"the way back takes detours.*; use ring"):
        bidirectional_ring.all_reduce(one_way)


def test_the_chunk_of_a_shard_is_its_owner() -> None:
    topology = load_topology("torus:3x3")
    for make in (ring.reduce_scatter, ring.all_gather):
        schedule = make(topology)
        owner = schedule.target if schedule.collective == "reduce_scatter" else schedule.source
        assert owner.tolist() == list(range(9))


def test_only_ring_neighbours_talk() -> None:
    topology = load_topology("mesh:4x4")
    for make in (ring.all_reduce, ring.broadcast, ring.reduce):
        schedule = make(topology)
        pairs = set(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True))
        assert all(topology.links_between(src, dst) for src, dst in pairs)
        assert len({src for src, _ in pairs}) == len(pairs)


def test_a_chain_ends_at_the_root() -> None:
    topology = load_topology("ring:6")
    assert 4 not in set(ring.reduce(topology, root=4).src.tolist())
    assert 4 not in set(ring.broadcast(topology, root=4).dst.tolist())
    assert set(ring.reduce(topology, root=4).op.tolist()) == {Op.REDUCE}
    for make in (ring.broadcast, ring.reduce):
        with pytest.raises(ScheduleError, match="root 6 is not a rank"):
            make(topology, root=6)


def test_a_long_chain_has_fewer_chunks_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "_CHAIN_ROWS", 1000)
    schedule = ring.broadcast(load_topology("ring:40"))
    assert accepts(schedule)
    assert (schedule.chunks, schedule.transfers, schedule.steps) == (25, 25 * 39, 25 + 38)


def test_the_note_tells_which_order_the_ring_follows() -> None:
    assert ring.all_reduce(load_topology("mesh:3x3")).notes == (
        "ring order: no Hamiltonian cycle exists: 1 hop takes 2 links",
    )


@pytest.mark.parametrize("module", [ring, bidirectional_ring])
def test_too_many_ranks_are_refused_before_anything_is_built(module) -> None:
    with pytest.raises(LimitError, match="transfers"):
        module.all_reduce(load_topology("switch:30000"))


@given(clusters(), st.data())
@examples(30)
def test_any_cluster_is_served_or_refused_with_a_reason(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, topology.ranks - 1))
    assert accepts(ring.broadcast(topology, root=root))
    assert accepts(ring.reduce(topology, root=root))
    for collective in ("all_reduce", *HALVES):
        first = getattr(ring, collective)(topology)
        assert accepts(first)
        assert getattr(ring, collective)(topology).digest == first.digest
    try:
        made = [getattr(bidirectional_ring, collective)(topology) for collective in ("all_reduce", *HALVES)]
    except UnsupportedError:
        return
    assert all(accepts(schedule) for schedule in made)
    assert busiest_seconds(made[0]) <= busiest_seconds(ring.all_reduce(topology)) * 1.01
