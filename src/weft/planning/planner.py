"""Making a plan: candidates in, the search, a plan out, and better ones as they come.

Every algorithm and variant that applies is built and verified; `weft.planning.fastest_by_size` finds which
is fastest where; the plan keeps those schedules with their ranges of sizes.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import units
from weft.algorithms.registry import Refusal
from weft.bounds.collective_bound import lower_bound
from weft.errors import InputError, LimitError
from weft.planning.budget import expect_rows
from weft.planning.candidate_tasks import build_on
from weft.planning.candidates import Candidate, Recipe, build, list_recipes
from weft.planning.fastest_by_size import PlanSearch, Stretch
from weft.planning.plan_file import load_plan
from weft.planning.plans import Contender, Plan, PlanPoint, Range
from weft.planning.refusals import list_skipped, refuse_as_too_slow, require_candidates
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from weft.algorithms.resolver import AlgorithmLike
    from weft.bounds.collective_bound import Bound
    from weft.collective_names import Collective
    from weft.planning.curves import TimeCurve
    from weft.topology import Topology

SMALLEST: Final = 4 << 10
LARGEST: Final = 1 << 30
"""Sizes of a plan that is not asked for any."""

_POINT_RATIO: Final = 4
_STEPS_PER_PLAN: Final = 20
_WORTH_TELLING: Final = 1.02
_SHORT: Final = ("double_binary_tree", "recursive_doubling")
"""They have few transfers even on many ranks."""

_SIMULATED: Final = 4
"""Algorithms that a complete plan has simulated at the headline size: what it takes, and what it shows."""

_NOTHING_S: Final = 0.05

_QUICK_S: Final = 0.05
"""What took longer to build must not hold up the first plan of a warm start."""


def plan(
    topology: str | Path | Topology,
    size: str | int | Sequence[str | int] | None = None,
    *,
    collective: Collective = "all_reduce",
    root: int = 0,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike] | None = None,
    time_limit: float | None = None,
    warm_start: Plan | str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    executor: Executor | None = None,
) -> Plan:
    """Choose the best schedule for every size.

    Parameters
    ----------
    topology
        Whatever `weft.load_topology` takes.
    size
        A size such as ``"64MiB"``, several, or None for everything from 4 KiB to 1 GiB. The plan serves other
        sizes too, those between the asked ones as well as these; at a size that is asked for it takes the
        very best, elsewhere what is within a percent of it and makes fewer ranges. Of the cuts of a schedule
        that are within a percent of its best, it takes the one with the largest segments.
    collective, root
        One of `weft.schedule.COLLECTIVES`; the root counts for broadcast and reduce.
    algorithms
        What to choose from, as for `weft.compare`; by default all of Weft's. A wrong schedule of one's own is
        listed as skipped, with the reason.
    time_limit
        Seconds of wall-clock time after which the best plan so far is returned. A plan is always returned:
        what was begun when time ran out, and a first candidate in any case, is finished.
    warm_start
        A plan of a similar network, such as this one before a link failed, or the name of its file: what it
        chose is tried first.
    progress
        Called as ``progress(what, done, total)`` now and then.
    executor
        Any of `concurrent.futures`: it builds the algorithms, all but those of one's own. Their schedules are
        verified and timed here.

    Raises
    ------
    UnsupportedError
        If no algorithm applies; has the first one's reason.
    VerificationError
        If an algorithm made a wrong schedule; names it.
    InputError
        If something is unknown.

    Examples
    --------
    >>> found = plan("ring:8", "64MiB", algorithms=["ring", "bidirectional_ring"])
    >>> found.algorithm, round(found.fraction_of_bound, 2)
    ('bidirectional_ring', 0.99)
    """
    plans = plan_steps(
        topology,
        size,
        collective=collective,
        root=root,
        algorithms=algorithms,
        time_limit=time_limit,
        warm_start=warm_start,
        progress=progress,
        executor=executor,
    )
    return deque(plans, maxlen=1).pop()


def plan_steps(
    topology: str | Path | Topology,
    size: str | int | Sequence[str | int] | None = None,
    *,
    collective: Collective = "all_reduce",
    root: int = 0,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike] | None = None,
    time_limit: float | None = None,
    warm_start: Plan | str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    executor: Executor | None = None,
) -> Iterator[Plan]:
    """Plans that get better, the first one as soon as there is any; arguments and errors as for `plan`.

    Every plan is valid by itself: all its schedules are verified. The last one is what `plan` returns.

    Examples
    --------
    >>> steps = plan_steps("torus:4x4", "1MiB")
    >>> first = next(steps)
    >>> first.algorithm, first.complete
    ('multitree', False)
    >>> last = list(steps)[-1]
    >>> last.complete, last.seconds <= first.seconds
    (True, True)
    """
    if time_limit is not None and not time_limit >= 0:
        raise InputError(f"a time limit of {time_limit} seconds: give 0 or more, or None for no limit")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    topology = load_topology(topology)
    topology.check_root(root)
    points = _points(size)
    known = load_plan(warm_start) if isinstance(warm_start, str | Path) else warm_start
    recipes = _recipes(topology, collective, algorithms, known, time_limit, points)
    planner = _Planner(topology, collective, root, points, named=size is not None)

    def tell(what: str, done: int) -> None:
        if progress is not None:
            progress(what, done, 2 * len(recipes))

    only = points[0] if len(points) == 1 else None
    with closing(planner.build(recipes, only, deadline, executor)) as made:
        for index, recipe in enumerate(recipes):
            tell(recipe.label, index)
            if planner.add(next(made)) and planner.worth_telling():
                yield planner.make(complete=False)
    require_candidates(planner.search.candidates, planner.refusals, chosen=bool(algorithms))
    tell("sizes", len(recipes))
    complete = False
    while deadline is None or time.monotonic() < deadline:
        if not planner.improve():
            complete = not planner.hurried
            break
        tell(f"{planner.search.simulations} simulations", len(recipes) + len(recipes) // 2)
        if planner.worth_telling():
            yield planner.make(complete=False)
    yield planner.make(complete=complete)


def _recipes(
    topology: Topology,
    collective: str,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike] | None,
    warm_start: Plan | None,
    time_limit: float | None,
    sizes: Sequence[int],
) -> list[Recipe]:
    """Everything to try: quick things first, and what another plan chose."""
    if warm_start is not None and warm_start.collective != collective:
        raise InputError(f"warm start: that plan is for {warm_start.collective}, this one for {collective}")
    # What served the largest sizes first: what is slow there is slow by far.
    known = [] if warm_start is None else [warm_start.schedules[r.schedule] for r in warm_start.ranges[::-1]]
    quick = [planned.label for planned in known if planned.synthesis_seconds <= _QUICK_S]
    if time_limit is not None and expect_rows(2.0 * topology.ranks**2) > max(time_limit / 4, _NOTHING_S):
        quick = [*_SHORT, *quick]
    return list_recipes(collective, algorithms, quick, [planned.label for planned in known], sizes)


class _Planner:
    """One search, and the plans it gives."""

    def __init__(
        self, topology: Topology, collective: str, root: int, points: list[int], *, named: bool
    ) -> None:
        self.began = time.process_time()
        self.topology = topology
        self.collective = collective
        self.root = root
        self.points = points
        self.bounds: dict[int, Bound] = {}
        self.refusals: list[Refusal] = []
        self.hurried = False
        sizes = _grid(points)
        bound = self.bound(points[-1])
        floor = np.maximum(sizes * (bound.bandwidth_seconds / points[-1]), bound.latency_seconds)
        # A bound is nearly proportional: rounding to whole bytes may lower it for a smaller size.
        self.search = PlanSearch(sizes, 0.999 * floor, points if named else ())
        self._told: NDArray[np.float64] | None = None

    def bound(self, size_bytes: int) -> Bound:
        if size_bytes not in self.bounds:
            self.bounds[size_bytes] = lower_bound(self.topology, self.collective, size_bytes, self.root)
        return self.bounds[size_bytes]

    def build(
        self, recipes: list[Recipe], only: int | None, deadline: float | None, executor: Executor | None
    ) -> Generator[Candidate | Refusal, None, None]:
        """Build recipes in order, here or on an executor, as long as there is time."""
        what = (self.topology, self.collective, self.root, only)
        if executor is None:
            yield from (self.pass_over(recipe, deadline) or build(recipe, *what) for recipe in recipes)
        else:
            yield from build_on(executor, recipes, *what, lambda: self.is_late(deadline))

    def is_late(self, deadline: float | None) -> bool:
        """Whether the time is over, once there is anything."""
        late = deadline is not None and bool(self.search.candidates) and time.monotonic() > deadline
        self.hurried |= late
        return late

    def pass_over(self, recipe: Recipe, deadline: float | None) -> Refusal | None:
        """Refuse what cannot be built in time, once there is anything."""
        least = expect_rows(min(recipe.algorithm.cost, 2.0) * self.topology.ranks**2)
        if deadline is None or not self.search.candidates or time.monotonic() + least <= deadline:
            return None
        self.hurried = True
        return refuse_as_too_slow(recipe.algorithm.name)

    def add(self, found: Candidate | Refusal) -> bool:
        """Take up what a recipe gave; False if that is nothing new."""
        if isinstance(found, Refusal):
            self.refusals.append(found)
            return False
        if any(found.schedule.digest == known.schedule.digest for known in self.search.candidates):
            return False
        try:
            self.search.add(found)
        except LimitError as error:
            self.refusals.append(Refusal.of(found.algorithm, error))
            return False
        return True

    def improve(self) -> bool:
        """Search a while; False when there is nothing left to find."""
        return all(self.search.step() for _ in range(_STEPS_PER_PLAN)) or self.search.audit()

    def worth_telling(self) -> bool:
        """Whether the plan is new, or noticeably better at some size than when this was last so."""
        best = self.search.best
        if self._told is not None and not (self._told > _WORTH_TELLING * best).any():
            return False
        self._told = best
        return True

    def make(self, *, complete: bool) -> Plan:
        """Make the plan as of now; a complete one knows every time and crossover from simulations."""
        while True:  # each simulation may change which candidate counts, at other sizes too
            known = self.search.simulations
            if complete:
                self._simulate_foremost()
            starts = self._starts(self.search.stretches(), refine=complete)
            points = tuple(self._point(size, starts, exact=complete) for size in self.points)
            if self.search.simulations == known:
                break
        curves = [self.search.curves[number] for number, _ in starts]
        used = list(dict.fromkeys(curve.candidate for curve in curves))
        ends = [*(start - 1 for _, start in starts[1:]), None]
        spans = tuple(
            Range(start, end, used.index(curve.candidate), self.search.share(curve))
            for curve, (_, start), end in zip(curves, starts, ends, strict=True)
        )
        applied = {candidate.algorithm for candidate in self.search.candidates}
        return Plan(
            topology=self.topology,
            collective=self.collective,
            root=self.root,
            schedules=tuple(self.search.candidates[number] for number in used),
            ranges=spans,
            points=points,
            contenders=self._contenders(),
            skipped=list_skipped(self.refusals, applied),
            complete=complete,
            cpu_seconds=time.process_time() - self.began,
            simulations=self.search.simulations,
        )

    def _starts(self, stretches: list[Stretch], *, refine: bool) -> list[tuple[int, int]]:
        """Curve and first size of each range."""
        found = [(stretches[0].curve, 0)]
        for before, after in pairwise(stretches):
            start = self.search.crossover(before, after) if refine else int(self.search.sizes[after.first])
            found.append((after.curve, max(start, found[-1][1] + 1)))
        return found

    def _point(self, size: int, starts: list[tuple[int, int]], *, exact: bool) -> PlanPoint:
        search = self.search
        index = max(i for i, (_, start) in enumerate(starts) if start <= size)
        curve = search.curves[starts[index][0]]
        if exact:
            search.run(curve, size)
        run = curve.runs.get(size) or next(iter(curve.runs.values()))
        bound = self.bound(size)
        second = self._runner_up(curve, size, exact=exact)
        return PlanPoint(
            size_bytes=size,
            range=index,
            seconds=curve.estimate(size),
            simulated=size in curve.runs,
            bound_seconds=bound.seconds,
            bound_kind=bound.kind,
            busiest_link=run.busiest,
            busy=run.busy,
            runner_up=None if second is None else search.candidates[second.candidate].label,
            runner_up_seconds=None if second is None else second.estimate(size),
            runner_up_simulated=second is None or size in second.runs,
        )

    def _runner_up(self, chosen: TimeCurve, size: int, *, exact: bool) -> TimeCurve | None:
        """Find the best curve of another algorithm at one of the grid's sizes."""
        name = self.search.candidates[chosen.candidate].algorithm
        place = int(np.searchsorted(self.search.sizes, size))
        while True:
            known = self.search.preferred_at(place)
            others = [curve for curve in known if self.search.candidates[curve.candidate].algorithm != name]
            found = min(others, key=lambda curve: curve.upper[place], default=None)
            if not exact or found is None or size in found.runs:
                return found
            self.search.run(found, size)

    def _simulate_foremost(self) -> None:
        """Simulate, at the headline size, the algorithms that are shown, until these are the best known."""
        size = self.points[-1]
        while True:
            best: dict[str, TimeCurve] = {}
            for curve in sorted(self.search.preferred_at(-1), key=lambda curve: curve.estimate(size)):
                best.setdefault(self.search.candidates[curve.candidate].algorithm, curve)
            waiting = [curve for curve in list(best.values())[:_SIMULATED] if size not in curve.runs]
            if not waiting:
                return
            self.search.run(waiting[0], size)

    def _contenders(self) -> tuple[Contender, ...]:
        size, found = self.points[-1], []
        for candidate, curve in zip(self.search.candidates, self.search.preferred_at(-1), strict=True):
            seconds = curve.estimate(size)
            found.append(Contender(candidate.algorithm, candidate.variant, seconds, size in curve.runs))
        return tuple(sorted(found, key=lambda contender: (contender.seconds, contender.label)))


