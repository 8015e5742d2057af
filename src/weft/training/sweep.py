"""Many simulated jobs: every combination of some values, on any executor of `concurrent.futures`."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Final

from weft import limits, units
from weft.errors import InputError, MissingPackageError, WeftError
from weft.training.job import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

KEYS: Final = ("policy", "fusion", "scale", "batch", "endpoint", "device", "algorithm", "model")
"""What can be swept over; a scale takes the place of ``{scale}`` in the topology."""

_SCALE: Final = "{scale}"
_PATIENCE_S: Final = 0.2
_DIED: Final = "its process died, or that of a job beside it; run it by itself to see why"


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


@contextmanager
def open_executor(kind: str, jobs: int | None) -> Iterator[Executor]:
    """Processes of this machine, or those of an MPI job that was started for it.

    Raises
    ------
    InputError
        If there is no mpi4py, or no MPI job.
    """
    if kind == "mpi":
        try:
            from mpi4py import MPI
            from mpi4py.futures import MPIPoolExecutor
        except ImportError as error:
            raise MissingPackageError("--executor mpi", "mpi4py", error) from error
        except RuntimeError as error:  # mpi4py is there, and finds no MPI library
            msg = f"--executor mpi needs an MPI library ({error}); install Open MPI or MPICH"
            raise InputError(msg) from error
        if MPI.COMM_WORLD.size < 2:
            how = "mpirun -n 4 python -m mpi4py.futures -m weft train ..."
            raise InputError(f"--executor mpi has no workers; start it as {how}")
        with MPIPoolExecutor() as workers:
            try:
                yield workers
            except BaseException:
                workers.shutdown(wait=False, cancel_futures=True)
                raise
        return
    context = multiprocessing.get_context("forkserver")
    executor = ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=context, initializer=_begin_worker)
    try:
        yield executor
    except BaseException:
        # A sweep that is stopped does not wait for the jobs under way. Without its processes the pool is
        # broken and ends; to cancel its jobs as well would make it trip over them.
        for process in multiprocessing.active_children():
            process.kill()
        executor.shutdown(wait=False)
        raise
    executor.shutdown()


@contextmanager
def heeding_interrupts() -> Iterator[Callable[[], bool]]:
    """Note an interrupt and tell when asked: amid an executor's own work it would leave a mess."""
    heard = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: heard.set())
    try:
        yield heard.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _begin_worker() -> None:
    """Leave interrupts to the process that started the sweep, and end with it however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measure(job: TrainingJob, prepare: Callable[[TrainingJob], TrainingJob]) -> dict[str, Any]:
    """Prepare and simulate a job in a worker, and give its figures.

    Raises
    ------
    InputError
        If it cannot be. A user's script may raise what no other process can read, so only text goes back.
    """
    try:
        return prepare(job).run().to_dict()
    except WeftError:
        raise
    except BaseException as error:  # noqa: BLE001
        raise InputError(f"{type(error).__name__}: {error}; run it by itself to see more") from None


def as_given(job: TrainingJob) -> TrainingJob:
    """The same job: nothing is to be prepared."""
    return job


def sweep(
    points: Sequence[SweepPoint],
    executor: Executor,
    *,
    report: Callable[[str, int, int], None] = lambda *_: None,
    stopped: Callable[[], bool] = lambda: False,
    prepare: Callable[[TrainingJob], TrainingJob] = as_given,
) -> list[dict[str, Any]]:
    """Give the figures of every job, in order; a job that cannot be simulated has its ``error`` instead.

    Parameters
    ----------
    points
        Of `expand`.
    executor
        Any of `concurrent.futures`.
    report
        Called with a text, jobs done and jobs in all.
    stopped
        Asked several times a second whether to give up.
    prepare
        A function of a module that makes of each job, in the process that simulates it, one that can run:
        it loads what is only named so far.

    Raises
    ------
    KeyboardInterrupt
        If `stopped` says so.
    """
    futures = {executor.submit(measure, point.job, prepare): number for number, point in enumerate(points)}
    found: list[dict[str, Any]] = [{} for _ in points]
    waiting = set(futures)
    report("simulating", 0, len(points))
    while waiting:
        done, waiting = wait(waiting, _PATIENCE_S, FIRST_COMPLETED)
        if stopped():
            raise KeyboardInterrupt
        for future in done:
            number = futures[future]
            try:
                found[number] = future.result()
            except WeftError as error:
                found[number] = {"error": str(error)}
            except BrokenExecutor:
                found[number] = {"error": _DIED}
        report("simulating", len(points) - len(waiting), len(points))
    return [{"sweep": point.values} | figures for point, figures in zip(points, found, strict=True)]
