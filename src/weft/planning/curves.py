"""Time over size, from a few simulations: brackets between which the rest must lie.

The time of a schedule that is cut into a fixed number of segments is a longest path through its transfers.
Each link's part of a path is a latency plus bytes over a speed, so with the order of transfers fixed the time
is convex and piecewise linear in the size, never falls, and grows at most in proportion. Between two
simulated sizes it then lies below their chord, and above the chords of the neighbours, prolonged.

Links may serve transfers in another order at another size, and then the time jumps: a ring of segments that
just kept up with the latency falls behind. A curve that was caught jumping is only trusted not to fall and
not to grow faster than the size. So the brackets are estimates, no proofs; who takes a curve simulates it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUGH: Final = 1.01
"""Times that are further than this from what a convex curve allows show that the curve jumps."""

ROUGH_SLACK: Final = 0.99
EVEN_SLACK: Final = 0.998
DOUBT: Final = 0.06
"""How far below what a curve must be at least if it never falls nor outgrows the size it may yet be; the last
for curves that were never caught jumping, an octave away from what was simulated, and less nearer to it."""


@dataclass(frozen=True, slots=True)
class CurveSample:
    """One simulation: its time, the link that was busy longest, and how many events it took.

    `steady` is its time or, where that is longer, the time of a buffer that is a few bytes larger or smaller:
    what can be relied on.
    """

    seconds: float
    busiest: int
    busy: float
    events: int = 0
    steady: float = 0.0


@dataclass(eq=False)
class TimeCurve:
    """One candidate, its longest message cut into `cuts` segments, over all sizes of a grid.

    Parameters
    ----------
    candidate
        Number of the candidate.
    cuts
        Segments of its longest message; between one and two, one segment is larger than the other.
    valid
        Grid sizes at which segments are not too small.
    dear
        Whether a simulation of it is expensive.
    runs
        Simulations by size in bytes.
    lower, upper
        Brackets of the time at the grid's sizes; infinite where not valid.
    """

    candidate: int
    cuts: float
    valid: NDArray[np.bool_]
    dear: bool = False
    runs: dict[int, CurveSample] = field(default_factory=dict)
    lower: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    upper: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def bracket(self, sizes: NDArray[np.int64], least: NDArray[np.float64]) -> None:
        """Set `lower` and `upper` from the runs and from times that are known to be too short."""
        self.lower, self.upper = bracket(sizes, self.runs, least, even=self.dear)
        self.lower[~self.valid] = self.upper[~self.valid] = np.inf

    def estimate(self, size_bytes: int) -> float:
        """Time at any size: simulated, or the upper bracket."""
        if size_bytes in self.runs:
            return self.runs[size_bytes].seconds
        return float(bracket(np.array([size_bytes]), self.runs, np.zeros(1), even=self.dear)[1][0])


def bracket(
    sizes: NDArray[np.int64], runs: dict[int, CurveSample], least: NDArray[np.float64], *, even: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bracket of the time at some sizes.

    Parameters
    ----------
    sizes
        Where.
    runs
        Simulations by size.
    least
        A lower bracket known from elsewhere.
    even
        Whether jumps are believed to be small, because there are very many segments.

    Examples
    --------
    >>> runs = {100: CurveSample(2.0, 0, 1.0), 300: CurveSample(4.0, 0, 1.0)}
    >>> lower, upper = bracket(np.array([50, 200, 600]), runs, np.zeros(3))
    >>> lower.tolist(), upper.tolist()
    ([1.5, 2.5066666666666664, 7.0], [2.0, 3.0, 8.0])
    """
    if not runs:
        return least.copy(), np.full(len(sizes), np.inf)
    known = sorted(runs)
    x = np.array(known, np.float64)
    t = np.array([max(runs[size].seconds, runs[size].steady) for size in known])
    s = sizes.astype(np.float64)
    right = np.searchsorted(x, s)
    left = right - 1
    last = len(x) - 1
    bounded, grown = right <= last, left >= 0
    lower = least.copy()
    lower[bounded] = np.maximum(lower[bounded], t[right[bounded]] * s[bounded] / x[right[bounded]])
    lower[grown] = np.maximum(lower[grown], t[left[grown]])
    above = t[-1] * np.maximum(s / x[-1], 1.0)
    smooth = np.where(bounded, np.interp(s, x, t), above)
    if is_rough(x, t):
        # It never falls, and does not outgrow the size: the nearer of what these two say.
        simulated = bounded & (x[np.minimum(right, last)] == s)
        risen = np.where(bounded, t[np.minimum(right, last)], above)
        spread = np.where(grown, t[np.maximum(left, 0)] * s / x[np.maximum(left, 0)] / ROUGH_SLACK, np.inf)
        upper = smooth if even else np.where(simulated, risen, np.minimum(risen, spread))
        slack = EVEN_SLACK if even else ROUGH_SLACK
        return np.where(simulated, upper, np.minimum(slack * lower, upper)), upper
    upper = smooth
    slope = np.diff(t) / np.diff(x) if last else np.zeros(1)
    ahead, behind = left >= 1, right < last
    beyond = t[left[ahead]] + slope[left[ahead] - 1] * (s[ahead] - x[left[ahead]])
    lower[ahead] = np.maximum(lower[ahead], beyond)
    before = t[right[behind]] - slope[right[behind]] * (x[right[behind]] - s[behind])
    lower[behind] = np.maximum(lower[behind], before)
    inside = bounded & grown & (x[np.minimum(right, last)] != s)
    gap = np.log2(x[right[inside]] / x[left[inside]])
    lower[inside] *= 1 - (0.1 if even else 1.0) * DOUBT * np.minimum(gap, 1.0)
    return np.minimum(lower, upper), upper


def is_rough(x: NDArray[np.float64], t: NDArray[np.float64]) -> bool:
    """Whether times jump somewhere: grow faster than the size, fall, or rise above their neighbours' chord.

    Examples
    --------
    >>> sizes = np.array([1.0, 2.0, 4.0])
    >>> is_rough(sizes, np.array([3.0, 4.0, 6.0])), is_rough(sizes, np.array([3.0, 5.5, 6.0]))
    (False, True)
    """
    if len(x) < 2:
        return False
    jumps = (t[1:] / t[:-1] > ROUGH * x[1:] / x[:-1]) | (t[1:] * ROUGH < t[:-1])
    chord = t[:-2] + (t[2:] - t[:-2]) * (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    return bool(jumps.any() or (t[1:-1] > ROUGH * chord).any())
