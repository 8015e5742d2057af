"""Who is fastest at which size, with as few simulations as will do.

Every candidate has a curve of time over size for each number of cuts. A curve is known at the sizes that were
simulated and bracketed elsewhere (`weft.planning.curves`). The plan takes the smallest upper bracket; what it
might lose is the ratio to the smallest lower one. The search looks where that loss is largest and simulates
the curve that might be better there, until nothing can be gained anywhere. A candidate that is far from best
costs two simulations, one that is best matters where its curve bends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.planning.curves import CurveSample, TimeCurve
from weft.planning.segment_shares import LEAST_SEGMENT, SEGMENT_TOLERANCE, segment_share, segment_size
from weft.simulation.segment_sizes import SEGMENT_BUDGET
from weft.simulation.simulator import run_once

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from weft.planning.candidates import Candidate

CUTS: Final = (1, 1.4, 2, 4, 8, 16, 32, 64, 128, 256)
"""Segments of the longest message, from whole messages on; 1.4 makes a large and a small one."""

EVENT_BUDGET: Final = 1_200_000
CHEAP_EVENTS: Final = 60_000
"""A cut whose simulation has more events is not tried, or not everywhere: they take 0.2 to 0.4 us each.

Where only named sizes are planned, `SEGMENT_BUDGET` takes the place of the first.
"""

_DEAR_STRIDE: Final = 16

_SHAKEN_BYTES: Final = 1 << 10
"""Below this a few bytes more are another buffer."""

_FEW_EVENTS: Final = 6_000
"""Up to so many, a simulation takes a millisecond, and few transfers are where times jump most."""

SEARCH_TOLERANCE: Final = 1.004
MERGE_TOLERANCE: Final = 1.01
"""What the search may leave on the table, and what fewer ranges may cost."""

RANGE_TOLERANCE: Final = 1.015
"""What both may cost together at a size that nobody named: for less than this, no new range begins."""

_TRIED_WHOLLY: Final = 2
"""So many algorithms are simulated in all their cuts at a size that was named."""

_SMOOTH: Final = 1.012
_EXACT: Final = 1.0005
"""A crossing within which the curves change by less than the first is smooth; others are narrowed so far."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sizes ``first .. last`` at which one curve is taken."""

    curve: int
    first: int
    last: int


