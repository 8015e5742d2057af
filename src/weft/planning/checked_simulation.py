"""`weft.simulate`: the time of a schedule, with a warning if the schedule does not compute its collective."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from weft import limits
from weft.simulation import simulate as run_schedule
from weft.simulation.segment_sizes import AUTO
from weft.verification import inspect

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.simulation import SimulationResult
    from weft.simulation.simulator import Sharing


def simulate(
    schedule: Schedule,
    size: str | int,
    *,
    segment_bytes: int | str | None = AUTO,
    sharing: Sharing = "queue",
    element_bytes: int = 1,
    record: bool = False,
    max_work: float | None = limits.MAX_WORK,
) -> SimulationResult:
    """Run a schedule on the topology it was made for, as ``weft simulate`` does.

    A schedule that the verifier rejects has a time as well, which may be shorter than that of any correct
    one: a `RuntimeWarning` says so, and `weft.verify` says more. `weft.simulation.simulate` is
    the same without the check.

    Parameters
    ----------
    schedule, size, segment_bytes, sharing, element_bytes, record, max_work
        As for `weft.simulation.simulate`.

    Raises
    ------
    LimitError
        As for `weft.simulation.simulate`.

    Examples
    --------
    >>> import weft
    >>> ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    >>> weft.simulate(ring, "4MB", segment_bytes=None).seconds
    0.006006
    """
    result = run_schedule(
        schedule,
        size,
        segment_bytes=segment_bytes,
        sharing=sharing,
        element_bytes=element_bytes,
        record=record,
        max_work=max_work,
    )
    problem = inspect(schedule, max_work=max_work).problem
    if problem is not None:
        msg = f"this is the time of a schedule that is not correct: {problem}"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
    return result
