"""`weft.simulate`: the time of a schedule, with a warning if the schedule does not compute its collective."""

from __future__ import annotations

import inspect as signatures
import warnings
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from weft import limits
from weft.simulation import simulate as run_schedule
from weft.verification.inspection import find_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.simulation import SimulationResult

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def _takes_arguments_of(
    other: Callable[_Given, _Result],
) -> Callable[[Callable[..., _Result]], Callable[_Given, _Result]]:
    """Give a function the parameters of another, for type checkers and for `help`."""

    def adorn(function: Callable[..., _Result]) -> Callable[_Given, _Result]:
        function.__signature__ = signatures.signature(other)  # type: ignore[attr-defined]
        return function

    return adorn


@_takes_arguments_of(run_schedule)
def simulate(*given: Any, **named: Any) -> SimulationResult:
    """Run a schedule on the topology it was made for, as ``weft simulate`` does.

    A schedule that the verifier rejects has a time as well, which may be shorter than that of any correct
    one: a `RuntimeWarning` says so, and `weft.verify` says more. `weft.simulation.simulate` is
    the same without the check, and documents the parameters and errors.

    Examples
    --------
    >>> import weft
    >>> ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    >>> weft.simulate(ring, "4MB", segment_bytes=None).seconds
    0.006006
    """
    result = run_schedule(*given, **named)
    problem = find_problem(result.schedule, max_work=named.get("max_work", limits.MAX_WORK))
    if problem is not None:
        msg = f"this is the time of a schedule that is not correct: {problem}"
        warnings.warn(msg, RuntimeWarning, stacklevel=2)
    return result
