"""A small zoo: no single algorithm beats the plan by two percent, at sizes it was not made at.

``benchmarks/planning/zoo.py`` does the same on forty networks; docs/planning.md has its results.
"""

from __future__ import annotations

import pytest

from weft.planning import plan
from weft.planning.candidates import Candidate, build, list_recipes
from weft.simulation import simulate
from weft.topology import load_topology

BETWEEN = [5_612, 60_000, 700_001, 5_746_196, 91_943_322]


@pytest.mark.parametrize(
    "spec",
    [
        "ring:6",
        "mesh:3x3",
        "hosts:4,3,1",
        pytest.param("torus:2x4", marks=pytest.mark.slow),
        pytest.param("switch:8+fail=rank:3", marks=pytest.mark.slow),
    ],
)
def test_no_algorithm_beats_the_plan_between_its_sizes(spec: str) -> None:
    topology = load_topology(spec)
    found = plan(topology)
    built = [build(recipe, topology, "all_reduce", 0) for recipe in list_recipes("all_reduce")]
    candidates = [candidate for candidate in built if isinstance(candidate, Candidate)]
    for size in BETWEEN:
        choice = found.choose(size)
        mine = simulate(choice.schedule, size, segment_bytes=choice.segment_bytes).seconds
        for candidate in candidates:
            whole = simulate(candidate.schedule, size, segment_bytes=None)
            # However it is cut, the busiest link stays as busy: where that takes longer, no cut can win.
            cut = whole.utilisation(whole.busiest_link) * whole.seconds < 0.98 * mine
            other = simulate(candidate.schedule, size, max_work=None) if cut else whole
            assert mine <= 1.02 * other.seconds, (size, choice.algorithm, candidate.label)
