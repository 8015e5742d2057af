"""Ray as an executor of `concurrent.futures`."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Found = TypeVar("_Found")


class RayExecutor(Executor):
    """Runs functions on the cluster that `ray` is connected to.

    Parameters
    ----------
    ray
        The package, after ``ray.init``.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._remote = ray.remote(_call).options(max_retries=0)
        self._pending: dict[Future[Any], Any] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, fn: Callable[..., _Found], /, *args: Any, **kwargs: Any) -> Future[_Found]:
        """Run a function of a module with some arguments, once, on any worker."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this executor is shut down")
            reference = self._remote.remote(fn, *args, **kwargs)
            future: Future[_Found] = reference.future()
            self._pending[future] = reference
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._pending.pop(future, None)

    def abandon(self) -> None:
        """Cancel what is not done, and end the processes of what is under way."""
        with self._lock:
            references = list(self._pending.values())
        for reference in references:
            self._ray.cancel(reference, force=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; wait for what is under way, or cancel it."""
        with self._lock:
            self._is_closed = True
            pending = list(self._pending.values())
        if cancel_futures:
            self.abandon()
        elif wait and pending:
            self._ray.wait(pending, num_returns=len(pending))


@contextmanager
def open_ray(address: str | None, jobs: int, timeout_s: float) -> Iterator[Executor]:
    """Connect to a cluster, or start one on loopback with `jobs` workers that ends with the executor.

    Parameters
    ----------
    address
        Of a cluster, as ``ray.init`` takes it; None starts one.
    jobs
        Workers of one that is started.
    timeout_s
        Seconds in which a worker has to answer.

    Raises
    ------
    InputError
        If the cluster cannot be reached or started, or this process uses Ray already.
    """
    # Before the import, which reads it: Weft sends nothing to anybody unasked, and a cluster that it starts
    # does not either.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default workers of Ray yield to everything else (niceness 15): on a busy machine they hardly run.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("--executor ray", "ray", error) from error
    if ray.is_initialized():
        how = "take weft.sweeps.ray_executor.RayExecutor(ray)"
        raise InputError(f"--executor ray: this process is connected to Ray already; {how}")
    quiet = {"log_to_driver": False, "configure_logging": False}
    here = {"num_cpus": jobs, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address or "local", **quiet, **({} if address else here))
    except (OSError, RuntimeError, ValueError) as error:
        where = f"reached at {address}" if address else "started"
        raise InputError(f"--executor ray: no cluster could be {where}: {error}") from error
    try:
        first = ray.remote(_answer).remote()
        if not ray.wait([first], timeout=timeout_s)[0]:
            raise InputError(f"--executor ray: no worker answers within {timeout_s:g} s")
        executor = RayExecutor(ray)
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)
    finally:
        ray.shutdown()


def _call(fn: Callable[..., _Found], /, *args: Any, **kwargs: Any) -> _Found:
    """Call a function in a worker; Ray takes no built-in functions for remote ones."""
    return fn(*args, **kwargs)


def _answer() -> None:
    """Nothing: that it is called shows that there is a worker."""
