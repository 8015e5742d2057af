"""RCCL's rings: every list is of rings that meet on rails, and what they refuse."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from weft.algorithms import rccl_ring
from weft.algorithms.common.rccl_paths import visiting_orders
from weft.errors import UnsupportedError
from weft.simulation import simulate
from weft.topology import load_topology
from weft.verification import inspect


def test_rings_of_one_box_use_every_cable_twice_in_each_direction() -> None:
    used = Counter[tuple[int, int]]()
    for (ring,) in visiting_orders(1):
        used.update(pairwise((*ring, ring[0])))
    assert used == Counter({(a, b): 2 for a in range(8) for b in range(8) if a != b})


@pytest.mark.parametrize("boxes", [2, 3, 4, 5, 8])
def test_paths_of_several_boxes_meet_at_one_rail_and_use_every_interface_once(boxes: int) -> None:
    found = visiting_orders(boxes)
    for box in range(boxes):
        paths = [channel[box] for channel in found]
        assert all(sorted(path) == list(range(8)) for path in paths)
        assert {path[0] for path in paths} == {path[-1] for path in paths} == set(range(8))
    for channel in found:
        assert all(path[-1] == after[0] for path, after in pairwise((*channel, channel[0])))


@pytest.mark.parametrize("boxes", [2, 4])
def test_paths_of_an_even_number_of_boxes_use_every_cable_once_in_each_direction(boxes: int) -> None:
    for box in range(boxes):
        used = Counter(pair for channel in visiting_orders(boxes) for pair in pairwise(channel[box]))
        assert used == Counter({(a, b): 1 for a in range(8) for b in range(8) if a != b})


@pytest.mark.parametrize("spec", ["mi300x:1", "xgmi:8", "mi300x:2", "mi300x:3", "rails:4x8@inside=xgmi"])
def test_all_schedules_are_right(spec: str) -> None:
    topology = load_topology(spec)
    for function in (rccl_ring.all_reduce, rccl_ring.reduce_scatter, rccl_ring.all_gather):
        assert inspect(function(topology)).problem is None


def test_a_box_reaches_what_its_cables_carry_together() -> None:
    found = simulate(rccl_ring.all_reduce(load_topology("mi300x:1@lat=0s")), "1GiB")
    assert found.busbw_GBps == pytest.approx(7 * 64, rel=0.01)


def test_rings_between_boxes_stay_on_their_rails() -> None:
    schedule = rccl_ring.all_reduce(load_topology("mi300x:2"))
    result = simulate(schedule, "64MiB")
    topology = schedule.topology
    busy = {topology.link_name(link) for link in result.link_busy_ps.nonzero()[0].tolist()}
    assert not any("spine" in name for name in busy)
    assert sum("->leaf" in name for name in busy) == 16


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("torus:4x4", "has no boxes"),
        ("dgx-h100:2", "whose GPUs are all joined one by one"),
        ("xgmi:4", "is for boxes of 8 GPUs"),
        ("mi300x:2@nics=4", "mi300x:2@nics=4 has 4 ways out of a box"),
        ("mi300x:1+fail=0-3", "whose GPUs are all joined one by one"),
    ],
)
def test_on_other_boxes_the_reason_is_said(spec: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        rccl_ring.all_reduce(load_topology(spec))