class PlanSearch:
    """Candidates and what is known of them.

    Parameters
    ----------
    sizes
        Grid of sizes in bytes, ascending.
    floor
        Times at these sizes that nothing can beat.
    named
        Sizes of the grid at which the very best counts: whoever asked for them will run nothing else.
    """

    def __init__(
        self, sizes: NDArray[np.int64], floor: NDArray[np.float64], named: Collection[int] = ()
    ) -> None:
        self.sizes = sizes
        self.floor = floor
        self._named = np.isin(sizes, list(named))
        self.candidates: list[Candidate] = []
        self.curves: list[TimeCurve] = []
        self.simulations = 0
        self._least: list[NDArray[np.float64]] = []
        self._rows: list[range] = []
        self._lower = np.zeros((0, len(sizes)))
        self._upper = np.zeros((0, len(sizes)))

    def add(self, candidate: Candidate) -> None:
        """Take up a candidate and simulate it, uncut, at the smallest and largest size.

        Raises
        ------
        LimitError
            If it takes longer than the engine counts.
        """
        number, largest = len(self.candidates), int(self.sizes[-1])
        whole = TimeCurve(number, 1, np.ones(len(self.sizes), bool))
        # Before it is taken up: what takes longer than the engine counts is refused here, and nowhere else.
        run = whole.runs[largest] = self._simulate(candidate, largest, None)
        self.candidates.append(candidate)
        whole.dear = run.events > CHEAP_EVENTS
        self.curves += [whole, *self._cut(candidate, number, run.events / max(candidate.segments(1), 1))]
        # Whatever the cut: a link is busy in proportion to the size, and a byte takes its time to get around.
        least = self.sizes.astype(np.float64) * (run.busy * run.seconds / largest)
        if len(self.sizes) > 1:
            smallest = self.run(whole, int(self.sizes[0]))
            latency = self._simulate(candidate, max(candidate.schedule.chunks, 1), None)
            least = np.maximum(least, min(latency.seconds, smallest.seconds))
        self._least.append(least)
        self._rows.append(range(len(self._lower), len(self.curves)))
        room = np.zeros((len(self._rows[-1]), len(self.sizes)))
        self._lower, self._upper = np.vstack([self._lower, room]), np.vstack([self._upper, room])
        for curve in self._family(number):
            curve.bracket(self.sizes, least)
        self._refresh(whole)

    def _cut(self, candidate: Candidate, number: int, events_per_segment: float) -> Iterator[TimeCurve]:
        """Curves of a candidate's cuts, as far as they are worth a try."""
        for cuts in CUTS[1:]:
            if cuts < 2 and candidate.schedule.messages == candidate.schedule.transfers:
                continue  # a message of one chunk is cut into equal pieces
            valid = self.sizes * (candidate.longest / cuts) >= LEAST_SEGMENT
            segments = candidate.segments(cuts)
            events = round(segments * events_per_segment)
            # At sizes that were all named, what `weft compare` would try is tried as well.
            few = segments <= SEGMENT_BUDGET if self._named.all() else events <= EVENT_BUDGET
            if not valid.any() or not few:
                return
            yield TimeCurve(number, cuts, valid, dear=events > CHEAP_EVENTS)

    def share(self, curve: TimeCurve) -> float | None:
        """Share of the buffer in a segment of a curve; None if messages are not cut."""
        return segment_share(self.candidates[curve.candidate].longest, curve.cuts)

    def run(self, curve: TimeCurve, size_bytes: int) -> CurveSample:
        """Simulate a curve at a size, unless that was done before."""
        found = curve.runs.get(size_bytes)
        if found is None:
            candidate = self.candidates[curve.candidate]
            cut = segment_size(self.share(curve), size_bytes)
            found = curve.runs[size_bytes] = self._simulate(candidate, size_bytes, cut)
            if curve.candidate < len(self._least):
                self._draw(curve)
        return found

    def _shake(self, curve: TimeCurve, size_bytes: int) -> None:
        """Simulate a curve at a size and beside it, and take the longer time for what it needs."""
        run = self.run(curve, size_bytes)
        if run.steady or size_bytes < _SHAKEN_BYTES:
            return
        candidate = self.candidates[curve.candidate]
        ranks, cut = candidate.schedule.ranks, segment_size(self.share(curve), size_bytes)
        # Equal shards, one that is larger, half of them larger; of these, two that are not the size itself.
        whole = max(size_bytes - size_bytes % ranks, ranks)
        beside = [size for size in (whole, whole + 1, whole + ranks // 2) if size != size_bytes][:2]
        beside = [min(size, limits.MAX_SIZE_BYTES) for size in beside]
        others = [self._simulate(candidate, size, cut).seconds for size in beside]
        if run.events <= _FEW_EVENTS:
            for size in (size_bytes * 31 // 32 | 1, min(size_bytes * 33 // 32 | 1, limits.MAX_SIZE_BYTES)):
                near = self._simulate(candidate, size, segment_size(self.share(curve), size))
                others.append(near.seconds * min(1.0, size_bytes / size))
        curve.runs[size_bytes] = replace(run, steady=max(run.seconds, *others))
        self._draw(curve)

    def _simulate(self, candidate: Candidate, size_bytes: int, segment_bytes: int | None) -> CurveSample:
        self.simulations += 1
        result = run_once(candidate.schedule, size_bytes, segment_bytes)
        link = result.busiest_link
        return CurveSample(result.seconds, link, result.utilisation(link), result.events)

    def _family(self, number: int) -> list[TimeCurve]:
        """All cuts of a candidate, coarse to fine."""
        rows = self._rows[number]
        return self.curves[rows.start : rows.stop]

    def _draw(self, curve: TimeCurve) -> None:
        """Draw the brackets of a curve anew, after a run of it."""
        curve.bracket(self.sizes, self._least[curve.candidate])
        self._refresh(curve)

    def _refresh(self, changed: TimeCurve) -> None:
        """Take up the brackets of a curve, and what they foretell of finer cuts."""
        family, first = self._family(changed.candidate), self._rows[changed.candidate].start
        for index in range(family.index(changed), len(family)):
            curve, lower = family[index], self._lower[first + index]
            lower[:] = curve.lower
            if index > 1:
                foreseen = _foresee(family[index - 2], family[index - 1], self._lower[first + index - 1])
                believed = foreseen < curve.upper
                lower[believed] = np.maximum(lower, foreseen)[believed]
            self._upper[first + index] = curve.upper

    @property
    def regret(self) -> NDArray[np.float64]:
        """By what factor the best known time at each size might be beaten."""
        ratio: NDArray[np.float64] = self.best / np.maximum(self._lower.min(axis=0), self.floor)
        return ratio

    @property
    def best(self) -> NDArray[np.float64]:
        """Shortest known time at each size."""
        least: NDArray[np.float64] = self._upper.min(axis=0)
        return least

    def step(self) -> bool:
        """Make the simulation that promises most; False when none promises anything."""
        regret = self.regret
        place = int(np.argmax(regret))
        if regret[place] <= SEARCH_TOLERANCE:
            return False
        number = self.curves[int(np.argmin(self._lower[:, place]))].candidate
        # From coarse to fine: how much a cut gains says what the next one can.
        for row in self._rows[number]:
            curve = self.curves[row]
            if curve.valid[place] and curve.upper[place] > SEARCH_TOLERANCE * self._lower[row, place]:
                self.run(curve, int(self.sizes[place]))
                return True
        return False

    def audit(self) -> bool:
        """Simulate what would be chosen where; False if nothing changes that choice any more.

        Curves may jump where their brackets do not show it. So cheap ones are simulated at every size, and
        with a few bytes more or less: whoever is fast only while all chunks arrive at the same instant is not
        to be relied on. Dear ones, whose many segments even such things out, are sampled.
        """
        before = self.best.copy()
        for stretch in self.stretches():
            curve, lower = self.curves[stretch.curve], self._lower[stretch.curve]
            for place in range(stretch.first, stretch.last + 1):
                wide = curve.upper[place] > SEARCH_TOLERANCE * lower[place]
                if self._named[place]:
                    self._settle(place)
                elif not curve.dear:
                    self._shake(curve, int(self.sizes[place]))
                elif wide or (place - stretch.first) % _DEAR_STRIDE == 0:
                    self.run(curve, int(self.sizes[place]))
        return bool((np.abs(self.best / before - 1) > SEARCH_TOLERANCE - 1).any())

    def _settle(self, place: int) -> None:
        """Simulate the best of each algorithm at a size that was named, unless it cannot be the best."""
        size, waiting = int(self.sizes[place]), True
        while waiting:
            foremost: dict[str, int] = {}
            for row in np.argsort(self._upper[:, place], kind="stable").tolist():
                foremost.setdefault(self.candidates[self.curves[row].candidate].algorithm, row)
            promising = [row for row in foremost.values() if self._lower[row, place] <= self.best[place]]
            curves = [self.curves[row] for row in promising]
            waiting = any(size not in curve.runs for curve in curves)
            for curve in curves:
                self.run(curve, size)
            if not waiting:
                waiting = self._try_every_cut(foremost.values(), place)

    def _try_every_cut(self, foremost: Iterable[int], place: int) -> bool:
        """Simulate all cuts of the best algorithms at a grid size; False if that was done before.

        What finer cuts gain is foretold from coarser ones (`_foresee`), and times that jump break the rule.
        """
        size, new = int(self.sizes[place]), False
        for row in list(foremost)[:_TRIED_WHOLLY]:
            for curve in self._family(self.curves[row].candidate):
                if curve.valid[place] and size not in curve.runs:
                    self.run(curve, size)
                    new = True
        return new

    def preferred(self) -> NDArray[np.int64]:
        """Curve that counts for each candidate at each size: the coarsest cut about as fast as any."""
        found = []
        for rows in self._rows:
            upper = self._upper[rows.start : rows.stop]
            found.append(rows.start + np.argmax(upper <= SEGMENT_TOLERANCE * upper.min(axis=0), axis=0))
        return np.array(found)

    def stretches(self) -> list[Stretch]:
        """Cover all sizes with few curves, none of them noticeably slower than the best."""
        preferred = self.preferred()
        times = np.take_along_axis(self._upper, preferred, axis=0)
        first = np.zeros(self._upper.shape, bool)
        np.put_along_axis(first, preferred, times <= times.min(axis=0), axis=0)
        good = np.where(self._named, first, self._upper <= MERGE_TOLERANCE * self.best)
        found: list[Stretch] = []
        start, end = 0, len(self.sizes)
        while start < end:
            # How far each curve stays good from here on.
            reach = np.where(good[:, start:].all(axis=1), end - start, np.argmin(good[:, start:], axis=1))
            longest = int(reach.max())
            ties = np.flatnonzero(reach == longest)
            total = self._upper[ties, start : start + longest].sum(axis=1)
            candidate = self.curves[int(ties[np.argmin(total)])].candidate
            # All of these are good; of one candidate the first has the fewest cuts.
            curve = next(row for row in ties.tolist() if self.curves[row].candidate == candidate)
            found.append(Stretch(curve, start, start + longest - 1))
            start += longest
        return found

    def crossover(self, before: Stretch, after: Stretch) -> int:
        """Size from which on the second stretch's curve is the better one, and a round one if possible.

        Near a smooth crossing either curve will do. Where one of them jumps, the place is searched narrowly,
        and what remains of it is given to the curve that loses less there.
        """
        a, b = self.curves[before.curve], self.curves[after.curve]
        here = after.first
        while here - 1 > before.first and b.upper[here - 1] < a.upper[here - 1]:
            here -= 1
        low, high = int(self.sizes[here - 1]), int(self.sizes[here])
        near = 1.05 if a.dear or b.dear else 1.02
        at_low, at_high = (self.run(a, size).seconds / self.run(b, size).seconds for size in (low, high))
        if at_high < 1 / _SMOOTH:
            return high + 1  # the first is faster at this very size, and only there
        exact = 1.004 if a.dear or b.dear else _EXACT
        while high > max(exact * low, low + 1) and (high > near * low or at_high > _SMOOTH * at_low):
            middle = max(math.isqrt(low * high), low + 1)
            ratio = self.run(a, middle).seconds / self.run(b, middle).seconds
            if ratio <= 1:
                low, at_low = middle, ratio
            else:
                high, at_high = middle, ratio
        if at_high <= _SMOOTH * at_low:
            # At a round size all chunks may be equal, and times exceptional.
            meet = _roundest(low, high)
            exceptional = self.run(b, meet).seconds > _SMOOTH * self.run(a, meet).seconds
            return min(meet + 1, high) if exceptional else meet
        return high if at_low * at_high < 1 else low + 1

    def preferred_at(self, place: int) -> list[TimeCurve]:
        """One curve of each candidate, the cut that a plan takes at a grid size."""
        return [self.curves[row] for row in self.preferred()[:, place].tolist()]


def _roundest(low: int, high: int) -> int:
    """Of the numbers above `low` and up to `high`, the one with the fewest binary digits before its zeros.

    Examples
    --------
    >>> _roundest(1000, 1030), _roundest(1025, 1030), _roundest(699_000, 699_999)
    (1024, 1028, 699392)
    """
    zeros = (low ^ high).bit_length() - 1
    return high >> zeros << zeros


def _foresee(coarse: TimeCurve, finer: TimeCurve, lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time that still finer cuts need at least, from what the finer of two gained; 0 where that is not known.

    With k segments a pipeline takes P + Q / k. Two cuts say what Q is; three times as much is granted.
    `lower` is all that is known of the finer one from below.
    """
    known = np.isfinite(coarse.upper) & np.isfinite(finer.upper)
    gained = np.subtract(coarse.upper, lower, where=known, out=np.zeros_like(coarse.upper))
    rest = 3 * np.maximum(gained, 0.0) * coarse.cuts / (finer.cuts - coarse.cuts)
    return np.where(known, 0.997 * lower - rest, 0.0)
