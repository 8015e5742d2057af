"""Double binary tree: NCCL's two trees, for any number of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts

from weft.algorithms import double_binary_tree
from weft.errors import InputError, ScheduleError
from weft.schedule import Op, Schedule
from weft.topology import Topology, load_topology

RANKS = [*range(2, 18), 24, 32]


def sent(schedule: Schedule) -> np.ndarray:
    """Share of the buffer that each rank sends."""
    return np.bincount(schedule.src, schedule.weights[schedule.chunk], schedule.ranks) / schedule.denominator


def received(schedule: Schedule) -> np.ndarray:
    return np.bincount(schedule.dst, schedule.weights[schedule.chunk], schedule.ranks) / schedule.denominator


def edges(schedule: Schedule, tree: int) -> set[tuple[int, int]]:
    """Pairs (child, parent) of one of the two trees."""
    rows = schedule.chunk // (schedule.chunks // 2) == tree
    up = rows & (schedule.op == Op.REDUCE)
    return set(zip(schedule.src[up].tolist(), schedule.dst[up].tolist(), strict=True))


def nccl_edges(size: int) -> set[tuple[int, int]]:
    """The tree as NCCL describes it, from the parents' side: children are half a step down and up."""
    found = set()
    for number in range(size):
        bit = 1
        while bit < size and not number & bit:
            bit *= 2
        half = bit // 2
        if number:
            down, up = number - half, number + half
            while half and up >= size:
                half //= 2
                up = number + half
            if bit > 1:
                found.add((down, number))
            if bit > 1 and half:
                found.add((up, number))
        else:
            found.add((half, 0))
    return found


@pytest.mark.parametrize("ranks", RANKS)
def test_every_collective_is_right(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    assert accepts(double_binary_tree.all_reduce(topology, chunks=3))
    for root in {0, 1, ranks // 2, ranks - 1}:
        assert accepts(double_binary_tree.broadcast(topology, root=root, chunks=2))
        assert accepts(double_binary_tree.reduce(topology, root=root, chunks=2))


@examples(40)
@given(clusters(), st.data())
def test_any_cluster_is_served(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, topology.ranks - 1))
    assert accepts(double_binary_tree.all_reduce(topology, chunks=2))
    assert accepts(double_binary_tree.broadcast(topology, root=root, chunks=2))
    assert accepts(double_binary_tree.reduce(topology, root=root, chunks=2))


@pytest.mark.parametrize("ranks", [*RANKS, 63, 100, 129])
def test_trees_are_those_of_nccl(ranks: int) -> None:
    schedule = double_binary_tree.all_reduce(load_topology(f"switch:{ranks}"), chunks=1)
    first = nccl_edges(ranks)
    assert edges(schedule, 0) == first
    rename = (lambda x: (x + 1) % ranks) if ranks % 2 else (lambda x: ranks - 1 - x)
    assert edges(schedule, 1) == {(rename(a), rename(b)) for a, b in first}


@pytest.mark.parametrize("ranks", RANKS)
def test_inner_ranks_of_one_tree_are_leaves_of_the_other(ranks: int) -> None:
    schedule = double_binary_tree.all_reduce(load_topology(f"switch:{ranks}"), chunks=1)
    inner = [{parent for _, parent in edges(schedule, tree)} for tree in (0, 1)]
    assert inner[0] & inner[1] == ({0} if ranks % 2 else set())
    rooted = double_binary_tree.reduce(load_topology(f"switch:{ranks}"), root=1, chunks=1)
    inner = [{parent for _, parent in edges(rooted, tree)} for tree in (0, 1)]
    assert inner[0] & inner[1] == {1}


@pytest.mark.parametrize("ranks", [*RANKS, 65, 128])
def test_a_rank_sends_and_receives_once_per_step_and_direction(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    for schedule in (
        double_binary_tree.all_reduce(topology, chunks=5),
        double_binary_tree.broadcast(topology, chunks=5),
        double_binary_tree.reduce(topology, chunks=5),
    ):
        for op in Op:
            for end in (schedule.src, schedule.dst):
                rows = schedule.op == op
                place = schedule.step[rows].astype(np.int64) * ranks + end[rows]
                assert len(np.unique(place)) == len(place)


@pytest.mark.parametrize("ranks", [*RANKS, 65, 128, 1000])
@pytest.mark.parametrize("chunks", [1, 6])
def test_steps_grow_with_the_logarithm(ranks: int, chunks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    depth = (ranks - 1).bit_length()
    assert double_binary_tree.all_reduce(topology, chunks=chunks).steps <= 2 * (chunks - 1) + 4 * depth
    assert double_binary_tree.broadcast(topology, chunks=chunks).steps <= 2 * (chunks - 1) + 2 * depth
    assert double_binary_tree.reduce(topology, chunks=chunks).steps <= 2 * (chunks - 1) + 2 * depth


@pytest.mark.parametrize("ranks", RANKS)
def test_load_is_spread_over_all_ranks(ranks: int) -> None:
    topology = load_topology(f"switch:{ranks}")
    both = double_binary_tree.all_reduce(topology)
    assert sent(both).sum() == pytest.approx(2 * (ranks - 1))
    assert sent(both).max() <= 2
    assert np.allclose(sent(both), received(both))
    down = double_binary_tree.broadcast(topology, root=ranks - 1)
    assert sent(down).max() == sent(down)[ranks - 1] == 1
    assert np.allclose(received(down), np.arange(ranks) != ranks - 1)
    up = double_binary_tree.reduce(topology, root=ranks - 1)
    assert received(up).max() == received(up)[ranks - 1] == 1


def test_ranks_take_their_places_host_by_host() -> None:
    plain = load_topology("switch:8")
    mixed = replace(plain, hosts=((0, 2, 4, 6), (1, 3, 5, 7)))
    for tree in (0, 1):
        crossing = [
            edge for edge in edges(double_binary_tree.all_reduce(mixed), tree) if edge[0] % 2 != edge[1] % 2
        ]
        assert len(crossing) <= 2


def test_the_same_input_gives_the_same_schedule() -> None:
    topology = load_topology("torus:3x5")
    assert (
        double_binary_tree.all_reduce(topology).digest
        == double_binary_tree.all_reduce(load_topology("torus:3x5")).digest
    )


def test_failed_links_change_nothing_but_routes() -> None:
    assert accepts(double_binary_tree.all_reduce(load_topology("mesh:3x3+fail=0-1"), chunks=2))
    assert accepts(double_binary_tree.all_reduce(load_topology("torus:3x3+fail=rank:4"), chunks=2))


def test_bad_parameters_are_refused() -> None:
    topology = load_topology("ring:4")
    with pytest.raises(InputError, match="chunks=0 must be at least 1"):
        double_binary_tree.all_reduce(topology, chunks=0)
    with pytest.raises(ScheduleError, match="root 4"):
        double_binary_tree.broadcast(topology, root=4)
    with pytest.raises(InputError, match="transfers"):
        double_binary_tree.all_reduce(topology, chunks=1 << 25)
