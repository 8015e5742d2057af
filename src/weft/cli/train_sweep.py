"""Many simulated jobs: every combination of what is swept over, on any executor."""

from __future__ import annotations

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
from weft.cli.train_point import TrainingJob, measure
from weft.errors import InputError, WeftError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

KEYS: Final = ("policy", "fusion", "scale", "batch", "endpoint", "device", "algorithm", "model")
"""What can be swept over; a scale takes the place of ``{scale}`` in the topology."""

_SCALE: Final = "{scale}"
_PATIENCE_S: Final = 0.2
_DIED: Final = "its process died, or that of a job beside it; run it by itself to see why"


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination: what was swept over, and the job."""

    values: dict[str, str]
    point: TrainingJob


def expand(point: TrainingJob, sweeps: Sequence[str]) -> list[SweepPoint]:
    """Every combination of ``KEY=VALUE,VALUE,..``; the last key changes fastest.

    Raises
    ------
    InputError
        If a key is unknown or has no values, or a scale has no place.
    """
    axes: dict[str, list[str]] = {}
    for sweep in sweeps:
        key, _, text = sweep.partition("=")
        values = [value for value in text.split(",") if value]
        if key not in KEYS or not values or key in axes:
            problem = "comes twice" if key in axes else "expected KEY=VALUE,VALUE,.."
            msg = f"--sweep {sweep}: {problem}; keys are {', '.join(KEYS)}"
            raise InputError(msg)
        axes[key] = values
    if ("scale" in axes) != (_SCALE in point.topology):
        msg = (
            f"--sweep scale=.. goes with {_SCALE} in the topology, as in torus:{_SCALE} --sweep scale=4x4,8x8"
        )
        raise InputError(msg)
    count = 1
    for values in axes.values():
        count *= len(values)
    limits.check("jobs of a sweep", count, limits.MAX_SWEEP)
    combinations = (dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values()))
    return [SweepPoint(values, _with(point, values)) for values in combinations]


def _with(point: TrainingJob, values: dict[str, str]) -> TrainingJob:
    changes: dict[str, Any] = {}
    for key, text in values.items():
        if key == "scale":
            changes["topology"] = point.topology.replace(_SCALE, text)
        elif key == "fusion":
            changes["fusion"] = units.parse_size(text)
        elif key == "batch":
            changes["batch"] = _whole(text)
        else:
            changes[key] = text
    return replace(point, **changes)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        msg = f"--sweep batch={text}: expected whole numbers"
        raise InputError(msg)
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
            msg = f"--executor mpi needs mpi4py: {error}; install weft[mpi]"
            raise InputError(msg) from error
        if MPI.COMM_WORLD.size < 2:
            how = "mpirun -n 4 python -m mpi4py.futures -m weft train ..."
            msg = f"--executor mpi has no workers; start it as {how}"
            raise InputError(msg)
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
        # Whoever stops a sweep does not want to wait for what is under way. Without its processes the pool is
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


def sweep(
    places: Sequence[SweepPoint],
    executor: Executor,
    report: Callable[[str, int, int], None] = lambda *_: None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Figures of every job, in order, whichever ends first; a job that cannot be has its ``error`` instead.

    Parameters
    ----------
    places
        Of `expand`.
    executor
        Any of `concurrent.futures`.
    report
        Called with a text, jobs done and jobs in all.
    stopped
        Asked several times a second whether to give up.

    Raises
    ------
    KeyboardInterrupt
        If so.
    """
    futures = {executor.submit(measure, place.point): number for number, place in enumerate(places)}
    found: list[dict[str, Any]] = [{} for _ in places]
    waiting = set(futures)
    report("simulating", 0, len(places))
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
        report("simulating", len(places) - len(waiting), len(places))
    return [{"sweep": place.values} | figures for place, figures in zip(places, found, strict=True)]
