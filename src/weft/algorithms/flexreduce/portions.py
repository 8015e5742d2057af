"""How much of the buffer each rank, or each part of a group, should own.

Whoever owns a part of the buffer does not send it away, and receives it from everyone else: portions move
load from link to link. On one ring the best portions have a closed form; in general they are the answer of a
small linear programme over the links that are really used.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.algorithms.common.shares import Term, minimise, round_shares
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ROUNDING: Final = 1e-9
"""Share of a time that computing it in floating point may be wrong by."""

_SLACK: Final = 1e-4
"""Share of the best time that is given up for shorter phases."""

_EVEN: Final = 1e-3
"""Weight of even shares against short times."""


class Portions(NamedTuple):
    """Shares that sum to one, and the seconds per byte of the buffer that one phase takes with them."""

    shares: list[Fraction]
    seconds: Fraction


def fill_ring(speeds: Sequence[int | Fraction]) -> Portions:
    """Portions for one ring, by filling up: slow hops belong to ranks that own much.

    In a reduce-scatter a rank passes on everything but what it owns, so that hop l carries 1 - w_l. The
    largest of the (1 - w_l) / b_l is smallest if w_l = max(0, 1 - T b_l), with T such that the w sum to one.

    Parameters
    ----------
    speeds
        Bytes per second of the hop that leaves each rank; at least two.

    Examples
    --------
    >>> [str(share) for share in fill_ring([8, 8, 4]).shares], str(fill_ring([8, 8, 4]).seconds)
    (['1/5', '1/5', '3/5'], '1/10')

    Notes
    -----
    Equal shares take (n - 1)/n / min(b); filling takes as much as if every hop had the mean speed, unless a
    hop is so fast that its rank owns nothing.
    """
    if len(speeds) < 2 or min(speeds) <= 0:
        raise InputError(f"a ring needs at least two hops of positive speed, not {list(speeds)}")
    active = [Fraction(speed) for speed in speeds]
    while True:
        seconds = (len(active) - 1) / sum(active, Fraction(0))
        owning = [speed for speed in active if seconds * speed < 1]
        if len(owning) == len(active):
            break
        active = owning
    shares = [max(Fraction(0), 1 - seconds * Fraction(speed)) for speed in speeds]
    return Portions(shares, seconds)


def balance(
    scatter: NDArray[np.float64], gather: NDArray[np.float64], fixed: NDArray[np.float64]
) -> list[Fraction]:
    """Shares that keep the busiest link busy as short as possible, and then make the two phases short.

    Parameters
    ----------
    scatter, gather
        Seconds per byte that each link (row) is busy in either phase if one part (column) keeps everything.
    fixed
        Seconds per byte that each link is busy anyway.

    Returns
    -------
    list of Fraction
        One per part, summing to one; among equally good ones, the largest is as small as possible.

    Examples
    --------
    >>> port = np.array([[0.25], [0.25], [0.25], [1.0]])
    >>> own = np.eye(4)
    >>> shares = balance((1 - own) * port, 3 * own * port, np.zeros(4))
    >>> [str(share) for share in shares]
    ['1/3', '1/3', '1/3', '0']
    """
    both = scatter + gather
    parts = [both.shape[1]]
    quickest = minimise([Term(both, fixed)], parts)
    busiest = float((both @ quickest + fixed).max())
    none = np.zeros_like(fixed)
    phases = [
        Term(scatter, none),
        Term(gather, none),
        Term(np.eye(parts[0]) * busiest, 0 * quickest, _EVEN),
    ]
    shares = minimise(phases, parts, Term(both, fixed - busiest * (1 + _SLACK)))
    return round_shares(shares.tolist())


def are_best(busy: NDArray[np.float64], fixed: NDArray[np.float64], shares: NDArray[np.float64]) -> bool:
    """Whether shares are seen, without a solver, to keep the busiest link busy as short as possible.

    The mean over some links bounds the busiest link from below, whatever the shares are, and is smallest if
    one part keeps everything. Taken over the links that are busiest now, that is as long as they are busy
    wherever parts are alike, as on a torus. False says only that this bound does not show it.

    Parameters
    ----------
    busy
        Seconds per byte that each link (row) is busy if one part (column) keeps everything.
    fixed
        Seconds per byte that each link is busy anyway.
    shares
        Of the parts; they sum to one.

    Examples
    --------
    >>> ring = np.ones((3, 3)) - np.eye(3)
    >>> are_best(ring, np.zeros(3), np.full(3, 1 / 3)), are_best(ring, np.zeros(3), np.array([0.5, 0.5, 0]))
    (True, False)
    """
    seconds = busy @ shares + fixed
    least = float(seconds.max()) * (1 - _ROUNDING)
    busiest = seconds >= least
    return bool(busy[busiest].mean(axis=0).min() + fixed[busiest].mean() >= least)


def balance_groups(
    busy: NDArray[np.float64], fixed: NDArray[np.float64], parts: Sequence[int]
) -> list[list[Fraction]]:
    """Shares inside several groups at once that keep the busiest link busy as short as possible.

    Parameters
    ----------
    busy
        Seconds per byte on each link (row) for each part of each group (column).
    fixed
        Seconds per byte that each link is busy anyway.
    parts
        Parts of each group, in the order of columns.

    Examples
    --------
    >>> busy = np.diag([2.0, 1.0, 1.0, 1.0])
    >>> shares = balance_groups(busy, np.zeros(4), [2, 2])
    >>> [[str(share) for share in group] for group in shares]
    [['1/3', '2/3'], ['1/2', '1/2']]
    """
    usual = np.repeat(1 / np.array(parts), parts)
    unit = float((busy @ usual + fixed).max())
    # Shares far from even are only taken where they help.
    evenness = [
        Term(rows, np.zeros(len(rows)), _EVEN)
        for rows in np.split(np.diag(unit / usual), np.cumsum(parts)[:-1])
    ]
    shares = minimise([Term(busy, fixed), *evenness], parts)
    return [round_shares(group.tolist()) for group in np.split(shares, np.cumsum(parts)[:-1])]
