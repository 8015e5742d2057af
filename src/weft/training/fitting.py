"""A line through measured times that a few bad measurements cannot bend."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import InputError
from weft.training.costs import AlphaBeta

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_ROUNDS: Final = 40
_TOO_GOOD: Final = 1e-3
"""Relative errors below this count as this, so that no single sample is followed blindly."""


def fit(samples: Iterable[tuple[int, float]]) -> AlphaBeta:
    """Fit seconds over bytes.

    Several times of one size count as their lower quartile, because what disturbs a collective, such as a
    rank that comes late, only ever makes it longer. Through these goes the line whose relative errors add up
    to least, so that small sizes count as much as large ones and one size that went wrong counts little;
    neither of its parts is negative.

    Parameters
    ----------
    samples
        Pairs of bytes and seconds.

    Raises
    ------
    InputError
        If they are not of at least two sizes, or not times.

    Examples
    --------
    >>> line = fit([(1000, 0.002), (1000, 0.002), (1000, 0.5), (3000, 0.004)])
    >>> round(line.alpha_s, 6), round(line.beta_s_per_byte, 9)
    (0.001, 1e-06)
    """
    by_size: defaultdict[int, list[float]] = defaultdict(list)
    for count, (size_bytes, seconds) in enumerate(samples, 1):
        limits.check("samples", count, limits.MAX_SAMPLES)
        if size_bytes < 1 or not 0 < seconds < math.inf:
            msg = f"{seconds} s for {size_bytes} bytes: expected a time above 0 of at least one byte"
            raise InputError(msg)
        by_size[size_bytes].append(seconds)
    if len(by_size) < 2:
        msg = f"a line needs times of at least two sizes, not of {len(by_size)}; measure another size"
        raise InputError(msg)
    sizes = np.array(sorted(by_size), dtype=np.float64)
    times = np.array([_lower_quartile(by_size[size]) for size in sorted(by_size)])
    weights = np.ones(len(sizes))
    alpha = beta = 0.0
    for _ in range(_ROUNDS):
        alpha, beta = _weighted(sizes / times, 1 / times, weights)
        errors = np.abs((alpha + beta * sizes) / times - 1)
        weights = 1 / np.maximum(errors, _TOO_GOOD)
    return AlphaBeta(alpha, beta)


def _lower_quartile(times: list[float]) -> float:
    return sorted(times)[(len(times) - 1) // 4]


def _weighted(
    size: NDArray[np.float64], one: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, float]:
    """Least squares of ``alpha * one + beta * size = 1`` without negative parts."""
    one_one, one_size, size_size = (
        (weights * one * one).sum(),
        (weights * one * size).sum(),
        (weights * size * size).sum(),
    )
    one_sum, size_sum = (weights * one).sum(), (weights * size).sum()
    determinant = one_one * size_size - one_size * one_size
    alpha = (one_sum * size_size - size_sum * one_size) / determinant
    beta = (size_sum * one_one - one_sum * one_size) / determinant
    if alpha < 0:
        return 0.0, float(size_sum / size_size)
    if beta < 0:
        return float(one_sum / one_one), 0.0
    return float(alpha), float(beta)
