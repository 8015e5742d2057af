"""Many simulated jobs: every combination of some values, on any executor of `concurrent.futures`."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from weft import limits, units
from weft.errors import InputError, WeftError
from weft.planning.point_text import write_network
from weft.sweeps import SweepTask, stream_tasks
from weft.training.job import TrainingJob
from weft.training.job_text import read_job, write_job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

KEYS: Final = ("policy", "fusion", "scale", "batch", "endpoint", "device", "algorithm", "model")
"""What can be swept over; a scale takes the place of ``{scale}`` in the topology."""

_SCALE: Final = "{scale}"
_KEPT_NETWORKS: Final = 4


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination: the values that were swept over, and the job that has them."""

    values: Mapping[str, str]
    job: TrainingJob


def expand(job: TrainingJob, axes: Mapping[str, Sequence[str]]) -> list[SweepPoint]:
    """Every combination of the values of some fields of a job; the last field changes fastest.

    Parameters
    ----------
    job
        What all of them have in common.
    axes
        Values by `KEYS`, as text.

    Raises
    ------
    InputError
        If a key is unknown or has no values, or a scale has no place.

    Examples
    --------
    >>> job = TrainingJob("resnet50", "torus:{scale}")
    >>> [point.job.topology for point in expand(job, {"scale": ["4x4", "8x8"]})]
    ['torus:4x4', 'torus:8x8']
    """
    for key, values in axes.items():
        if key not in KEYS or not values:
            msg = f"--sweep {key}={','.join(values)}: expected KEY=VALUE,VALUE,..; keys are {', '.join(KEYS)}"
            raise InputError(msg)
    if ("scale" in axes) != (_SCALE in str(job.topology)):
        msg = (
            f"--sweep scale=.. goes with {_SCALE} in the topology, as in torus:{_SCALE} --sweep scale=4x4,8x8"
        )
        raise InputError(msg)
    limits.check("jobs of a sweep", math.prod(map(len, axes.values())), limits.MAX_SWEEP)
    combinations = (dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values()))
    return [SweepPoint(values, _with(job, values)) for values in combinations]


def _with(job: TrainingJob, values: Mapping[str, str]) -> TrainingJob:
    changes: dict[str, Any] = dict(values)
    if "scale" in values:
        changes["topology"] = str(job.topology).replace(_SCALE, changes.pop("scale"))
    if "fusion" in values:
        changes["fusion"] = units.parse_size(values["fusion"])
    if "batch" in values:
        changes["batch"] = _whole(values["batch"])
    return replace(job, **changes)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InputError(f"--sweep batch={text}: expected whole numbers")
    return int(text)


def simulate_job(text: str) -> str:
    """Simulate the job of a `weft.training.job_text.JobText`, in a worker, and give its figures as JSON."""
    return json.dumps(read_job(text).run().to_dict(), allow_nan=False)


def as_given(job: TrainingJob) -> TrainingJob:
    """The same job: nothing is to be prepared."""
    return job


def sweep(
    points: Sequence[SweepPoint],
    executor: Executor | None = None,
    *,
    report: Callable[[str, int, int], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    prepare: Callable[[TrainingJob], TrainingJob] = as_given,
    deadline_s: float | None = None,
    function: str = "simulate_job",
) -> list[dict[str, Any]]:
    """Give the figures of every job, in order; a job that cannot be simulated has its ``error`` instead.

    Parameters
    ----------
    points
        Of `expand`.
    executor
        Any of `concurrent.futures`; None simulates one after the other in this process.
    report, stopped, deadline_s
        As `progress`, `stopped` and `deadline_s` of `weft.sweeps.stream_tasks`.
    prepare
        Makes of each job, in this process, one that workers can read: it loads what is only named so far.
    function
        What workers call: ``"simulate_point"``, for workers of this machine, also runs the scripts that a job
        names.

    Raises
    ------
    TimedOut
        If they are not done within `deadline_s`.
    KeyboardInterrupt
        If `stopped` says so.

    Examples
    --------
    >>> points = expand(TrainingJob("multitree-ncf", "ring:{scale}"), {"scale": ["2", "4"]})
    >>> [row["ranks"] for row in sweep(points)]
    [2, 4]
    """
    found: list[dict[str, Any]] = [{} for _ in points]
    tasks: list[SweepTask] = []
    numbers: list[int] = []
    write = lru_cache(_KEPT_NETWORKS)(write_network)
    for number, point in enumerate(points):
        try:
            text = write_job(prepare(point.job), scripts=function == "simulate_point", network=write)
            name = ", ".join(f"{key} {value}" for key, value in point.values.items())
            tasks.append(SweepTask(function, text, name))
            numbers.append(number)
        except WeftError as error:
            found[number] = {"error": str(error)}
    stream = stream_tasks(tasks, executor, report, stopped=stopped, deadline_s=deadline_s)
    with closing(stream):
        for number, outcome in zip(numbers, stream, strict=True):
            made = outcome.text
            found[number] = {"error": outcome.problem} if made is None else json.loads(made)
    return [{"sweep": point.values} | figures for point, figures in zip(points, found, strict=True)]
