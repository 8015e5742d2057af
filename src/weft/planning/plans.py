"""The plan of a collective: which schedule, cut how, at which size; with what it costs and how good it is.

`weft.planning.planner` makes it, `weft.planning.plan_file` keeps it, `weft.planning.plan_text` puts it into
words.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft import limits, units
from weft.bounds.collective_bound import condition_of
from weft.errors import InputError, TopologyError
from weft.notebook_display import ShortRepr, record_frame, short_line, short_name
from weft.planning.segment_shares import LEAST_SEGMENT, segment_size

if TYPE_CHECKING:
    from weft.algorithms.registry import Refusal
    from weft.schedule import Schedule
    from weft.topology import Topology


def make_label(algorithm: str, variant: str) -> str:
    """Text for people: ``multitree (trees_per_root=2)``."""
    return f"{algorithm} ({variant})" if variant else algorithm


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes that one schedule serves, cut in one way.

    Parameters
    ----------
    first_bytes, last_bytes
        Smallest and largest size; None for no end.
    schedule
        Index into `Plan.schedules`.
    segment_share
        Share of the buffer in a segment; None for whole messages. A share rather than a size in bytes,
        because it stays right as messages grow.
    """

    first_bytes: int
    last_bytes: int | None
    schedule: int
    segment_share: float | None


@dataclass(frozen=True, eq=False, repr=False)
class PlannedSchedule(ShortRepr):
    """A verified schedule of a plan, which algorithm and options made it, and in how many CPU seconds."""

    algorithm: str
    variant: str
    schedule: Schedule
    synthesis_seconds: float

    @property
    def label(self) -> str:
        """Algorithm and variant, for people."""
        return make_label(self.algorithm, self.variant)

    @property
    def names(self) -> dict[str, str]:
        """Algorithm and variant, for documents."""
        return {"algorithm": self.algorithm, "variant": self.variant}

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft plan --json`` prints them, without the transfers."""
        size = {name: getattr(self.schedule, name) for name in ("digest", "chunks", "steps", "transfers")}
        return {**self.names, **size, "verified": True}


@dataclass(frozen=True, slots=True, repr=False)
class PlanPoint(ShortRepr):
    """What the plan does at one size.

    Parameters
    ----------
    size_bytes
        The size.
    range
        Index into `Plan.ranges`.
    seconds, simulated
        Its time, and whether that comes from a simulation of this size or is interpolated from others.
    bound_seconds, bound_kind
        What no schedule can beat, and why.
    busiest_link, busy
        The link that is busy longest, and the share of the time that it is.
    runner_up, runner_up_seconds
        The best other algorithm with its variant, and its time; None if there is none.
    runner_up_simulated
        Whether that time comes from a simulation of this size or is interpolated from others.
    """

    size_bytes: int
    range: int
    seconds: float
    simulated: bool
    bound_seconds: float
    bound_kind: str
    busiest_link: int
    busy: float
    runner_up: str | None
    runner_up_seconds: float | None
    runner_up_simulated: bool = True

    @property
    def fraction_of_bound(self) -> float:
        """How near to the bound: 1 is optimal."""
        return self.bound_seconds / self.seconds if self.seconds else 1.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate at the headline size: its time, or one that it cannot beat where it was not worth a try."""

    algorithm: str
    variant: str
    seconds: float
    simulated: bool

    @property
    def label(self) -> str:
        """Algorithm and variant, for people."""
        return make_label(self.algorithm, self.variant)


@dataclass(frozen=True, eq=False, repr=False)
class Choice(ShortRepr):
    """What to run for a buffer of one size."""

    algorithm: str
    variant: str
    schedule: Schedule
    size_bytes: int
    segment_bytes: int | None


