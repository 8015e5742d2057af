"""Times of collectives: lines, lines through measurements, and the simulator's."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import InputError
from weft.training import AlphaBeta, Linear, Simulated, fit

SIZES = [1 << exponent for exponent in range(10, 27, 2)]


def test_a_ring_is_the_closed_form() -> None:
    ring = Linear.ring(8, alpha_s=1e-5, beta_s_per_byte=1e-9)
    assert ring.reduce_scatter(8000) == pytest.approx(7e-5 + 7000e-9)
    assert ring.all_gather(8000) == ring.reduce_scatter(8000)
    assert ring.all_reduce(8000) == pytest.approx(2 * ring.all_gather(8000))


def test_nothing_to_send_costs_nothing() -> None:
    assert Linear.ring(8, 1e-5, 1e-9).all_reduce(0) == 0
    assert Simulated.on("ring:4", "ring").all_gather(0) == 0


@given(st.floats(0, 0.1), st.floats(1e-12, 1e-6))
def test_a_line_is_found_from_its_points(alpha: float, beta: float) -> None:
    line = fit([(size, alpha + beta * size) for size in SIZES])
    for size in SIZES:
        assert line(size) == pytest.approx(alpha + beta * size, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_line_survives_noise_and_a_size_that_went_wrong(seed: int) -> None:
    chance = random.Random(seed)
    samples = [
        (size, (1e-3 + 1e-8 * size) * chance.uniform(0.98, 1.02) * (20 if chance.random() < 0.1 else 1))
        for size in SIZES
        for _ in range(5)
    ]
    samples += [(1 << 17, 3.0)]
    line = fit(samples)
    assert line.alpha_s == pytest.approx(1e-3, rel=0.05)
    assert line.beta_s_per_byte == pytest.approx(1e-8, rel=0.05)


def test_ranks_that_come_late_do_not_count() -> None:
    late = [(64, 1e-3), (64, 9e-3), (1 << 20, 5e-3), (1 << 20, 2e-1)]
    assert fit(late) == fit([(64, 1e-3), (1 << 20, 5e-3)])


def test_neither_part_of_a_line_is_negative() -> None:
    steep = fit([(1000, 0.001), (2000, 0.003)])
    assert steep.alpha_s == 0
    assert steep.beta_s_per_byte > 0
    falling = fit([(1000, 0.003), (2000, 0.001)])
    assert falling.beta_s_per_byte == 0
    assert falling.alpha_s > 0


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([], "not of 0"),
        ([(10, 1.0), (10, 2.0)], "at least two sizes, not of 1; measure another"),
        ([(10, 1.0), (20, -1.0)], "-1.0 s for 20 bytes"),
        ([(0, 1.0), (20, 1.0)], "at least one byte"),
        ([(10, 1.0), (20, float("nan"))], "nan s"),
    ],
)
def test_samples_that_make_no_line_are_refused(samples: list[tuple[int, float]], says: str) -> None:
    with pytest.raises(InputError, match=says):
        fit(samples)


def test_a_line_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at least 0 and finite"):
        AlphaBeta(-1.0, 0.0)
    with pytest.raises(InputError, match="0 workers"):
        Linear.ring(0, 0.0, 0.0)


def test_simulated_costs_are_those_of_the_simulator() -> None:
    topology = "hosts:2,2@intra=10GB/s,uplink=1GB/s"
    costs = Simulated.on(topology, "ring")
    whole = weft.algorithms.ring.all_reduce(weft.load_topology(topology))
    for size in (1 << 12, 3_000_000, 50 << 20):
        assert costs.all_reduce(size) == pytest.approx(
            weft.simulate(whole, size, segment_bytes=None).seconds, rel=0.02
        )
        both = costs.reduce_scatter(size) + costs.all_gather(size)
        assert costs.all_reduce(size) <= both <= 1.2 * costs.all_reduce(size)  # no overlap of the two


def test_simulated_costs_agree_with_the_closed_form_of_a_ring() -> None:
    simulated = Simulated.on("ring:8@bw=1GB/s,lat=10us", "ring")
    formula = Linear.ring(8, alpha_s=1e-5, beta_s_per_byte=1e-9)
    for size in (1 << 14, 1 << 20, 100 << 20):
        assert simulated.all_gather(size) == pytest.approx(formula.all_gather(size), rel=0.01)


def test_an_all_to_all_is_simulated_as_a_direct_one() -> None:
    topology = "fullmesh:4@bw=1GB/s,lat=0s"
    # Each rank sends a quarter of its buffer over each of its links.
    assert Simulated.on(topology, "ring").all_to_all(4_000_000) == pytest.approx(1e-3)
    exact = weft.simulate(
        weft.algorithms.direct.all_to_all(weft.load_topology(topology)), 1 << 20, segment_bytes=None
    ).seconds
    assert Simulated.on(topology, "ring").all_to_all(1 << 20) == pytest.approx(exact)


def test_sizes_are_simulated_once_and_what_runs_may_change_with_the_size() -> None:
    asked: list[tuple[str, int]] = []
    ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4"))

    def choose(collective: str, size_bytes: int) -> tuple[weft.Schedule, int | None]:
        asked.append((collective, size_bytes))
        return ring, 1 << 16

    costs = Simulated(choose)
    times = [costs.all_reduce(size) for size in range(1_100_000, 4_000_000, 100_000)]
    assert times == sorted(times)
    assert asked == [("all_reduce", 1 << 20), ("all_reduce", 1 << 22)]
