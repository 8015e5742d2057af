"""A Gaussian process in one variable: what is likely between the values that are known, and how surely."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOISE: Final = 1e-6
"""Variance added to every known value, as in the code of the DeAR paper: times count as exact."""

_LENGTHS: Final = np.geomspace(0.03, 3.0, 41)
"""Length scales that are compared, for values between 0 and 1."""


class GaussianProcess:
    """A Matern 5/2 process of variance 1 and mean 0, of the length scale that makes the values likeliest.

    Parameters
    ----------
    places
        Between 0 and 1, each once.
    values
        Standardised.
    """

    def __init__(self, places: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        self._places = places
        fits = [self._fit(float(length), values) for length in _LENGTHS]
        _, self.length, self._factor, self._weights = max(fits, key=lambda fit: fit[0])

    def _fit(
        self, length: float, values: NDArray[np.float64]
    ) -> tuple[float, float, NDArray[np.float64], NDArray[np.float64]]:
        """Log likelihood, length scale, Cholesky factor, and the weight of each known value."""
        covariance = matern(self._places, self._places, length) + NOISE * np.eye(len(self._places))
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, values))
        likelihood = -0.5 * values @ weights - np.log(np.diag(factor)).sum()
        return float(likelihood), length, factor, weights

    def predict(self, places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation at each place."""
        shared = matern(self._places, places, self.length)
        explained = np.linalg.solve(self._factor, shared)
        variance = np.maximum(0.0, 1.0 - (explained * explained).sum(axis=0))
        return shared.T @ self._weights, np.sqrt(variance)


def matern(one: NDArray[np.float64], two: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Covariance of values at each pair of places: Matern with smoothness 5/2."""
    scaled = math.sqrt(5) * np.abs(one[:, None] - two[None, :]) / length
    return np.asarray((1 + scaled + scaled * scaled / 3) * np.exp(-scaled))


def expected_improvement(
    mean: NDArray[np.float64], deviation: NDArray[np.float64], best: float, xi: float
) -> NDArray[np.float64]:
    """By how much a value is expected to exceed `best` plus `xi`, counting only where it does.

    Examples
    --------
    >>> expected_improvement(np.array([0.0, 2.0, 0.0]), np.array([1.0, 0.0, 0.0]), best=0.0, xi=0.0).round(4)
    array([0.3989, 2.    , 0.    ])
    """
    gain = mean - best - xi
    sure = deviation <= 0
    ratio = gain / np.where(sure, 1.0, deviation)
    below = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in ratio])
    density = np.exp(-0.5 * ratio * ratio) / math.sqrt(2 * math.pi)
    return np.where(sure, np.maximum(gain, 0.0), gain * below + deviation * density)
