"""Which schedules carry out the collectives of a job: a function of the collective and its size."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from weft.algorithms.registry import find
from weft.algorithms.resolver import resolve_algorithm
from weft.errors import ScheduleError, UnsupportedError, VerificationError
from weft.schedule.passes import halves
from weft.verification import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.algorithms.resolver import AlgorithmLike
    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology

Chooser: TypeAlias = "Callable[[str, int], tuple[Schedule, int | None]]"
"""Gives for a collective and its bytes the schedule, and the bytes of a segment or None."""

_HALVES: Final = ("reduce_scatter", "all_gather")


def by_algorithm(
    topology: Topology, algorithm: AlgorithmLike, segment_bytes: int | None = None, *, halved: bool = False
) -> Chooser:
    """Choose the schedules of one algorithm for every collective and size.

    An all-to-all goes straight from rank to rank where the algorithm has none.

    Parameters
    ----------
    topology, algorithm
        Where, and its name or whatever else `resolve_algorithm` takes.
    segment_bytes
        Of every collective; None for whole messages.
    halved
        Whether reduce-scatters and all-gathers are the two halves of its all-reduce, also where it has some
        of its own; where it has none they are in any case.

    Raises
    ------
    UnsupportedError
        If the algorithm does not apply to the topology; when it is asked for halves that it does not have.
    """
    line = resolve_algorithm(algorithm)

    @cache
    def has(collective: str) -> bool:
        # Both halves or none: they must agree on who owns which part.
        wanted = _HALVES if collective in _HALVES else (collective,)
        return all(line.offers(topology, one) for one in wanted)

    @cache
    def build(collective: str, expected: int | None) -> Schedule:
        if not (halved and collective in _HALVES) and has(collective):
            return line.build(topology, collective, expected_bytes=expected)
        if collective == "all_to_all":
            return find("direct").build(topology, collective)
        try:
            whole = line.build(topology, "all_reduce", expected_bytes=expected)
            return halves(whole)[collective == "all_gather"]
        except ScheduleError as error:
            why = f"has no {collective}, and its all-reduce is not two halves"
            raise UnsupportedError(line.name, why, "use a policy that sends all-reduces") from error

    def choose(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        # Powers of two: one schedule for many sizes, and the same one for both halves of a collective.
        expected = 1 << max(size_bytes - 1, 1).bit_length() if line.sized else None
        return build(collective, expected), segment_bytes

    return choose


def by_schedule(schedule: Schedule) -> Chooser:
    """Choose one schedule for every collective and size, in whole messages."""
    return lambda _collective, _size: (schedule, None)


def by_plan(plan: Plan, otherwise: Chooser) -> Chooser:
    """Choose what a plan says of its collective, and ask `otherwise` for others, halves included."""

    def choose(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        if collective != plan.collective:
            return otherwise(collective, size_bytes)
        choice = plan.choose(size_bytes)
        return choice.schedule, choice.segment_bytes

    return choose


def verified(choose: Chooser) -> Chooser:
    """Choose the same schedules, each verified when it is chosen for the first time.

    Raises
    ------
    VerificationError
        From the chooser: if a schedule does not compute its collective.
    """

    @cache
    def check(schedule: Schedule) -> None:
        try:
            verify(schedule, max_work=None)
        except VerificationError as error:
            raise error.naming(f"{schedule.algorithm} made a wrong schedule") from error

    def choose_verified(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        schedule, segment_bytes = choose(collective, size_bytes)
        check(schedule)
        return schedule, segment_bytes

    return choose_verified
