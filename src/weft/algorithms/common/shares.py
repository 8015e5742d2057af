"""How much of the buffer each of several ways to send it should take.

Each way keeps each resource (a link, or a set of links that carry the same) busy for some time per byte.
The best shares make the busiest resource busy for the shortest time: a linear programme, whose answer is
rounded to fractions with a small denominator because the weights of a schedule are exact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return round_shares(minimise([Term(busy, np.zeros(len(busy)))], [busy.shape[1]]).tolist())


class Term(NamedTuple):
    """The largest entry of ``matrix @ shares + fixed``, times a weight."""

    matrix: NDArray[np.float64]
    fixed: NDArray[np.float64]
    weight: float = 1.0


def minimise(terms: Sequence[Term], parts: Sequence[int], ceiling: Term | None = None) -> NDArray[np.float64]:
    """Minimise a sum of terms over shares that sum to one in each group; a ceiling must stay at most 0."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    columns, unit = sum(parts), max(float(term.matrix.max()) for term in terms)
    rows, bounds = [], []
    for index, term in enumerate([*terms, *([ceiling] if ceiling else [])]):
        # Many entries of a row are equal and shares sum to one: without that common part rows are short.
        common = np.median(term.matrix, axis=1) if len(parts) == 1 else np.zeros(len(term.matrix))
        row = np.zeros((len(term.matrix), columns + len(terms)))
        row[:, :columns] = (term.matrix - common[:, None]) / unit
        if index < len(terms):
            row[:, columns + index] = -1.0
        rows.append(row)
        bounds.append(-(term.fixed + common) / unit)
    sums = np.zeros((len(parts), columns + len(terms)))
    sums[np.repeat(np.arange(len(parts)), parts), np.arange(columns)] = 1.0
    solved = linprog(
        np.concatenate([np.zeros(columns), [term.weight for term in terms]]),
        A_ub=csr_array(np.vstack(rows)),
        b_ub=np.concatenate(bounds),
        A_eq=csr_array(sums),
        b_eq=np.ones(len(parts)),
        method="highs",
    )
    if solved.x is None:
        raise WeftError(f"no shares found for {columns} parts: {solved.message}")
    found: NDArray[np.float64] = np.maximum(solved.x[:columns], 0.0)
    return found


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
