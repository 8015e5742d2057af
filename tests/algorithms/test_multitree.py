"""MultiTree: the paper's invariants on every sort of network, and its step counts."""

from __future__ import annotations

import doctest
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts
from support.trees import check_invariants, check_mirror, link_uses

import weft
from weft import _core
from weft.algorithms import multitree
from weft.algorithms.multitree.growth import Trees, fewest_steps, grow_trees
from weft.algorithms.multitree.link_speeds import use_all
from weft.errors import InputError, LimitError
from weft.schedule.passes import halves, reverse
from weft.topology import Topology, load_topology

PAGE = Path(__file__).parents[2] / "docs" / "multitree.md"

DIRECT = (
    "ring:2",
    "ring:7",
    "ring:8",
    "mesh:5",
    "mesh:2x2",
    "mesh:3x3",
    "mesh:4x4",
    "mesh:5x7",
    "mesh:2x3x4",
    "torus:2x4",
    "torus:3x3",
    "torus:4x4",
    "torus:5x5",
    "torus:3x4x5",
    "torus:2x2x2@wrap2=double",
    "torus:6x6",
    "torus:8x8",
    "hypercube:3",
    "hypercube:5",
    "fullmesh:7",
    "torus:4x4@links=2",
    "torus:4x4@bw=10GB/s/30GB/s",
    "mesh:4x4@bw=10GB/s/25GB/s",
    "mesh:6@bw=2GB/s,back=5GB/s",
    "torus:4x4@bw=4GB/s,back=3GB/s",
    "torus:4x4+fail=0-1",
    "torus:4x4+fail=5>6",
    "torus:4x4+fail=rank:5",
    "mesh:4x4+fail=5-6,9-10",
)
SWITCHED = (
    "switch:5",
    "fattree:16",
    "fattree:4,2,4",
    "fattree:4,2,4@uplinks=2",
    "fattree:16+fail=s0-s4",
    "bigraph:2,4",
    "bigraph:4,8",
    "bigraph:8,4",
    "dragonfly:3,2,2",
    "dragonfly:5,4,2",
    "dgx-a100:2@fabric=flat",
    "dgx-h100:4@fabric=flat",
    "dgx-h100:2@fabric=flat+fail=0-s2",
    "hosts:8,4,2",
    "hosts:4,3,1@intra=100GB/s,uplink=25GB/s/10GB/s/5GB/s",
    "hosts:3,3+fail=rank:1",
)


def heights(trees: Trees, ranks: int) -> np.ndarray:
    depth = np.zeros((ranks, int(trees.tree.max()) + 1), np.int64)
    for step in range(trees.steps):
        rows = trees.step == step
        depth[trees.child[rows], trees.tree[rows]] = depth[trees.parent[rows], trees.tree[rows]] + 1
    return depth.max(axis=0)


@pytest.mark.parametrize("spec", [*DIRECT, *SWITCHED])
@pytest.mark.parametrize("paper_order", [False, True])
def test_the_invariants_of_the_paper_hold(spec: str, paper_order: bool) -> None:
    topology = load_topology(spec)
    gather = multitree.all_gather(topology, paper_order=paper_order)
    check_invariants(gather, paper_order=paper_order)
    weft.verify(gather)
    scatter = multitree.reduce_scatter(topology, paper_order=paper_order)
    check_mirror(scatter)
    check_invariants(reverse(scatter), paper_order=paper_order)
    weft.verify(scatter)


@examples(60)
@given(clusters(), st.integers(1, 3), st.booleans())
def test_the_invariants_hold_on_any_cluster(
    topology: Topology, trees_per_root: int, paper_order: bool
) -> None:
    options = {"trees_per_root": trees_per_root, "paper_order": paper_order}
    gather = multitree.all_gather(topology, **options)
    check_invariants(gather, paper_order=paper_order)
    scatter = multitree.reduce_scatter(topology, **options)
    check_mirror(scatter)
    check_invariants(reverse(scatter), paper_order=paper_order)
    for schedule in (gather, scatter, multitree.all_reduce(topology, **options)):
        weft.verify(schedule)


