"""Forests: right on every cluster, nearly as short as the busiest link allows, faster than equal shards."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts

import weft
from weft.algorithms import forest, multitree
from weft.algorithms.forest.rotated import make_rotated
from weft.algorithms.forest.timetable import (
    Clock,
    Timetable,
    make_clock,
    make_schedule,
    make_timetable,
)
from weft.bounds.collective_bound import equal_shard_all_reduce_seconds, lower_bound
from weft.bounds.tree_columns import find_centres, grow_trees
from weft.errors import InputError
from weft.schedule import Schedule, ScheduleBuilder
from weft.simulation import simulate
from weft.topology import Topology, load_topology

GIB = 1 << 30
SPECS = [
    "ring:2",
    "ring:5+fail=0>1",
    "mesh:3x4",
    "torus:4x4+fail=0-1",
    "hypercube:3",
    "switch:5@bw=1GB/s,back=10GB/s",
    "fattree:2,2,3",
    "bigraph:2,4",
    "dragonfly:3,2,2",
    "dgx-a100:2@fabric=flat",
    "hosts:4,2,1@intra=100GB/s,uplink=10GB/s",
]


def slotted(spec: str, chunks: int, passes: int = 60) -> tuple[Topology, Timetable]:
    """A timetable of slots: a link takes one chunk in each, and what arrives in one may leave in the next."""
    topology = load_topology(spec)
    trees, _ = grow_trees(topology, find_centres(topology, 2), (True, True), chunks)
    clock = Clock(np.ones(topology.links, np.int32), np.zeros(topology.links, np.int32))
    return topology, make_timetable(topology, trees, clock, passes=passes)


def link_uses(schedule: Schedule) -> list[tuple[int, int]]:
    """Step and link of every hop."""
    steps = schedule.step.tolist()
    return [(steps[row], link) for row in range(schedule.transfers) for link in schedule.route_of(row)]


@pytest.mark.parametrize("spec", SPECS)
def test_every_collective_is_right(spec: str) -> None:
    topology = load_topology(spec)
    root = topology.ranks - 1
    schedules = [
        forest.all_reduce(topology, trees=7),
        forest.broadcast(topology, root=root, trees=7),
        forest.reduce(topology, root=root, trees=7),
        forest.all_gather(topology, trees_per_root=2),
        forest.reduce_scatter(topology, trees_per_root=2),
    ]
    for schedule in schedules:
        assert accepts(schedule)
        weft.verify(schedule)


@examples(30)
@given(clusters(), st.data())
def test_any_cluster_is_served(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, topology.ranks - 1))
    trees = data.draw(st.integers(1, 9))
    weft.verify(forest.all_reduce(topology, trees=trees))
    weft.verify(forest.broadcast(topology, root=root, trees=trees))
    weft.verify(forest.reduce(topology, root=root, trees=trees))
    weft.verify(forest.all_gather(topology))


@pytest.mark.parametrize(
    ("spec", "chunks", "slots"),
    [
        ("mesh:8x8", 64, 52),
        ("mesh:8x8", 256, 150),
        ("torus:8x8", 256, 129),
        ("torus:8x8+fail=0-1", 256, 130),
    ],
)
def test_slots(spec: str, chunks: int, slots: int) -> None:
    topology, timetable = slotted(spec, chunks)
    assert timetable.ticks <= slots
    schedule = make_schedule(ScheduleBuilder(topology, "all_reduce", "forest", chunks=chunks), timetable)
    weft.verify(schedule)
    assert schedule.steps <= timetable.ticks
    uses = link_uses(schedule)
    assert len(uses) == len(set(uses)), "one chunk per link and slot"


def test_a_link_is_held_by_one_chunk_at_a_time() -> None:
    topology = load_topology("dgx-h100:2@fabric=flat")
    clock = make_clock(topology)
    trees, _ = grow_trees(topology, find_centres(topology, 2), (True, True), 24)
    timetable = make_timetable(topology, trees, clock, passes=20)
    held: set[tuple[int, int]] = set()
    for half, starts in (
        (timetable.trees.up, timetable.up_start),
        (timetable.trees.down, timetable.down_start),
    ):
        for route, start in zip(half[half >= 0].tolist(), starts[half >= 0].tolist(), strict=True):
            at = start
            offsets = timetable.trees.route_offsets
            links = timetable.trees.route_links[offsets[route] : offsets[route + 1]].tolist()
            for link, after in zip(links, [*links[1:], None], strict=True):
                ticks = {(link, at + tick) for tick in range(clock.duration[link])}
                assert not held & ticks
                held |= ticks
                follows = 0 if after is None else int(clock.duration[after])
                at += int(clock.latency[link]) + max(0, int(clock.duration[link]) - follows)
    assert max(tick for _, tick in held) < timetable.ticks


def test_latency_in_ticks_follows_the_size_of_a_chunk() -> None:
    topology = load_topology("ring:4@bw=1GB/s,lat=1us")
    assert make_clock(topology, 1000).latency.tolist() == [1] * 8
    assert make_clock(topology, 100).latency.tolist() == [10] * 8
    assert make_clock(topology, 1e6).latency.tolist() == [1] * 8


@pytest.mark.parametrize(
    ("spec", "gain"), [("mesh:8x8", 1.7), ("torus:8x8+fail=0-1", 1.3), ("torus:8x8", 0.99)]
)
def test_a_gigabyte_is_faster_than_equal_shards_can_be(spec: str, gain: float) -> None:
    topology = load_topology(spec)
    seconds = simulate(forest.all_reduce(topology), GIB, segment_bytes=None).seconds
    assert equal_shard_all_reduce_seconds(topology, GIB) / seconds > gain
    assert lower_bound(topology, "all_reduce", GIB).seconds / seconds > 0.99


def test_a_forest_for_a_size_has_room_for_latency() -> None:
    topology = load_topology("torus:4x4")
    made_for_it = forest.all_reduce(topology, size_bytes=1 << 20)
    weft.verify(made_for_it)
    seconds = simulate(made_for_it, 1 << 20, segment_bytes=None).seconds
    assert seconds < simulate(forest.all_reduce(topology), 1 << 20, segment_bytes=None).seconds
    assert lower_bound(topology, "all_reduce", 1 << 20).seconds / seconds > 0.9


def test_every_collective_can_be_made_for_a_size() -> None:
    topology = load_topology("fattree:2,2,3")
    for schedule in (
        forest.broadcast(topology, size_bytes=10**5),
        forest.reduce(topology, size_bytes=10**5),
        forest.all_gather(topology, size_bytes=10**5),
        forest.reduce_scatter(topology, size_bytes=10**5),
    ):
        weft.verify(schedule)
        assert schedule.chunks <= 64


@pytest.mark.parametrize("spec", ["torus:8x8", "mesh:4x4", "torus:4x4", "torus:4x4+fail=0-1"])
def test_an_all_gather_needs_no_more_time_than_with_multitree(spec: str) -> None:
    topology = load_topology(spec)
    ours = simulate(forest.all_gather(topology), GIB, segment_bytes=None).seconds
    assert ours <= simulate(multitree.all_gather(topology), GIB, segment_bytes=None).seconds


def test_many_shallow_trees_suit_boxes_behind_slower_links() -> None:
    topology = load_topology("dgx-h100:17@fabric=flat+fail=0-s17")
    schedule = forest.all_reduce(topology)
    assert schedule.chunks == 1024
    size = 64 << 20
    found = simulate(schedule, size, segment_bytes=None).seconds
    assert lower_bound(topology, "all_reduce", size).seconds / found > 0.85


@pytest.mark.parametrize(
    ("spec", "share"),
    [("dgx-h100:8", 0.94), ("dgx-h100:17", 0.94), ("dgx-a100:16", 0.9), ("dgx-h100:64", 0.94)],
)
def test_boxes_that_are_alike_come_near_the_bound_as_built(spec: str, share: float) -> None:
    topology = load_topology(spec)
    schedule = forest.all_reduce(topology)
    weft.verify(schedule, max_work=None)
    for size in (64 << 20, GIB):
        found = simulate(schedule, size, max_work=None).seconds
        assert lower_bound(topology, "all_reduce", size).seconds / found > share


def test_copies_of_a_tree_begin_at_once_and_never_meet_on_a_link() -> None:
    topology = load_topology("dgx-h100:8")
    found = make_rotated(topology, find_centres(topology, 2), 64, None)
    assert found is not None
    timetable, busiest = found
    assert len(timetable.trees) == 64
    assert busiest <= timetable.ticks <= 1.5 * busiest
    for starts in (timetable.up_start, timetable.down_start):
        assert np.array_equal(np.sort(starts, axis=1), np.tile(np.sort(starts[0]), (64, 1)))
    builder = ScheduleBuilder(topology, "all_reduce", "forest", chunks=64)
    uses = link_uses(make_schedule(builder, timetable))
    assert len(set(uses)) == len(uses)


def test_nothing_is_copied_where_no_ranks_are_alike() -> None:
    topology = load_topology("dgx-h100:8@fabric=flat+fail=0-s8")
    assert make_rotated(topology, find_centres(topology, 2), 1024, None) is None


@pytest.mark.parametrize(
    ("spec", "shares"), [("dgx-h100:128", (0.91, 0.93)), ("fattree:32,32,32", (0.97, 0.97))]
)
def test_a_thousand_ranks_have_trees_enough(spec: str, shares: tuple[float, float]) -> None:
    topology = load_topology(spec)
    schedule = forest.all_reduce(topology)
    assert schedule.chunks == 1024
    weft.verify(schedule, max_work=None)
    for size, share in zip((64 << 20, GIB), shares, strict=True):
        found = simulate(schedule, size, segment_bytes=None, max_work=None).seconds
        assert lower_bound(topology, "all_reduce", size).seconds / found > share


def test_the_examples_of_the_docs_hold() -> None:
    page = Path(__file__).parents[2] / "docs" / "forest.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 5) == (0, True)


def test_nonsense_is_refused() -> None:
    ring = load_topology("ring:4")
    with pytest.raises(InputError, match=r"trees is 0, expected 1\.\."):
        forest.all_reduce(ring, trees=0)
    with pytest.raises(InputError, match="size_bytes is 0, expected at least 1"):
        forest.reduce(ring, size_bytes=0)
    with pytest.raises(InputError, match=r"trees_per_root is 65, expected 1\.\.64"):
        forest.all_gather(ring, trees_per_root=65)
    with pytest.raises(InputError, match=r"root 4: .* has ranks 0\.\.3"):
        forest.broadcast(ring, root=4)
