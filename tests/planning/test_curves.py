"""Brackets hold whatever convex curve they are drawn around, and jumps are noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.planning.curves import CurveSample, bracket, is_rough
from weft.planning.segment_shares import message_shares, segment_share, segment_size, segments_of
from weft.simulation import simulate
from weft.topology import load_topology

SIZES = np.unique(np.geomspace(1 << 12, 1 << 30, 40).astype(np.int64))


def runs_of(times: dict[int, float]) -> dict[int, CurveSample]:
    return {size: CurveSample(seconds, 0, 1.0) for size, seconds in times.items()}


@given(
    lines=st.lists(st.tuples(st.floats(1e-7, 1e-2), st.floats(1e-13, 1e-9)), min_size=1, max_size=4),
    known=st.sets(st.sampled_from(SIZES.tolist()), min_size=1, max_size=8),
)
def test_a_convex_curve_lies_within_its_brackets(lines: list[tuple[float, float]], known: set[int]) -> None:
    truth = np.max([latency + slope * SIZES for latency, slope in lines], axis=0)
    at = dict(zip(SIZES.tolist(), truth.tolist(), strict=True))
    lower, upper = bracket(SIZES, runs_of({size: at[size] for size in known}), np.zeros(len(SIZES)))
    assert (lower <= truth * (1 + 1e-9)).all()
    assert (truth <= upper * (1 + 1e-9)).all()
    simulated = np.isin(SIZES, list(known))
    assert np.allclose(lower[simulated], truth[simulated])
    assert np.allclose(upper[simulated], truth[simulated])


def test_without_runs_only_what_is_known_from_elsewhere_counts() -> None:
    lower, upper = bracket(np.array([1, 2]), {}, np.array([3.0, 4.0]))
    assert lower.tolist() == [3.0, 4.0]
    assert np.isinf(upper).all()


@pytest.mark.parametrize(
    ("times", "rough"),
    [
        ([1.0, 1.0, 1.0], False),
        ([1.0, 1.5, 2.5], False),
        ([1.0, 2.1, 4.2], True),  # grows faster than the size
        ([1.0, 0.9, 1.8], True),  # falls
        ([1.0, 1.9, 2.0], True),  # above the chord
    ],
)
def test_jumps_are_noticed(times: list[float], rough: bool) -> None:
    assert is_rough(np.array([1.0, 2.0, 4.0]), np.array(times)) == rough


def test_a_curve_that_jumps_is_not_interpolated() -> None:
    times = runs_of({100: 1.0, 200: 1.9, 400: 2.0})
    lower, upper = bracket(np.array([200, 300]), times, np.zeros(2))
    assert (lower[0], upper[0]) == (1.9, 1.9)
    assert upper[1] == 2.0
    assert lower[1] <= 1.9


@pytest.mark.parametrize("size", [1 << 20, 1_000_003, 64 * 1021])
@pytest.mark.parametrize("cuts", [1, 2, 4, 16])
def test_a_share_cuts_messages_alike_at_every_size(size: int, cuts: int) -> None:
    from weft.algorithms import ring

    schedule = ring.all_reduce(load_topology("ring:8"))
    shares = message_shares(schedule)
    assert shares.max() == 1 / 8
    segment = segment_size(segment_share(float(shares.max()), cuts), size)
    assert simulate(schedule, size, segment_bytes=segment).segments == segments_of(shares, cuts)