@examples(100)
@given(clusters(), st.integers(1, 2))
def test_steps_are_no_fewer_than_the_bound(topology: Topology, trees_per_root: int) -> None:
    trees = grow_trees(topology, trees_per_root)
    assert trees.steps >= fewest_steps(trees.usage, trees_per_root)


@pytest.mark.parametrize("spec", [*DIRECT, *SWITCHED])
def test_steps_take_no_longer_than_those_of_the_authors(spec: str) -> None:
    topology = load_topology(spec)
    ours, authors = (grow_trees(topology, 1, paper_order=paper_order) for paper_order in (False, True))
    assert ours.lockstep_seconds(topology.bandwidth) <= authors.lockstep_seconds(topology.bandwidth)


@pytest.mark.parametrize(
    "spec", ["ring:5", "mesh:3x3", "torus:3x3", "hosts:3,2", "bigraph:2,4", "dgx-a100:1"]
)
@pytest.mark.parametrize("trees_per_root", [1, 2])
def test_small_schedules_do_what_the_brute_force_oracle_wants(spec: str, trees_per_root: int) -> None:
    for make in (multitree.all_gather, multitree.reduce_scatter, multitree.all_reduce):
        assert accepts(make(load_topology(spec), trees_per_root=trees_per_root))


@pytest.mark.parametrize(
    ("spec", "authors", "ours"),
    [
        ("torus:3x3", 3, 2),
        ("torus:4x4", 5, 4),
        ("torus:5x5", 7, 6),
        ("torus:6x6", 10, 9),
        ("torus:8x8", 17, 16),
        ("torus:10x10", 26, 25),
        ("torus:12x12", 37, 36),
        ("torus:14x14", 49, 49),
        ("torus:16x16", 64, 64),
        ("fattree:16", 15, 15),
        ("fattree:64", 63, 63),
        ("bigraph:4,8", 31, 31),
        ("bigraph:4,16", 63, 63),
        ("mesh:2x2", 2, 2),
        ("mesh:3x3", 6, 4),
        ("mesh:4x4", 10, 8),
        ("mesh:5x5", 14, 12),
        ("mesh:6x6", 20, 18),
        ("mesh:7x7", 27, 24),
        ("mesh:8x8", 34, 32),
        ("mesh:9x9", 44, 40),
        ("mesh:10x10", 53, 50),
        ("mesh:11x11", 66, 60),
        ("mesh:12x12", 75, 72),
        ("mesh:13x13", 89, 84),
        ("mesh:14x14", 102, 98),
        ("mesh:15x15", 118, 112),
        ("mesh:16x16", 132, 128),
    ],
)
def test_steps_are_the_authors_in_their_order_and_else_the_fewest_possible(
    spec: str, authors: int, ours: int
) -> None:
    topology = load_topology(spec)
    assert grow_trees(topology, 1, paper_order=True).steps == authors
    assert grow_trees(topology, 1).steps == fewest_steps(use_all(topology)) == ours


@pytest.mark.parametrize(
    ("spec", "steps", "least"),
    [
        ("torus:4x4x4", 11, 11),
        ("torus:5x5x5", 21, 21),
        ("hypercube:6", 11, 11),
        ("torus:8x8+fail=0-1", 21, 21),
        ("mesh:5x7", 17, 17),
        ("hosts:8,4,2", 15, 13),
        ("hosts:4,4", 8, 7),
        ("fattree:8,4,8", 64, 63),
        ("bigraph:8,8", 64, 63),
        ("dragonfly:5,4,2", 39, 39),
        ("dgx-a100:2@fabric=flat", 2, 2),
        ("dgx-h100:4@fabric=flat", 5, 4),
    ],
)
def test_other_networks_come_close_to_the_fewest_steps(spec: str, steps: int, least: int) -> None:
    topology = load_topology(spec)
    assert fewest_steps(use_all(topology)) == least
    assert grow_trees(topology, 1).steps == steps


