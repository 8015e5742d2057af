"""All-reduces on boxes with PCIe switches and NICs, whole and broken: correct, and never below the bound."""

from __future__ import annotations

import pytest

from weft.algorithms import flexreduce, forest, hierarchical, multitree
from weft.bounds.collective_bound import lower_bound
from weft.simulation import simulate
from weft.topology import load_topology
from weft.verification import verify

SIZE = 1 << 20
SPECS = [
    "rails:2x4",
    "rails:2x4@nics=2,oversub=2+fail=host1.nic0",
    "dgx-a100:2+fail=host0.nic5",
    "rails:2x4@inside=pcie+speed=host0.nic0:1GB/s",
    "leafspine:4x2@per_leaf=2,oversub=3,inside=xgmi",
    "dragonflyplus:3,2,2,2",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("algorithm", [forest, multitree, flexreduce, hierarchical])
def test_all_reduces_on_boxes_are_correct_and_not_below_the_bound(algorithm: object, spec: str) -> None:
    topology = load_topology(spec)
    schedule = algorithm.all_reduce(topology)  # type: ignore[attr-defined]
    verify(schedule)
    bound = lower_bound(topology, "all_reduce", SIZE).seconds
    assert simulate(schedule, size=SIZE).seconds >= bound * (1 - 1e-9)
