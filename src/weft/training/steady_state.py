"""Finds how long an iteration takes in the steady state, from when each rank began each iteration.

Ranks need not keep in step: where a collective ends earlier at some ranks than at others, the early ones
begin their next forward pass early, and on uneven clusters iterations then take turns between two or more
lengths. The time of one of them would depend on how many were simulated; the mean over a period does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft import units

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAME: Final = 1e-4
"""Times that differ by less than this share of an iteration count as repeated; four digits are printed."""


class SteadyWindow(NamedTuple):
    """The last iterations whose mean is the time of an iteration.

    `intervals_s` are their seconds, from one start of the slowest rank to the next. `settled` says whether
    they are one whole period: the same number of iterations before them took the same times at every rank.
    """

    intervals_s: tuple[float, ...]
    settled: bool

    @property
    def seconds(self) -> float:
        """Mean seconds of an iteration."""
        return sum(self.intervals_s) / len(self.intervals_s)


def find_steady_window(starts_ps: NDArray[np.int64]) -> SteadyWindow:
    """Give the shortest period with which the last iterations repeat, or else their later half.

    Parameters
    ----------
    starts_ps
        When each of at least two iterations began (rows), at each rank (columns).

    Examples
    --------
    >>> find_steady_window(np.array([[0], [50], [90], [120], [160], [190]])).intervals_s
    (4e-11, 3e-11)
    >>> find_steady_window(np.array([[0], [5], [9]]))
    SteadyWindow(intervals_s=(4e-12,), settled=False)
    """
    period = _shortest_period(np.diff(starts_ps, axis=0))
    if period is None:
        return _window(starts_ps, len(starts_ps) // 2, settled=False)
    return _window(starts_ps, period, settled=True)


def find_period(starts_s: NDArray[np.float64]) -> int:
    """Count the last iterations whose mean is the time of an iteration, from when each of them began.

    Examples
    --------
    >>> find_period(np.array([0.0, 5.0, 9.0, 12.0, 16.0, 19.0]))
    2
    """
    period = _shortest_period(np.diff(starts_s)[:, np.newaxis])
    return len(starts_s) // 2 if period is None else period


def _shortest_period(steps: NDArray[np.int64] | NDArray[np.float64]) -> int | None:
    """After how many iterations (rows) the last times repeat at every rank (columns); None if never."""
    count = len(steps)
    allowed = SAME * float(steps[-1].max())
    for period in range(1, count // 2 + 1):
        if np.abs(steps[-period:] - steps[-2 * period : count - period]).max() <= allowed:
            return period
    return None


def _window(starts_ps: NDArray[np.int64], count: int, *, settled: bool) -> SteadyWindow:
    intervals = np.diff(starts_ps.max(axis=1))[-count:] / units.PS_PER_S
    return SteadyWindow(tuple(intervals.tolist()), settled)