AUTHORS_TREES = {
    "mesh:3x3": "3bc342b231bade88",
    "mesh:4x4": "9a682fa2e87098c0",
    "mesh:5x5": "3b1721e75a88054d",
    "mesh:6x6": "717b833e3960fb64",
    "mesh:7x7": "f8e14a107b7e76b5",
    "torus:3x3": "cce9d75fb00545ad",
    "torus:4x4": "7d5868e0c4dac37b",
    "torus:5x5": "a3a32d894034c0c9",
    "torus:6x6": "6766c2be78d30d49",
    "fattree:16": "e94280a354fee74b",
    "bigraph:4,8": "6c33426e8ab9f3e2",
}
"""SHA-256, 16 digits, of all (tree, parent, child, step) that the authors' program makes."""


@pytest.mark.parametrize("spec", AUTHORS_TREES)
def test_paper_order_grows_the_authors_trees_edge_for_edge(spec: str) -> None:
    trees = grow_trees(load_topology(spec), 1, paper_order=True)
    columns = (trees.tree, trees.parent, trees.child, trees.step)
    edges = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert hashlib.sha256(repr(edges).encode()).hexdigest()[:16] == AUTHORS_TREES[spec]


@pytest.mark.parametrize(
    ("spec", "paper_order", "edges"),
    [
        ("torus:4x4", True, [64, 64, 48, 48, 16]),
        ("torus:4x4", False, [64, 64, 64, 48]),
        ("torus:6x6", True, [144, 144, 108, *[144] * 5, 108, 36]),
        ("torus:6x6", False, [*[144] * 8, 108]),
        ("torus:8x8", True, [*[256] * 14, 192, 192, 64]),
        ("torus:8x8", False, [*[256] * 15, 192]),
        ("mesh:4x4", True, [48, 42, 41, 38, 29, 15, 13, 8, 5, 1]),
        ("mesh:4x4", False, [48, 43, 41, 35, 29, 21, 13, 10]),
        ("fattree:16", True, [16] * 15),
        ("bigraph:4,8", True, [32] * 31),
    ],
)
def test_edges_per_step(spec: str, paper_order: bool, edges: list[int]) -> None:
    trees = grow_trees(load_topology(spec), 1, paper_order=paper_order)
    assert np.bincount(trees.step).tolist() == edges


@pytest.mark.parametrize(
    ("spec", "paper_order", "lowest", "highest"),
    [
        ("torus:4x4", True, 4, 4),
        ("torus:8x8", True, 8, 8),
        ("mesh:4x4", True, 4, 6),
        ("mesh:8x8", True, 8, 17),
        ("fattree:64", True, 1, 1),
        ("bigraph:4,16", True, 2, 2),
        ("torus:8x8", False, 8, 8),
        ("torus:12x12", False, 12, 12),
        ("hypercube:6", False, 6, 6),
        ("fattree:64", False, 1, 1),
    ],
)
def test_trees_are_flat(spec: str, paper_order: bool, lowest: int, highest: int) -> None:
    topology = load_topology(spec)
    height = heights(grow_trees(topology, 1, paper_order=paper_order), topology.ranks)
    assert (height.min(), height.max()) == (lowest, highest)


def test_one_interface_per_rank_makes_a_torus_take_as_many_steps_as_there_are_others() -> None:
    links = [(rank, rank + 16) for rank in range(16)] + [(rank + 16, rank) for rank in range(16)]
    for row, column in np.ndindex(4, 4):
        # North, south, west, east, as the authors' program has it.
        around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        links += [(16 + 4 * row + column, 16 + 4 * (r % 4) + c % 4) for r, c in around]
    src, dst = np.array(links).T
    ones = np.ones(len(links), np.int64)
    topology = Topology("torus:4x4 behind one interface", 16, 16, src, dst, ones, ones)
    trees = grow_trees(topology, 1, paper_order=True)
    assert np.bincount(trees.step).tolist() == [16] * 15


