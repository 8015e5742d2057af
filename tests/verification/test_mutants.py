"""The verifier against brute force on spoilt schedules; benchmarks/verification/mutants.py runs 10,000."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.handmade import HANDMADE, handmade_schedules
from support.judge import disagreement, routes_lead_there
from support.mutation import draw_mutant
from support.oracle import accepts

from weft.schedule import Schedule, ScheduleBuilder
from weft.topology import load_topology
from weft.verification import inspect


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_on_mutants_equal_brute_force(seed: int) -> None:
    generator = np.random.default_rng(seed)
    originals = handmade_schedules()
    accepted = 0
    for _ in range(150):
        kinds, mutant = draw_mutant(originals[int(generator.integers(len(originals)))], generator)
        report = inspect(mutant)
        assert disagreement(mutant, report) is None, kinds
        accepted += report.ok
    assert 15 <= accepted <= 135, "mutants that are all right or all wrong prove little"


@given(make=st.sampled_from(HANDMADE), ranks=st.integers(2, 7), seed=st.integers(0, 2**32 - 1))
@examples(100)
def test_verdicts_on_mutants_of_any_size_equal_brute_force(make, ranks: int, seed: int) -> None:
    _, mutant = draw_mutant(make(load_topology(f"fullmesh:{ranks}")), np.random.default_rng(seed))
    assert disagreement(mutant, inspect(mutant)) is None


@st.composite
def noise(draw: st.DrawFn) -> Schedule:
    """Rows without any sense, dense enough to meet in places and steps."""
    collectives = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
    collective = draw(st.sampled_from(collectives))
    builder = ScheduleBuilder(load_topology("fullmesh:3"), collective, "noise")
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.integers(0, builder.chunks - 1),
                st.integers(0, 2),
                st.integers(1, 2),
                st.integers(0, 1),
                st.integers(0, 1),
                st.integers(0, 1),
            ),
            max_size=25,
        )
    )
    for step, chunk, src, hop, op, src_slot, dst_slot in rows:
        dst = (src + hop) % 3
        builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op, src_slot=src_slot, dst_slot=dst_slot)
    return builder.build()


@given(noise())
@examples(200)
def test_verdicts_on_noise_equal_brute_force(schedule: Schedule) -> None:
    report = inspect(schedule)
    assert report.ok == (accepts(schedule) and routes_lead_there(schedule))
    assert disagreement(schedule, report) is None
