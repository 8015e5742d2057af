"""How much of the buffer each of several ways to send it should take.

Each way keeps each resource (a link, or a set of links that carry the same) busy for some time per byte.
The best shares make the busiest resource busy for the shortest time: a linear programme, whose answer is
rounded to fractions with a small denominator because the weights of a schedule are exact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import WeftError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_DENOMINATOR: Final = 1000
_LARGEST_TOTAL: Final = 10**6


def balance_shares(busy: NDArray[np.float64]) -> list[Fraction]:
    """Shares that sum to one and minimise the largest entry of ``busy @ shares``.

    Parameters
    ----------
    busy
        Time per unit; one row per resource, one column per way to send.

    Returns
    -------
    list of Fraction
        At most as many of them are not zero as there are resources.

    Examples
    --------
    >>> [str(share) for share in balance_shares(np.array([[3.0, 24.0], [28.0, 7.0]]))]
    ['17/42', '25/42']
    """
    from scipy.optimize import linprog

    resources, ways = busy.shape
    scaled = busy / busy.max()
    # Variables: the shares, then the time of the busiest resource.
    solved = linprog(
        np.concatenate([np.zeros(ways), [1.0]]),
        A_ub=np.hstack([scaled, np.full((resources, 1), -1.0)]),
        b_ub=np.zeros(resources),
        A_eq=np.concatenate([np.ones(ways), [0.0]])[None],
        b_eq=[1.0],
        method="highs",
    )
    if solved.x is None:
        raise WeftError(f"no shares found for {ways} ways over {resources} resources: {solved.message}")
    return round_shares([max(0.0, float(share)) for share in solved.x[:-1]])


def round_shares(shares: list[float]) -> list[Fraction]:
    """Fractions near `shares` that sum to one exactly and have a common denominator of at most a million.

    Examples
    --------
    >>> [str(share) for share in round_shares([1 / 3, 2 / 3, 1e-12])]
    ['1/3', '2/3', '0']
    """
    near = [Fraction(share).limit_denominator(_LARGEST_DENOMINATOR) for share in shares]
    total = sum(near, Fraction(0))
    near = [share / total for share in near]
    if math.lcm(*(share.denominator for share in near)) <= _LARGEST_TOTAL:
        return near
    parts = [int(share * _LARGEST_TOTAL / sum(shares)) for share in shares]
    parts[parts.index(max(parts))] += _LARGEST_TOTAL - sum(parts)
    return [Fraction(part, _LARGEST_TOTAL) for part in parts]