def test_two_trees_per_root_use_a_2x4_torus_better() -> None:
    topology = load_topology("torus:2x4@bw=1GB/s,lat=0ns")
    size = 16_000_000
    for trees_per_root, share in ((1, 0.75), (2, 0.625)):
        schedule = multitree.all_reduce(topology, trees_per_root=trees_per_root)
        check_invariants(multitree.all_gather(topology, trees_per_root=trees_per_root))
        # A step takes as long as a chunk; the second figures spend 4.4 % of the links on headers.
        seconds = weft.simulate(schedule, size, segment_bytes=None).seconds
        assert seconds * 1e9 / size == pytest.approx(share)
        assert share / (1 - 0.044) == pytest.approx({1: 0.785, 2: 0.654}[trees_per_root], abs=5e-4)


@pytest.mark.parametrize(("trees_per_root", "steps"), [(1, 4), (2, 8), (4, 15)])
def test_more_trees_per_root_fill_the_last_steps(trees_per_root: int, steps: int) -> None:
    topology = load_topology("torus:4x4")
    gather = multitree.all_gather(topology, trees_per_root=trees_per_root)
    assert gather.steps == fewest_steps(use_all(topology), trees_per_root) == steps
    assert gather.chunks == 16 * trees_per_root
    assert gather.source.tolist() == np.repeat(np.arange(16), trees_per_root).tolist()


def test_fewer_steps_are_less_time_on_large_buffers() -> None:
    for spec in ("torus:4x4", "torus:8x8", "hosts:8,4,2", "fattree:8,4,8"):
        topology = load_topology(spec)
        ours = weft.simulate(multitree.all_reduce(topology), "64MiB", segment_bytes=None).seconds
        authors = weft.simulate(
            multitree.all_reduce(topology, paper_order=True), "64MiB", segment_bytes=None
        ).seconds
        assert ours < 0.95 * authors, spec


@pytest.mark.parametrize("spec", ["torus:4x4", "mesh:4x4", "fattree:16", "bigraph:2,4", "hypercube:3"])
def test_the_reduce_scatter_is_the_mirror_image_of_the_all_gather(spec: str) -> None:
    topology = load_topology(spec)
    gather, scatter = multitree.all_gather(topology), multitree.reduce_scatter(topology)
    assert gather.steps == scatter.steps
    down = {*zip(gather.step, gather.chunk, gather.src, gather.dst, strict=True)}
    up = {*zip(scatter.steps - 1 - scatter.step, scatter.chunk, scatter.dst, scatter.src, strict=True)}
    assert down == up


@pytest.mark.parametrize("spec", ["torus:4x4", "hosts:4,3,1", "torus:4x4@bw=4GB/s,back=3GB/s"])
def test_an_all_reduce_has_halves(spec: str) -> None:
    topology = load_topology(spec)
    schedule = multitree.all_reduce(topology)
    scatter, gather = halves(schedule)
    assert scatter.steps == multitree.reduce_scatter(topology).steps
    assert gather.steps == multitree.all_gather(topology).steps
    assert (schedule.route >= 0).all()
    assert accepts(scatter)
    assert accepts(gather)


