"""On any connected cluster an algorithm is right or says why not, and none beats the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.bounds.collective_bound import lower_bound
from weft.errors import UnsupportedError
from weft.topology import Topology

SIZE_BYTES = 24 * 23 * 22 * 20


@pytest.mark.parametrize("name", ALGORITHMS)
@given(topology=clusters(), data=st.data())
@examples(25)
def test_an_algorithm_is_right_or_says_why_not(name: str, topology: Topology, data: st.DataObject) -> None:
    collective = data.draw(st.sampled_from(ALGORITHMS[name].collectives))
    root = data.draw(st.integers(0, topology.ranks - 1))
    try:
        schedule = ALGORITHMS[name].build(topology, collective, root=root)
    except UnsupportedError as error:
        refusal = error
        schedule = None
    if schedule is None:
        assert len(refusal.reason) > 10
        return
    weft.verify(schedule)
    simulated = weft.simulate(schedule, SIZE_BYTES, segment_bytes=None)
    bound = lower_bound(topology, collective, SIZE_BYTES, root=root)
    assert simulated.seconds >= bound.seconds * (1 - 1e-9)