def _points(size: str | int | Sequence[str | int] | None) -> list[int]:
    """Sizes to report on, ascending."""
    if size is None:
        count = round(np.log(LARGEST / SMALLEST) / np.log(_POINT_RATIO))
        return [SMALLEST * _POINT_RATIO**k for k in range(count + 1)]
    given = [size] if isinstance(size, str | int) else list(size)
    sizes = sorted({units.parse_size(one) for one in given})
    if not sizes or not sizes[0]:
        msg = f"size {size!r}: there is nothing to plan without data; give at least one byte, such as 64MiB"
        raise InputError(msg)
    return sizes


def _grid(points: list[int]) -> NDArray[np.int64]:
    """Sizes to search at: the points, and eight to an octave between them.

    Half of them are multiples of large powers of two and the others odd: chunks of exactly equal size arrive
    at the same instant, and a byte more or less may change who goes first.
    """
    sizes = set(points)
    octave = 1 << (points[0].bit_length() - 1)
    while octave < points[-1]:
        for eighth in range(0, 8, 2):
            sizes.update((octave * (8 + eighth) // 8, octave * (9 + eighth) // 8 - octave // 97 | 1))
        octave *= 2
    return np.array(sorted(s for s in sizes if points[0] <= s <= points[-1]), np.int64)
