"""Where a sweep runs: processes of this machine, ranks of an MPI job, a Dask cluster, or Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Final, TypeVar

from weft.errors import InputError, MissingPackageError, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Found = TypeVar("_Found")

KINDS: Final = "processes, mpi, dask:ADDRESS or ray"

_START_S: Final = 60.0
"""For a cluster to answer, and to have a worker."""


def check_kind(kind: str) -> str:
    """Give the name of an executor back, if it is one.

    Raises
    ------
    InputError
        If it is none of `KINDS`.

    Examples
    --------
    >>> check_kind("dask")
    Traceback (most recent call last):
        ...
    weft.errors.InputError: --executor dask: where is its scheduler? As in dask:tcp://127.0.0.1:8786
    """
    name, colon, address = kind.partition(":")
    if name == "dask" and not address:
        raise InputError(f"--executor {kind}: where is its scheduler? As in dask:tcp://127.0.0.1:8786")
    if name not in ("processes", "mpi", "dask", "ray") or (colon and name != "dask"):
        raise InputError(f"--executor {quote(kind)}: expected {KINDS}")
    return kind


def is_local(executor: Executor | None) -> bool:
    """Whether the workers of an executor surely see the files of this machine."""
    return executor is None or isinstance(executor, ProcessPoolExecutor | ThreadPoolExecutor)


@contextmanager
def open_executor(kind: str, jobs: int | None = None) -> Iterator[Executor]:
    """Open an executor by its name on the command line, and close it.

    Parameters
    ----------
    kind
        ``processes`` of this machine; ``mpi`` for the ranks of a job under
        ``mpirun -n 4 python -m mpi4py.futures -m weft ...``; ``dask:ADDRESS`` of a scheduler; ``ray`` for the
        cluster that the environment variable ``RAY_ADDRESS`` names, or for one on this machine that ends with
        the executor.
    jobs
        Processes of ``processes``, and of ``ray`` on this machine; by default one for each processor.

    Raises
    ------
    InputError
        If a package or an MPI job is missing, or no scheduler or worker answers within a minute.
    """
    name, _, address = check_kind(kind).partition(":")
    if jobs is not None and (name in ("mpi", "dask") or (name == "ray" and _ray_address())):
        raise InputError(f"--jobs: {kind} has the workers that it was started with; leave --jobs out")
    jobs = jobs or len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        if name == "mpi":
            yield stack.enter_context(_open_mpi())
        elif name == "dask":
            yield stack.enter_context(_open_dask(address))
        elif name == "ray":
            from weft.sweeps.ray_executor import open_ray

            yield stack.enter_context(open_ray(_ray_address(), jobs, _START_S))
        else:
            yield stack.enter_context(_open_processes(jobs))


def _ray_address() -> str | None:
    return os.environ.get("RAY_ADDRESS") or None


class WorkerProcesses(ProcessPoolExecutor):
    """Processes of this machine that end at once when a sweep is stopped."""

    def submit(self, fn: Callable[..., _Found], /, *args: Any, **kwargs: Any) -> Future[_Found]:
        """Run a function in a process; an interrupt is raised behind it, and not while a process starts."""
        if threading.current_thread() is not threading.main_thread():
            return super().submit(fn, *args, **kwargs)
        with noting_interrupts() as interrupted:
            future = super().submit(fn, *args, **kwargs)
        if interrupted():
            raise KeyboardInterrupt
        return future

    def abandon(self) -> None:
        """Kill the processes.

        Without them the pool is broken and ends. To cancel its futures as well would make its own thread trip
        over them.
        """
        for process in tuple((self._processes or {}).values()):
            process.kill()
        # Before Python 3.11.6 the pool's thread may else write for ever to a pipe that nobody reads any more
        # (https://github.com/python/cpython/issues/94777). Later it closes the pipe itself: to close it here
        # as well would be to close what another thread may have opened under its number.
        calls: Any = getattr(self, "_call_queue", None)
        if calls is not None and sys.version_info < (3, 11, 6):
            calls._reader.close()


@contextmanager
def _open_processes(jobs: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("forkserver")
    executor = WorkerProcesses(jobs, mp_context=context, initializer=_begin_worker)
    try:
        yield executor
    except BaseException:
        executor.abandon()
        executor.shutdown(wait=False)
        raise
    if getattr(executor, "_broken", False):  # a process died: the pool's thread may write to nobody as well
        executor.abandon()
    executor.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Leave interrupts to the process that started the sweep, and end with it however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _open_mpi() -> Iterator[Executor]:
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPIPoolExecutor
    except ImportError as error:
        raise MissingPackageError("--executor mpi", "mpi4py", error) from error
    except RuntimeError as error:  # mpi4py is there, and finds no MPI library
        msg = f"--executor mpi needs an MPI library ({error}); install Open MPI or MPICH"
        raise InputError(msg) from error
    if MPI.COMM_WORLD.size < 2:
        how = "mpirun -n 4 python -m mpi4py.futures -m weft ..."
        raise InputError(f"--executor mpi has no workers; start it as {how}")
    with MPIPoolExecutor() as workers:
        try:
            yield workers
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _open_dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingPackageError("--executor dask", "distributed", error) from error
    try:
        client = Client(address, timeout=_START_S, set_as_default=False)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        how = "start one with dask scheduler"
        raise InputError(f"--executor dask:{address}: no scheduler answers there ({error}); {how}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_START_S)
        except TimeoutError as error:
            how = f"start one with dask worker {address}"
            raise InputError(f"--executor dask:{address}: the scheduler has no workers; {how}") from error
        # Pure functions are called once for equal arguments; a sweep has no such points, and keys cost time.
        executor: Executor = client.get_executor(pure=False, retries=0)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


@contextmanager
def noting_interrupts() -> Iterator[Callable[[], bool]]:
    """Note an interrupt and tell when asked: amid an executor's own work it would leave a mess."""
    heard = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: heard.set())
    try:
        yield heard.is_set
    finally:
        signal.signal(signal.SIGINT, before)
