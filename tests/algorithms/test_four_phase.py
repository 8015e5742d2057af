"""The all-reduce of packages on a torus: how much each axis carries, and where it applies."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import weft
from weft.algorithms import four_phase
from weft.errors import UnsupportedError


@pytest.mark.parametrize(
    "spec",
    ["ace:4x2x2", "ace:4x4x2", "ace:4x4x4", "ace:4x8x4", "torus:3x5", "torus:2x3x4x2", "torus:2x3@links=2"],
)
def test_it_computes_the_sums_and_each_axis_carries_what_the_paper_says(spec: str) -> None:
    topology = weft.load_topology(spec)
    schedule = four_phase.all_reduce(topology)
    weft.verify(schedule)
    assert topology.grid is not None
    shape = topology.grid.shape
    sent = dict.fromkeys(range(len(shape)), Fraction(0))
    for src, dst in zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True):
        ends = (topology.grid.coordinates(src), topology.grid.coordinates(dst))
        (axis,) = [axis for axis, (here, there) in enumerate(zip(*ends, strict=True)) if here != there]
        sent[axis] += Fraction(1, schedule.chunks)
    local = shape[0]
    for axis, size in enumerate(shape):
        per_rank = 2 * Fraction(size - 1, size) / (1 if axis == 0 else local)
        assert sent[axis] == per_rank * topology.ranks, axis


def test_both_links_of_an_axis_of_two_carry_the_same() -> None:
    topology = weft.load_topology("ace:4x2x2")
    busy = weft.simulate(four_phase.all_reduce(topology), "64MiB", segment_bytes=None).link_busy_ps
    slow = topology.bandwidth == topology.bandwidth.min()
    assert len(np.unique(busy[slow])) == 1 == len(np.unique(busy[~slow]))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("mesh:3x3", "lines"),
        ("ring:8", "two axes"),
        ("switch:8", "mesh or torus"),
        ("torus:4x4+fail=0-1", "lost"),
    ],
)
def test_it_says_where_it_does_not_apply(spec: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        four_phase.all_reduce(weft.load_topology(spec))