_HEADLINE: Final = ("size_bytes", "seconds", "bound_seconds", "bound_kind", "fraction_of_bound")
"""What the document of a plan says of its largest size."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which schedule to run at which size, and how good that is; made by `weft.plan`.

    Parameters
    ----------
    topology, collective, root
        What it is for.
    schedules
        Each verified schedule once.
    ranges
        All sizes from 0 on, ascending, without gaps.
    points
        Some sizes in detail, ascending; the last one is the headline.
    contenders
        All candidates at the headline size, fastest first.
    skipped
        Algorithms that do not apply.
    complete
        False when a time limit ended the search, or when better plans may follow.
    cpu_seconds, simulations
        What planning cost.
    """

    topology: Topology
    collective: str
    root: int
    schedules: tuple[PlannedSchedule, ...]
    ranges: tuple[Range, ...]
    points: tuple[PlanPoint, ...]
    contenders: tuple[Contender, ...]
    skipped: tuple[Refusal, ...]
    complete: bool
    cpu_seconds: float
    simulations: int

    @property
    def headline(self) -> PlanPoint:
        """The size that was asked for, or the largest planned one."""
        return self.points[-1]

    @property
    def algorithm(self) -> str:
        """Name of the algorithm at the headline size."""
        return self.planned(self.headline.size_bytes).algorithm

    @property
    def seconds(self) -> float:
        """Simulated time at the headline size."""
        return self.headline.seconds

    @property
    def bound_seconds(self) -> float:
        """Time at the headline size that no schedule can beat."""
        return self.headline.bound_seconds

    @property
    def fraction_of_bound(self) -> float:
        """How near the plan comes to the bound at the headline size."""
        return self.headline.fraction_of_bound

    def bound_condition(self, point: PlanPoint) -> str:
        """What the bound at a point takes for granted, in words, or nothing."""
        return condition_of(self.topology, self.collective, point.bound_kind)

    @cached_property
    def _starts(self) -> list[int]:
        return [span.first_bytes for span in self.ranges]

    def index_at(self, size_bytes: int) -> int:
        """Index of the range that a size lies in."""
        return bisect_right(self._starts, size_bytes) - 1

    def range_at(self, size_bytes: int) -> Range:
        """The range that a size lies in."""
        return self.ranges[self.index_at(size_bytes)]

    def planned(self, size_bytes: int) -> PlannedSchedule:
        """The schedule for a size, with its algorithm."""
        return self.schedules[self.range_at(size_bytes).schedule]

    def choose(self, size: str | int) -> Choice:
        """What to run for a buffer of this size.

        Parameters
        ----------
        size
            Bytes, or text such as ``"64MiB"``; any size, planned or not.

        Examples
        --------
        >>> from weft.planning import plan
        >>> choice = plan("ring:4", "1MiB", algorithms=["ring"]).choose("3MiB")
        >>> choice.algorithm, choice.schedule.steps
        ('ring', 6)
        """
        size_bytes = units.parse_size(size)
        span = self.range_at(size_bytes)
        planned = self.schedules[span.schedule]
        segment = segment_size(span.segment_share, size_bytes)
        if segment is not None:
            segment = max(segment, LEAST_SEGMENT)
        return Choice(planned.algorithm, planned.variant, planned.schedule, size_bytes, segment)

    def check_topology(self, topology: Topology) -> None:
        """Raise a `TopologyError` that names both unless the plan was made for this topology.

        Examples
        --------
        >>> from weft.planning import plan
        >>> from weft.topology import load_topology
        >>> plan("ring:4", "1MiB", algorithms=["ring"]).check_topology(load_topology("ring:5"))
        Traceback (most recent call last):
            ...
        weft.errors.TopologyError: the plan is for ring:4 (4 ranks, 8 links, digest 76445185aa69), not for
        ring:5 (5 ranks, 10 links, digest 077af0b4aa93); plan anew
        """
        if topology.digest != self.topology.digest:
            msg = f"the plan is for {_describe(self.topology)}, not for {_describe(topology)}; plan anew"
            raise TopologyError(msg)

    def explain(self) -> str:
        """One screen: what is chosen where, how good it is, what limits it, what came second and why."""
        from weft.planning.plan_text import explain

        return explain(self)

    def save(self, path: str | Path) -> None:
        """Write a plan file, whole or not at all; `weft.load_plan` reads it."""
        from weft.planning.plan_file import save_plan

        save_plan(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft plan --json`` prints: everything but the schedules' transfers."""
        point = self.headline
        return {
            "topology": self.topology.name,
            "topology_digest": self.topology.digest,
            **{name: getattr(self, name) for name in ("collective", "root", "complete", "algorithm")},
            **{name: getattr(point, name) for name in _HEADLINE},
            "bound_condition": self.bound_condition(point),
            "bottleneck": self.topology.link_name(point.busiest_link),
            "ranges": [{**asdict(one), **self.schedules[one.schedule].names} for one in self.ranges],
            "points": [self._point_dict(one) for one in self.points],
            "schedules": [planned.to_dict() for planned in self.schedules],
            "contenders": [asdict(contender) for contender in self.contenders],
            "skipped": [refusal.to_dict() for refusal in self.skipped],
            "simulations": self.simulations,
            "planning_seconds": self.cpu_seconds,
        }

    def _point_dict(self, point: PlanPoint) -> dict[str, Any]:
        choice, fields = self.choose(point.size_bytes), asdict(point)
        del fields["range"]
        return {
            **fields,
            "algorithm": choice.algorithm,
            "variant": choice.variant,
            "segment_bytes": choice.segment_bytes,
            "fraction_of_bound": point.fraction_of_bound,
            "bound_condition": self.bound_condition(point),
            "busiest_link": self.topology.link_name(point.busiest_link),
        }

    def to_pandas(self) -> Any:
        """The planned sizes as a ``pandas.DataFrame``: what is chosen, its time, bound and runner-up."""
        return record_frame("Plan.to_pandas", [self._point_dict(point) for point in self.points])

    def _repr_html_(self) -> str:
        from weft.planning.plan_text import plan_card

        return plan_card(self)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(self.schedules[span.schedule].algorithm for span in self.ranges))
        good = f"{100 * self.fraction_of_bound:.1f} % of the bound"
        what = f"{self.collective} on {short_name(self.topology.name)}"
        return short_line(f"<Plan {what}: {short_name(names)}; {good}>")