@pytest.mark.parametrize("spec", ["torus:4x4", "mesh:4x4", "hosts:8,4,2", "dragonfly:5,4,2"])
def test_the_same_input_gives_the_same_schedule(spec: str) -> None:
    first, second = (multitree.all_reduce(load_topology(spec)) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.parametrize(
    ("spec", "way"),
    [
        ("torus:8x8", "by symmetry"),
        ("torus:4x4@bw=4GB/s,back=3GB/s", "by symmetry"),
        ("fullmesh:7", "by symmetry"),
        ("torus:8x8+fail=0-1", "by turns"),
        ("mesh:8x8", "by turns"),
        ("mesh:3x3", "by need"),
        ("fattree:16", "by turns"),
        ("hosts:8,4,2", "by need"),
    ],
)
def test_the_way_a_network_is_served_is_noted(spec: str, way: str) -> None:
    schedule = multitree.all_reduce(load_topology(spec))
    assert schedule.notes == (f"trees grown {way}",)


def test_what_crosses_a_thin_uplink_crosses_it_once() -> None:
    topology = load_topology("hosts:4,4@intra=100GB/s,uplink=10GB/s")
    gather = multitree.all_gather(topology)
    uplinks = np.flatnonzero((topology.link_src >= 8) & (topology.link_dst >= 8))
    assert link_uses(gather).sum(axis=0)[uplinks].tolist() == [4, 4, 4, 4]


def test_a_switch_that_nothing_enters_does_no_harm() -> None:
    links = [(0, 2), (2, 0), (1, 2), (2, 1), (3, 2)]
    src, dst = np.array(links).T
    ones = np.ones(len(links), np.int64)
    topology = Topology("one-way", 2, 2, src, dst, ones, ones, hosts=((0,), (1,)))
    for seed in range(4):
        columns = _core.grow_multitree_by_need(
            topology.nodes,
            2,
            2,
            topology.link_src,
            topology.link_dst,
            ones.astype(np.int32),
            np.arange(2),
            seed,
        )
        assert columns[0].tolist() == [0, 0]
    assert accepts(multitree.all_reduce(topology))


@pytest.mark.parametrize("trees_per_root", [0, -1, 65])
def test_bad_numbers_of_trees_are_refused(trees_per_root: int) -> None:
    with pytest.raises(InputError, match=rf"multitree: trees_per_root is {trees_per_root}, expected 1\.\.64"):
        multitree.all_reduce(load_topology("ring:4"), trees_per_root=trees_per_root)


def test_a_schedule_beyond_the_limit_is_refused_before_it_is_made() -> None:
    with pytest.raises(LimitError, match="multitree: transfers"):
        multitree.all_gather(load_topology("torus:100x100"))


def test_a_thousand_ranks_are_right() -> None:
    schedule = multitree.all_reduce(load_topology("torus:32x32"))
    assert (schedule.steps, schedule.transfers) == (512, 2 * 1024 * 1023)
    weft.verify(schedule)


def test_the_examples_of_the_page_do_what_it_says() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 8
    assert failed == 0


def test_the_steps_of_the_page_are_right() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 20
    for spec, *shown in rows:
        topology = load_topology(spec)
        authors, ours = (grow_trees(topology, 1, paper_order=order).steps for order in (True, False))
        assert [authors, ours, fewest_steps(use_all(topology))] == [int(cell) for cell in shown], spec


@pytest.mark.parametrize("spec", ["torus:4x4@bw=4GB/s/9GB/s", "fattree:4,4,4", "dgx-h100:2", "hosts:4,2"])
def test_large_all_reduces_use_trees_both_ways(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = load_topology(spec)
    monkeypatch.setattr(multitree, "LARGE", 1)
    schedule = multitree.all_reduce(topology, trees_per_root=2)
    weft.verify(schedule)
    assert accepts(schedule)
    scatter, gather = halves(schedule)
    assert scatter.steps == gather.steps
    alone = multitree.all_gather(topology, trees_per_root=2)
    found, expected = (weft.simulate(half, "4MiB", segment_bytes=None) for half in (gather, alone))
    assert found.seconds == pytest.approx(expected.seconds, rel=1e-3)


def test_large_all_reduces_over_one_way_links_grow_both_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multitree, "LARGE", 1)
    assert accepts(multitree.all_reduce(load_topology("torus:4x4+fail=0>1")))
