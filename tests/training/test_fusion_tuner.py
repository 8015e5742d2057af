"""Both searches keep their promises: few evaluations, inside the bounds, near the best of all."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.models import costing, uniform

from weft.errors import InputError
from weft.training import BayesianSearch, BoundedSearch, FusionSearch, Linear, dear, fuse
from weft.training.gaussian_process import GaussianProcess, expected_improvement, matern

MIB = 1 << 20
BOUNDS = (MIB, 256 * MIB)


def run(search: FusionSearch, curve: Callable[[int], float]) -> list[int]:
    """Let a search ask until it is done; returns what it asked for."""
    asked = []
    while (threshold := search.ask()) is not None:
        assert search.low <= threshold <= search.high
        assert search.ask() == threshold, "asking again changes nothing"
        asked.append(threshold)
        search.tell(curve(threshold))
    assert len(asked) <= search.evaluations
    assert len(set(asked)) == len(asked)
    assert asked[0] == search.start
    assert search.best in asked
    return asked


def valley(at: float, depth: float, steepness: float) -> Callable[[int], float]:
    """A curve as fusion makes it: calls cost on the left, waiting for gradients on the right."""
    return lambda threshold: 1 + depth * ((at / threshold) ** steepness + (threshold / at) ** steepness)


valleys = st.builds(
    valley,
    st.floats(0, 8).map(lambda octave: MIB * math.exp2(octave)),
    st.floats(0.02, 0.5),
    st.floats(0.3, 1.0),
)
starts = st.integers(*BOUNDS)


@given(valleys, starts)
def test_the_bounded_search_comes_within_few_percent_of_the_best(
    curve: Callable[[int], float], start: int
) -> None:
    search = BoundedSearch(BOUNDS, start, noise=0.0)
    run(search, curve)
    best = min(curve(int(MIB * math.exp2(step / 50))) for step in range(401))
    assert curve(search.best) <= 1.03 * best


@given(
    st.tuples(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(1, 1 << 40)).map(sorted),
    st.integers(1, 10),
    st.randoms(use_true_random=False),
)
def test_no_curve_makes_a_search_leave_its_bounds_or_go_on(
    three: list[int], evaluations: int, chance: random.Random
) -> None:
    low, start, high = three
    for search in (
        BoundedSearch((low, high), start, evaluations),
        BayesianSearch((low, high), start, evaluations),
    ):
        run(search, lambda _: chance.uniform(0.1, 2.0))
        assert search.ask() is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_move_the_bounded_search_from_a_good_start(seed: int) -> None:
    chance = random.Random(seed)
    search = BoundedSearch(BOUNDS, 16 * MIB, noise=0.05)
    run(search, lambda _: 1 + chance.uniform(-0.02, 0.02))
    assert search.best == 16 * MIB


def test_a_start_stays_unless_another_is_better_by_more_than_the_noise() -> None:
    for gain, stays in ((0.04, True), (0.06, False)):
        search = BoundedSearch(BOUNDS, 16 * MIB, noise=0.05)
        run(search, lambda threshold, gain=gain: 1.0 if threshold <= 16 * MIB else 1 - gain)
        assert (search.best == 16 * MIB) is stays


def test_the_searches_find_what_the_model_of_an_iteration_has() -> None:
    layers = uniform(64, 0.1, 0.2, size_bytes=4 * MIB)
    plain = costing(layers, 0.4)
    latency = Linear.ring(4, alpha_s=2e-4, beta_s_per_byte=plain.all_gather.beta_s_per_byte)

    def curve(threshold: int) -> float:
        return dear(layers, fuse(layers, threshold), latency).seconds

    best = min(curve(size * MIB) for size in range(1, 257))
    for search in (BoundedSearch(BOUNDS, 25 * MIB, noise=0.0), BayesianSearch()):
        run(search, curve)
        assert curve(search.best) <= 1.05 * best


@pytest.mark.parametrize("at", [5, 25, 60, 100, 200, 256])
def test_the_bayesian_search_comes_near_the_best_of_smooth_curves(at: int) -> None:
    search = BayesianSearch()
    run(search, lambda threshold: 1 + ((threshold / MIB - at) / 256) ** 2)
    assert 1 + ((search.best / MIB - at) / 256) ** 2 < 1.02


def test_a_search_told_the_same_asks_the_same() -> None:
    for make in (lambda: BoundedSearch(BOUNDS, 25 * MIB), BayesianSearch):
        assert run(make(), lambda threshold: 1 + threshold / MIB) == run(
            make(), lambda threshold: 1 + threshold / MIB
        )


def test_others_are_tried_after_the_start_and_the_search_goes_on_from_the_best_of_them() -> None:
    # A deep valley far from the start that steps of two octaves jump over.
    def curve(threshold: int) -> float:
        return 1.0 if 190 * MIB < threshold < 210 * MIB else 2.0 + abs(math.log2(threshold / MIB))

    alone, told = (BoundedSearch(BOUNDS, MIB, others=others) for others in ((), (7 * MIB, 200 * MIB)))
    run(alone, curve)
    assert run(told, curve)[:3] == [MIB, 7 * MIB, 200 * MIB]
    assert curve(alone.best) == 2.0
    assert curve(told.best) == 1.0
    outside = BoundedSearch(BOUNDS, MIB, others=(1, 1 << 40))
    assert run(outside, curve)[:2] == [MIB, 256 * MIB]


def test_before_anything_is_told_the_start_is_best() -> None:
    assert BoundedSearch(BOUNDS, 7 * MIB).best == 7 * MIB
    assert BayesianSearch(start=7 * MIB).best == 7 * MIB


def test_one_evaluation_or_one_threshold_is_enough() -> None:
    assert run(BoundedSearch(BOUNDS, MIB, evaluations=1), lambda _: 1.0) == [MIB]
    assert run(BoundedSearch((5, 5), 5), lambda _: 1.0) == [5]
    assert run(BayesianSearch((5, 5), 5), lambda _: 1.0) == [5]


@pytest.mark.parametrize(
    ("bounds", "start", "evaluations", "options", "says"),
    [
        ((0, 5), 3, 5, {}, "expected 1 <= low"),
        ((1, 5), 6, 5, {}, "start 6 and bounds 1 to 5"),
        ((1, 5), 3, 11, {}, "11 evaluations: expected 1 to 10"),
        ((1, 5), 3, 0, {}, "0 evaluations"),
        ((1, 5), 3, 5, {"noise": -0.1}, "noise of -0.1"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    bounds: tuple[int, int], start: int, evaluations: int, options: dict[str, float], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        BoundedSearch(bounds, start, evaluations, **options)


def test_xi_is_at_least_nothing() -> None:
    with pytest.raises(InputError, match="xi of -1"):
        BayesianSearch(xi=-1)


def test_what_is_told_must_be_a_time_and_asked_for() -> None:
    search = BoundedSearch(BOUNDS, MIB, evaluations=1)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="expected a time above 0"):
            search.tell(wrong)
    search.tell(1.0)
    with pytest.raises(InputError, match=r"over after 1 evaluations; take \.best"):
        search.tell(1.0)


def test_a_process_knows_what_it_was_told_and_nothing_far_away() -> None:
    process = GaussianProcess(np.array([0.4, 0.5, 0.6]), np.array([-1.0, 0.5, -0.5]))
    mean, deviation = process.predict(np.array([0.4, 0.5, 0.6, 100.0]))
    assert mean == pytest.approx([-1.0, 0.5, -0.5, 0.0], abs=1e-3)
    assert deviation == pytest.approx([0, 0, 0, 1], abs=2e-3)


def test_one_known_value_by_hand() -> None:
    # Of one value the mean is value * covariance / (1 + noise), the variance 1 - covariance^2 / (1 + noise).
    process = GaussianProcess(np.array([0.0]), np.array([0.0]))
    covariance = float(matern(np.array([0.0]), np.array([0.3]), process.length)[0, 0])
    scaled = math.sqrt(5) * 0.3 / process.length
    assert covariance == pytest.approx((1 + scaled + scaled**2 / 3) * math.exp(-scaled))
    mean, deviation = process.predict(np.array([0.3]))
    assert mean[0] == 0
    assert deviation[0] == pytest.approx(math.sqrt(1 - covariance**2 / (1 + 1e-6)), rel=1e-6)


def test_expected_improvement_by_hand() -> None:
    found = expected_improvement(np.array([1.0, 1.0]), np.array([0.5, 0.5]), best=1.0, xi=0.1)
    # z = -0.2: -0.1 * 0.42074 + 0.5 * 0.39104
    assert found == pytest.approx([0.153446, 0.153446], abs=1e-5)
