"""All checks together: `inspect` reports, `verify` raises."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from weft import limits
from weft.errors import InputError
from weft.verification.checking_work import bound_checks, estimate_checks, estimate_slot_search
from weft.verification.contention import measure_contention
from weft.verification.deadlock import find_deadlock, minimum_slots
from weft.verification.report import SIZES, VerificationReport
from weft.verification.routes import check_routes
from weft.verification.semantics import check_semantics

if TYPE_CHECKING:
    from weft.errors import VerificationError
    from weft.schedule import Schedule

USUAL_SLOTS: Final = 2
"""Messages in flight per connection in the executors in use: NCCL's eight steps are two MSCCL chunks."""


def verify(
    schedule: Schedule,
    *,
    slots: int | None = None,
    fused: bool = False,
    max_work: float | None = limits.MAX_WORK,
) -> VerificationReport:
    """Prove that a schedule computes its collective, or raise what is wrong with it.

    Parameters
    ----------
    schedule
        Any legal schedule; how it was made does not matter.
    slots
        Receive buffers per connection that must suffice. By default nothing is demanded, since with enough
        of them no schedule gets stuck; the report then says how many are enough.
    fused
        Whether the executor receives, reduces and forwards in one instruction.
    max_work
        Operations that it may take, by an estimate that is made first; None for any number.

    Raises
    ------
    VerificationError
        Naming check, transfer, rank and chunk.
    InputError
        If `slots` is less than 1.
    LimitError
        If it would take more operations than `max_work`.

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:3"), "reduce", "chain", chunks=1)
    >>> builder.add(step=0, chunk=0, src=2, dst=1, op=Op.REDUCE)
    >>> builder.add(step=1, chunk=0, src=1, dst=0, op=Op.REDUCE)
    >>> verify(builder.build()).slots
    2

    The second transfer left before the first one's value was in:

    >>> builder = ScheduleBuilder(load_topology("ring:3"), "reduce", "chain", chunks=1)
    >>> builder.add(step=0, chunk=0, src=[2, 1], dst=[1, 0], op=Op.REDUCE)
    >>> verify(builder.build())
    Traceback (most recent call last):
        ...
    weft.errors.VerificationError: semantics: rank 0, chunk 0: the sum lacks rank 2: what rank 2 contributes
    comes to ranks 1, 2 and no further
    """
    report = inspect(schedule, slots=slots, fused=fused, max_work=max_work)
    if report.problem is not None:
        raise report.problem
    return report


def inspect(
    schedule: Schedule,
    *,
    slots: int | None = None,
    fused: bool = False,
    contention: bool = False,
    max_work: float | None = limits.MAX_WORK,
) -> VerificationReport:
    """Check a schedule and report; wrong schedules do not raise.

    Parameters
    ----------
    schedule, slots, fused, max_work
        As for `verify`.
    contention
        Whether to count flows on links as well.

    Raises
    ------
    LimitError
        If it would take more operations than `max_work`.
    """
    began = time.process_time()
    found = _run_checks(schedule, slots, fused, max_work)
    flows = measure_contention(schedule, max_work=max_work) if contention else None
    return VerificationReport(
        title=_title(schedule),
        **{name: getattr(schedule, name) for name in SIZES},
        checks=found.checks,
        problem=found.problem,
        slots=found.slots,
        fused=fused,
        contention=flows,
        cpu_seconds=time.process_time() - began,
    )


def find_problem(schedule: Schedule, *, max_work: float | None = limits.MAX_WORK) -> VerificationError | None:
    """Return what `inspect` finds wrong, without a report: its digest takes as long as all checks.

    Raises
    ------
    LimitError
        If it would take more operations than `max_work`.
    """
    return _run_checks(schedule, None, False, max_work).problem


class _Found(NamedTuple):
    """What is wrong, and how many receive slots are proved enough."""

    checks: tuple[str, ...]
    problem: VerificationError | None
    slots: int | None


def _title(schedule: Schedule) -> str:
    return f"{schedule.algorithm} {schedule.collective} on {schedule.topology.name}"


def _run_checks(schedule: Schedule, slots: int | None, fused: bool, max_work: float | None) -> _Found:
    if slots is not None and slots < 1:
        raise InputError(f"{slots} receive slots: a connection needs at least 1")
    if max_work is not None and bound_checks(schedule) > max_work:
        limits.check_work(f"verifying {_title(schedule)}", estimate_checks(schedule), max_work)
    enough: int | None = None
    checks: tuple[str, ...] = ("hazard", "semantics")
    problem = check_semantics(schedule)
    if problem is None:
        checks += ("route",)
        problem = check_routes(schedule)
    if problem is None:
        checks += ("deadlock",)
        problem, enough = _check_deadlock(schedule, slots, fused, max_work)
    return _Found(checks, problem, enough)


def _check_deadlock(
    schedule: Schedule, slots: int | None, fused: bool, max_work: float | None
) -> tuple[VerificationError | None, int | None]:
    """Return what is wrong, and how many slots are proved enough."""
    demanded = USUAL_SLOTS if slots is None else slots
    deadlock = find_deadlock(schedule, demanded, fused=fused)
    if deadlock is None:
        return None, demanded
    if slots is None:
        what = f"finding the fewest receive slots of {schedule.algorithm} on {schedule.topology.name}"
        limits.check_work(what, estimate_slot_search(schedule), max_work)
        return None, minimum_slots(schedule, fused=fused)
    return deadlock.to_error(schedule), None
