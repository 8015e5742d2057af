"""The Gaussian process and expected improvement beside those of scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from support.examples import examples

from weft.training.gaussian_process import NOISE, GaussianProcess, expected_improvement

known = st.lists(
    st.tuples(st.integers(0, 40).map(lambda step: step / 40), st.floats(-2.0, 2.0)),
    min_size=2,
    max_size=10,
    unique_by=lambda pair: pair[0],
)
EVERYWHERE = np.linspace(0.0, 1.0, 57)


def oracle(places: np.ndarray, values: np.ndarray, length: float) -> GaussianProcessRegressor:
    kernel = Matern(length_scale=length, nu=2.5)
    return GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(places[:, None], values)


@examples(50)
@given(known)
def test_the_process_predicts_what_scikit_learn_predicts(pairs: list[tuple[float, float]]) -> None:
    places, values = (np.array(column) for column in zip(*pairs, strict=True))
    process = GaussianProcess(places, values)
    mean, deviation = process.predict(EVERYWHERE)
    expected_mean, expected_deviation = oracle(places, values, process.length).predict(
        EVERYWHERE[:, None], return_std=True
    )
    assert mean == pytest.approx(expected_mean, abs=1e-4)
    assert deviation == pytest.approx(expected_deviation, abs=1e-4)


@examples(30)
@given(known)
def test_no_other_length_scale_is_much_likelier_for_scikit_learn(pairs: list[tuple[float, float]]) -> None:
    places, values = (np.array(column) for column in zip(*pairs, strict=True))
    taken = GaussianProcess(places, values).length
    judge = oracle(places, values, taken)

    def likelihood(length: float) -> float:
        return float(judge.log_marginal_likelihood(np.log([length])))

    others = np.geomspace(0.03, 3.0, 120)
    # Ours compares lengths that are 12 % apart, so a likelier one may lie between two of them.
    best = max(others, key=likelihood)
    nearest = min((taken / 1.13, taken * 1.13), key=lambda length: abs(np.log(length / best)))
    assert likelihood(taken) >= likelihood(best) - 1e-6 or abs(np.log(best / taken)) <= abs(
        np.log(nearest / taken)
    )


@given(st.floats(-3, 3), st.floats(0.01, 3), st.floats(-3, 3), st.floats(0, 1))
def test_expected_improvement_is_the_integral_that_it_stands_for(
    mean: float, deviation: float, best: float, xi: float
) -> None:
    found = expected_improvement(np.array([mean]), np.array([deviation]), best, xi)[0]
    threshold = best + xi
    low, high = max(threshold, mean - 12 * deviation), mean + 12 * deviation
    expected = 0.0
    if low < high:
        gain = integrate.quad(
            lambda value: (value - threshold) * stats.norm.pdf(value, mean, deviation), low, high, limit=200
        )
        expected = gain[0]
    assert found == pytest.approx(expected, abs=1e-6)
    z = (mean - threshold) / deviation
    formula = (mean - threshold) * stats.norm.cdf(z) + deviation * stats.norm.pdf(z)
    assert found == pytest.approx(formula, abs=1e-9)