_BUSIEST: Final = 1.001
_FASTEST: Final = 0.999
"""Room for rounding where a link is always busy, or a plan meets its bound."""


def check_plan(plan: Plan) -> None:
    """Raise an `InputError` unless the parts of a plan, read from a file, fit together."""
    for planned in plan.schedules:
        _check_schedule(plan, planned.schedule)
    plan.topology.check_root(plan.root)
    _check_ranges(plan)
    for point in plan.points:
        known = (
            0 < point.size_bytes <= limits.MAX_SIZE_BYTES and 0 <= point.busiest_link < plan.topology.links
        )
        if not known or plan.index_at(point.size_bytes) != point.range:
            msg = f"the point at {point.size_bytes} bytes names a range, link or size that cannot be"
            raise InputError(msg)
    _check_times(plan)
    texts = [text for point in plan.points for text in (point.bound_kind, point.runner_up or "")]
    texts += [text for one in plan.contenders for text in (one.algorithm, one.variant)]
    texts += [text for one in plan.skipped for text in (one.algorithm, one.reason)]
    for text in texts:
        limits.check("characters of a text", len(text), limits.MAX_SPEC_CHARACTERS)


def _check_schedule(plan: Plan, schedule: Schedule) -> None:
    what = f"{plan.collective} on {plan.topology.name}"
    if schedule.collective != plan.collective or schedule.topology.digest != plan.topology.digest:
        found = f"{schedule.collective} on {schedule.topology.name}"
        raise InputError(f"{schedule.algorithm}: a schedule of {found} in a plan of {what}")
    if schedule.root not in (None, plan.root):
        raise InputError(f"{schedule.algorithm}: another root than {plan.root} in a plan of {what}")


def _check_times(plan: Plan) -> None:
    times = [time for point in plan.points for time in (point.seconds, point.bound_seconds, point.busy)]
    times += [time for point in plan.points if (time := point.runner_up_seconds) is not None]
    times += [contender.seconds for contender in plan.contenders]
    times += [plan.cpu_seconds, *(planned.synthesis_seconds for planned in plan.schedules)]
    if not all(0 <= time < math.inf for time in times) or not all(point.seconds > 0 for point in plan.points):
        raise InputError("a time is negative, nought or not finite")
    if any(point.busy > _BUSIEST or point.seconds < _FASTEST * point.bound_seconds for point in plan.points):
        raise InputError("a point is faster than its bound, or its link busier than always")


def _check_ranges(plan: Plan) -> None:
    spans = plan.ranges
    if not spans or spans[0].first_bytes or spans[-1].last_bytes is not None or not plan.points:
        raise InputError("the ranges of a plan must cover all sizes, and it must have a point")
    for one, two in pairwise(spans):
        end = one.last_bytes
        if end is None or end < one.first_bytes or two.first_bytes != end + 1:
            raise InputError(f"the range from {two.first_bytes} bytes on does not follow the one before it")
    if {span.schedule for span in spans} != set(range(len(plan.schedules))):
        raise InputError(f"the ranges must use schedules 0..{len(plan.schedules) - 1}, each of them")
    if not all(span.segment_share is None or 0 < span.segment_share <= 1 for span in spans):
        raise InputError("a segment must be a share of the buffer between 0 and 1")


def _describe(topology: Topology) -> str:
    parts = f"{topology.ranks} ranks, {topology.links} links, digest {topology.digest[:12]}"
    return f"{topology.name} ({parts})"
