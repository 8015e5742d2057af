"""Looking for a better fusion while training runs: ask for a threshold, train a while, tell how long it took.

Two searches with one interface. `BoundedSearch` is ours: it starts from what the model chose, which is
usually good, and leaves it only for something that is better beyond doubt. `BayesianSearch` is that of the
DeAR paper. Neither looks at a clock or draws a random number: ranks that are told the same ask for the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import InputError
from weft.training.gaussian_process import GaussianProcess, expected_improvement

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

MOST_EVALUATIONS: Final = 10
MEBIBYTE: Final = 1 << 20

_FIRST_STEP: Final = 2.0
"""Octaves between the start and what is tried first on either side of it."""

_NARROW: Final = 0.35
"""Octaves on either side of the best within which nothing more is looked for."""

_PLACES: Final = 1021
"""Thresholds among which expected improvement is compared: every quarter of a MiB of the usual bounds."""


class FusionSearch(ABC):
    """A search that asks and is told.

    Parameters
    ----------
    bounds
        Smallest and largest threshold in bytes.
    start
        The threshold that is tried first.
    evaluations
        How many are tried at most, 1 to `MOST_EVALUATIONS`.

    Raises
    ------
    InputError
        If the start is outside the bounds, or evaluations are too many or none.
    """

    def __init__(self, bounds: tuple[int, int], start: int, evaluations: int) -> None:
        low, high = bounds
        if not 1 <= low <= start <= high:
            msg = f"start {start} and bounds {low} to {high}: expected 1 <= low <= start <= high, in bytes"
            raise InputError(msg)
        limits.check("bytes of a threshold", high, limits.MAX_SIZE_BYTES)
        if not 1 <= evaluations <= MOST_EVALUATIONS:
            raise InputError(f"{evaluations} evaluations: expected 1 to {MOST_EVALUATIONS}")
        self.low, self.high, self.start = low, high, start
        self.evaluations = evaluations
        self.tried: dict[int, float] = {}
        self._proposals = self._propose()
        self._asked: int | None = next(self._proposals)

    def ask(self) -> int | None:
        """Give the threshold to train with until `tell`; None when the search is over."""
        return self._asked

    def tell(self, seconds: float) -> None:
        """Say how long an iteration took with the threshold that was asked for.

        Raises
        ------
        InputError
            If the search is over, or this is not a time.
        """
        if self._asked is None:
            raise InputError(f"the search is over after {len(self.tried)} evaluations; take .best")
        if not 0 < seconds < math.inf:
            raise InputError(f"an iteration of {seconds} s: expected a time above 0")
        self.tried[self._asked] = seconds
        if len(self.tried) >= self.evaluations:
            self._asked = None
            return
        try:
            self._asked = self._proposals.send(seconds)
        except StopIteration:
            self._asked = None

    @property
    def best(self) -> int:
        """The threshold to stay with, as far as is known."""
        return min(self.tried, key=lambda threshold: self.tried[threshold], default=self.start)

    @abstractmethod
    def _propose(self) -> Generator[int, float, None]:
        """Yield `start`, then others that were not tried yet; each is answered by its seconds."""


class BoundedSearch(FusionSearch):
    """Look around a start on a logarithmic scale: widen until both sides are worse, then close in.

    `best` stays with the start unless another threshold was faster by more than the noise.

    Parameters
    ----------
    bounds, start, evaluations
        As for `FusionSearch`.
    noise
        Share of an iteration's time by which two measurements of the same thing may differ.
    others
        Thresholds that a model thinks nearly as good, in the order in which they are tried after the start;
        the search then looks around the best of all these. Times over thresholds are jagged, and a model
        that is a little wrong about them is still right about where the good ones are.

    Examples
    --------
    >>> search = BoundedSearch((1, 1 << 20), start=1 << 10)
    >>> while (threshold := search.ask()) is not None:
    ...     search.tell(1 + abs(math.log2(threshold) - 13))
    >>> search.best == 1 << 13, len(search.tried) <= 10
    (True, True)
    """

    def __init__(
        self,
        bounds: tuple[int, int],
        start: int,
        evaluations: int = MOST_EVALUATIONS,
        *,
        noise: float = 0.02,
        others: Sequence[int] = (),
    ) -> None:
        if not 0 <= noise < 1:
            raise InputError(f"noise of {noise}: expected a share of the time, from 0 to below 1")
        self.noise = noise
        self.others = tuple(min(bounds[1], max(bounds[0], other)) for other in others)
        super().__init__(bounds, start, evaluations)

    @property
    def best(self) -> int:
        """The threshold to stay with, as far as is known."""
        found = super().best
        known = self.tried.get(self.start)
        if known is not None and self.tried[found] < known * (1 - self.noise):
            return found
        return self.start

    def _propose(self) -> Generator[int, float, None]:
        yield self.start
        for other in self.others:
            if other not in self.tried:
                yield other
        centre = super().best
        fastest = self.tried[centre]
        for direction in (1, -1):
            reach, improved = centre, False
            while (reach := self._move(reach, direction * _FIRST_STEP)) not in self.tried:
                seconds = yield reach
                if seconds >= fastest:
                    break
                fastest, improved = seconds, True
            if improved:
                break
        while (threshold := self._closer()) is not None:
            yield threshold

    def _move(self, threshold: int, octaves: float) -> int:
        return min(self.high, max(self.low, round(threshold * math.exp2(octaves))))

    def _closer(self) -> int | None:
        """The next threshold beside the fastest; None when its neighbours are near."""
        known = sorted(self.tried)
        middle = known.index(super().best)
        sides = [side for side in (middle - 1, middle + 1) if 0 <= side < len(known)]
        gaps = {side: abs(math.log2(known[side] / known[middle])) for side in sides}
        far = [side for side in sides if gaps[side] > _NARROW and abs(known[side] - known[middle]) > 1]
        if not far:
            return None
        if len(sides) == 2 and (vertex := self._vertex(known[middle - 1 : middle + 2])) is not None:
            return vertex
        side = max(far, key=lambda side: gaps[side])
        between = round(math.sqrt(known[side] * known[middle]))
        return between if between not in self.tried else None

    def _vertex(self, three: list[int]) -> int | None:
        """Lowest point of the parabola through three; None where that is next to one that is known."""
        left, middle, right = (math.log2(threshold) for threshold in three)
        first, second, third = (self.tried[threshold] for threshold in three)
        rise, fall = (middle - left) * (second - third), (middle - right) * (second - first)
        if rise == fall:
            return None
        lowest = middle - ((middle - left) * rise - (middle - right) * fall) / (2 * (rise - fall))
        if min(abs(lowest - place) for place in (left, middle, right)) < _NARROW or not left < lowest < right:
            return None
        return min(self.high, max(self.low, round(math.exp2(lowest))))


class BayesianSearch(FusionSearch):
    """Bayesian optimisation of the threshold as in the DeAR paper: a Gaussian process, expected improvement.

    One difference: `xi` counts in standard deviations of the times so far. In seconds, as there, it would
    mean something else for a model of 10 ms and one of 10 s.

    Parameters
    ----------
    bounds, start, evaluations
        As for `FusionSearch`; by default those of the paper's code.
    xi
        Improvement that is not worth looking for; larger values explore more.

    Examples
    --------
    >>> search = BayesianSearch()
    >>> while (threshold := search.ask()) is not None:
    ...     search.tell(1 + abs(threshold / MEBIBYTE - 100) / 100)
    >>> abs(search.best / MEBIBYTE - 100) < 10
    True
    """

    def __init__(
        self,
        bounds: tuple[int, int] = (MEBIBYTE, 256 * MEBIBYTE),
        start: int = 25 * MEBIBYTE,
        evaluations: int = MOST_EVALUATIONS,
        *,
        xi: float = 0.1,
    ) -> None:
        if not 0 <= xi < math.inf:
            raise InputError(f"xi of {xi}: expected a number of standard deviations, at least 0")
        self.xi = xi
        super().__init__(bounds, start, evaluations)

    def _propose(self) -> Generator[int, float, None]:
        yield self.start
        places = np.unique(np.linspace(self.low, self.high, _PLACES).round().astype(np.int64))
        width = max(1, self.high - self.low)
        while True:
            untried = places[~np.isin(places, list(self.tried))]
            if not len(untried):
                return
            known = (np.array(list(self.tried)) - self.low) / width
            speed = -np.array(list(self.tried.values()))
            spread = float(speed.std()) or 1.0
            speed = (speed - speed.mean()) / spread
            process = GaussianProcess(known, speed)
            mean, deviation = process.predict((untried - self.low) / width)
            gain = expected_improvement(mean, deviation, float(speed.max()), self.xi)
            yield int(untried[np.argmax(gain)])
