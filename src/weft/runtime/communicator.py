"""The communicator: its schedules, its parts, and what it does after a loss.

A `Communicator` runs verified schedules: it asks its schedule selector for the schedule of a collective and a
size, has its engine keep the part that concerns this rank, and lets the engine move the bytes.
`Communicator.last` is a `Record` of the latest operation. What the collectives compute is in
`weft.runtime.array_collectives`, messages between two ranks are in `weft.runtime.point_to_point`, and
`weft.runtime.operation_queue` runs operations one after the other, in the order of the calls.
"""

from __future__ import annotations

import atexit
import math
import operator
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from weft.errors import InputError, PeerLost, RuntimeFailure, quote
from weft.runtime.array_collectives import ArrayCollectives
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.bootstrap.shrink import check_minimum
from weft.runtime.byte_exchange import CommunicatorWords, exchange_bytes
from weft.runtime.communicator_inputs import check_plan, load_inputs
from weft.runtime.launcher.failure_reports import FailureReporter
from weft.runtime.resources import close_on_error
from weft.runtime.schedule_selection import ScheduleSelector
from weft.runtime.split_all_reduce import SplitAllReduce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.engines import Engine
    from weft.schedule import Schedule
    from weft.topology import Topology

_CANCELLED_WITHIN_S: Final = 10.0
"""How long a cancelled operation takes at most: it tells the other ranks, which may be slow to listen."""

_LARGEST_COLOR: Final = 2**63 - 1
_LARGEST_COUNT: Final = 2**62
"""Elements, more than any memory holds: the engine says how much room there is."""


class Communicator(ArrayCollectives):
    """Ranks that compute collectives together; made by `weft.init`.

    `weft.runtime.array_collectives` says which arrays they take, and what all collectives have in common.

    Parameters
    ----------
    engine
        Connects the ranks and moves the data.
    selector
        Selects the schedule for a collective and a size.
    timeout
        Seconds after which an operation gives up, unless it is given its own.
    reporter
        Tells the launcher why this rank fails.
    """

    def __init__(
        self,
        engine: Engine[Any],
        selector: ScheduleSelector,
        *,
        timeout: float = 60.0,
        reporter: FailureReporter | None = None,
    ) -> None:
        super().__init__(engine, selector, timeout, reporter or FailureReporter())
        self.survivors: tuple[int, ...] | None = None
        """After `shrink`: the rank that each rank had before."""
        self.ahead = 0
        """After `shrink`: operations that this rank has completed and some other survivor has not."""
        self._parts: set[Communicator] = set()
        self._whole: weakref.ref[Communicator] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def network(self) -> Topology | None:
        """The cluster that schedules are chosen for, if that is known."""
        return self._chooser.inputs.network

    @property
    def plan(self) -> Plan | None:
        """The plan of the all-reduce, if there is one."""
        return self._chooser.inputs.plan

    @property
    def _control_plane(self) -> ControlPlane | None:
        """Of all ranks of the job, with Weft's own engine; None for some of the ranks."""
        return self._engine.control_plane

    def choose(self, collective: str, size_bytes: int, root: int = 0) -> tuple[Schedule, int | None]:
        """Return the schedule that would run, and the bytes of a segment (None: the runtime's own size)."""
        return self._chooser.choose(collective, size_bytes, root)

    def use_plan(self, plan: Plan) -> None:
        """Use a plan from here on; every rank calls this with the same plan at the same point."""
        check_plan(plan)
        self.use(self._chooser.on(plan.topology, plan))

    def replan(self, topology: Topology | str, *, time_limit: float = 20.0) -> Plan:
        """Plan the all-reduce for a cluster, and use that from here on; every rank calls this.

        Parameters
        ----------
        topology
            Of these ranks, or of their hosts; that of rank 0 counts. Connections stay as they are.
        time_limit
            That rank 0 may plan for.

        Returns
        -------
        Plan
            The same on all ranks.

        Raises
        ------
        RuntimeFailure
            If rank 0 cannot plan; all ranks then go on as before.
        """
        from weft.runtime.agreed_plan import agree_on_plan

        self._check_open()
        plan = agree_on_plan(
            self,
            topology,
            check_timeout(time_limit),
            self._chooser.inputs.plan,
            check=lambda network: self._chooser.check_ranks("topology", network),
        )
        self.use_plan(plan)
        return plan

    def plan_halves(self, *, time_limit: float = 20.0) -> None:
        """Plan what `halves` uses as well, if the cluster is known; every rank calls this.

        Parameters
        ----------
        time_limit
            That rank 0 may plan for.

        Raises
        ------
        RuntimeFailure
            If rank 0 cannot plan; all ranks then go on as before.
        """
        from weft.runtime.agreed_plan import agree_on_plan

        self._check_open()
        network = self._chooser.inputs.network
        if network is None or network.ranks != self.size or self.size == 1:
            return
        half = check_timeout(time_limit) / 2
        found = [
            agree_on_plan(self, network, half, collective=collective)
            for collective in ("reduce_scatter", "all_gather")
        ]
        self.use(self._chooser.extended(found))

    def halves(self, elements: int, dtype: Any = np.float32) -> SplitAllReduce:
        """An all-reduce in two parts, with time for something else between them.

        Parameters
        ----------
        elements, dtype
            Of the arrays.
        """
        self._check_open()
        return SplitAllReduce(self, elements, dtype)

    def repair(self, *, timeout: float | None = None, plan_time_limit: float = 20.0) -> int:
        """Go on after `LinkLost`, without the link; every rank calls this.

        All ranks connect anew. If a plan or a topology was used, rank 0 plans for what is left of it.
        Communicators made by `split` are closed.

        Parameters
        ----------
        timeout
            Seconds for all ranks to come and to connect; the communicator's own by default.
        plan_time_limit
            Seconds that rank 0 may plan for.

        Returns
        -------
        int
            How many operations this rank has completed and others have not. These are to be repeated first,
            with the arrays as they were before, and then the one that failed: so all ranks make the same
            calls again. 0 on ranks that were not ahead.

        Raises
        ------
        DisconnectedError
            If the links that are left do not connect all ranks.
        PeerLost, TimedOut
            If a rank is gone or does not come.
        RuntimeFailure
            If what failed was a rank and not a link.
        """
        self._check_open()
        if isinstance(self._failure, PeerLost):
            msg = f"a job goes on without a link, not without a rank: {self._failure}"
            raise RuntimeFailure(msg) from self._failure
        wait = self._wait(timeout)
        check_timeout(plan_time_limit)
        with self._busy:
            self._close_parts()
            selector = self._chooser
            found = self._engine.recover(selector.inputs.network, self._failure is not None, wait)
            self._failure = None
            self._recorder.resume()
            self._reporter.tell_joined()
            self._forget_prepared()
        planned = selector.inputs.plan or selector.inputs.schedule
        self.use(selector.on(found.topology))
        if planned is not None and found.topology is not None:
            self.replan(found.topology, time_limit=plan_time_limit)
        return found.ahead

    def shrink(
        self, *, minimum: int | None = None, timeout: float | None = None, plan_time_limit: float = 20.0
    ) -> Communicator:
        """Go on after `PeerLost`, without the ranks that are lost; every survivor calls this.

        Survivors meet at the lowest of them, keep their order and are numbered anew. If one more of them is
        lost meanwhile, the others meet again. If a plan or a topology was used, the new rank 0 plans for what
        is left of it. This communicator and its parts are closed then; arrays from `empty` stay as they are.
        What was computed so far is the program's to agree on: see `survivors` and `ahead` of the new
        communicator.

        Parameters
        ----------
        minimum
            How many survivors there must be at least. By default more than half of the ranks that are not
            certainly dead, or half of them with the lowest: then two parts of a network that fell apart do
            not both go on.
        timeout
            Seconds for all survivors to come, and again for connecting them; by default the communicator's.
        plan_time_limit
            Seconds that the new rank 0 may plan for.

        Returns
        -------
        Communicator
            Of the survivors. Its `survivors` are the ranks that they had here, and its `ahead` counts the
            operations that this rank has completed and other survivors have not: these have their results on
            some ranks only, and so has the one that failed.

        Raises
        ------
        RuntimeFailure
            If the others have declared this rank lost, or too few are left.
        TimedOut
            If a rank that is not lost does not call this in time.
        """
        self._check_open()
        if self._worker.is_current():
            msg = "shrink was called within an operation, which it would have to wait for"
            raise RuntimeFailure(f"{msg}; call it from another thread")
        check_minimum(minimum, self.size)
        wait = self._wait(timeout)
        check_timeout(plan_time_limit, "plan_time_limit")
        self._close_parts()
        if not self._worker.idle():  # what is queued fails as the operation before it has
            self._worker.submit(lambda: None, "shrink").wait()
        with self._no_operation():
            self._check_open()
            failure, before = self._failure, self._chooser
            if failure is not None and not isinstance(failure, PeerLost):
                msg = f"shrink goes on after PeerLost, and this rank has failed otherwise: {failure}"
                raise RuntimeFailure(msg) from failure
            lost_rank = failure.rank if isinstance(failure, PeerLost) else None
            engine, found = self._engine.shrink(
                lost_rank, failure is not None, before.inputs.network, minimum, wait
            )
            self._closed = self._engine_closed = True
            self._repeated.forget()
            self._recorder.leave("shrunk")
            atexit.unregister(self.close)
        self._worker.close()  # behind operations that another thread has queued meanwhile, which are refused
        selector = before.among(engine.size, engine.hosts, found.topology)
        reporter = self._reporter.among(found.before)
        new = Communicator(engine, selector, timeout=self.timeout, reporter=reporter)
        new.survivors, new.ahead = found.before, found.ahead
        atexit.register(new.close)
        planned = before.inputs.plan or before.inputs.schedule
        if planned is None or found.topology is None or new.size == 1:
            return new
        return new._plan_for_survivors(found.topology, plan_time_limit, minimum, timeout)

    def _plan_for_survivors(
        self, topology: Topology, time_limit: float, minimum: int | None, timeout: float | None
    ) -> Communicator:
        """Plan for what is left; if one more rank is lost meanwhile, shrink: the program cannot do so yet."""
        try:
            self.replan(topology, time_limit=time_limit)
        except PeerLost:
            later = self.shrink(minimum=minimum, timeout=timeout, plan_time_limit=time_limit)
            assert self.survivors is not None
            assert later.survivors is not None
            later.survivors = tuple(self.survivors[rank] for rank in later.survivors)
            later.ahead = self.ahead
            return later
        return self

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Array where the engine works best; Weft's own: in memory that the ranks of a machine share.

        Parameters
        ----------
        shape
            The number of elements, or of each dimension.
        dtype
            Of an element, as numpy takes it.

        Raises
        ------
        InputError
            If these are no sizes, or the type is none that memory without Python objects can hold.
        LimitError
            If there is no room.
        """
        self._check_open()
        sizes = _read_shape(shape)
        return self._engine.empty(math.prod(sizes), _read_dtype(dtype)).reshape(sizes)

    def split(
        self,
        color: int | None,
        key: int = 0,
        *,
        plan: Plan | str | Path | None = None,
        topology: Topology | str | None = None,
        algorithm: str | None = None,
    ) -> Communicator | None:
        """Communicator of the ranks that give the same color; every rank calls this.

        Parameters
        ----------
        color
            None for ranks that stay outside, which get None.
        key
            Ranks are ordered by this, then as they are here.
        plan, topology, algorithm
            As for `weft.init`, for the new communicator.

        Raises
        ------
        InputError, LimitError
            If these do not fit the new communicator, or the ranks have no room for one more.
            This communicator can still be used.
        """
        inputs = load_inputs(plan, topology=topology, algorithm=algorithm)
        color, key = None if color is None else operator.index(color), operator.index(key)
        if max(abs(color or 0), abs(key)) > _LARGEST_COLOR:
            raise InputError(f"split: color {color} and key {key} must be numbers of 64 bits")
        words = np.array([color is not None, color or 0, key], np.int64)
        table = np.asarray(self.all_gather(words, kind="split")).reshape(-1, 3)
        members = sorted(
            (int(place), rank)
            for rank, (inside, other, place) in enumerate(table)
            if inside and other == color
        )
        ranks = [rank for _, rank in members] if color is not None else []
        carrier = CommunicatorWords(self, "split data")
        engine = self._engine.split(ranks, lambda payload: exchange_bytes(carrier, payload), self.timeout)
        if engine is None:
            return None
        with close_on_error(engine):  # a machine has room for few of them
            selector = ScheduleSelector(len(ranks), inputs, hosts=engine.hosts)
            reporter = self._reporter.among(ranks)
            part = Communicator(engine, selector, timeout=self.timeout, reporter=reporter)
        self._parts.add(part)
        part._whole = weakref.ref(self)
        return part

    def duplicate(self, *, timeout: float | None = None) -> Communicator:
        """Communicator of the same ranks that runs the same schedules over connections of its own.

        Every rank calls this. Operations of the two are not ordered with each other.

        Parameters
        ----------
        timeout
            Seconds for each operation of the new communicator; this communicator's own by default.
        """
        wait = self._wait(timeout)
        part = self.split(0)
        assert part is not None
        part.timeout = wait
        part.use(self._chooser)
        return part

    def close(self) -> None:
        """Leave, after the operations that were started; the other ranks may go on without this one.

        Raises
        ------
        RuntimeFailure
            If it is called within an operation, which it would have to wait for, or if an operation that
            another thread has started does not end.
        """
        if not self._closed and self._worker.is_current():
            msg = "close was called within an operation, which it would have to wait for"
            raise RuntimeFailure(f"{msg}; call it from another thread, or call abort")
        if not self._closed:
            self._closed = True
            self._repeated.forget()
            self._recorder.leave("closed")
            atexit.unregister(self.close)  # which would keep it until the end of the process
            self._close_parts()
            self._worker.close()
            with self._no_operation():
                self._engine.close()
                self._engine_closed = True
            whole = None if self._whole is None else self._whole()
            if whole is not None:
                whole._parts.discard(self)  # else every part would be kept as long as the whole

    @contextmanager
    def _no_operation(self) -> Iterator[None]:
        """Wait until no thread is within an operation, which uses the connections until it is over."""
        if not self._busy.acquire(timeout=self.timeout + _CANCELLED_WITHIN_S):
            msg = f"rank {self.rank} cannot close this communicator: an operation is still running"
            raise RuntimeFailure(f"{msg}; call abort, which cancels it")
        try:
            yield
        finally:
            self._busy.release()

    def _close_parts(self) -> None:
        for part in tuple(self._parts):
            part.close()

    def abort(self) -> None:
        """Leave at once, and cancel what is under way or queued; may be called from any thread.

        What is cancelled raises a `RuntimeFailure` where it is waited for, and its arrays are undefined. A
        rank that is in an operation with this one, or begins one, gets `PeerLost`.

        Raises
        ------
        RuntimeFailure
            If the engine is not Weft's own, and cannot cancel what it has begun.
        """
        self._engine.cancel()
        self._failure = self._failure or RuntimeFailure(f"rank {self.rank} has aborted this communicator")
        self._repeated.forget()
        for part in tuple(self._parts):
            part.abort()
        if self._worker.is_current():
            # Closing waits for this very operation, so another thread does it.
            threading.Thread(target=self.close, name="weft abort").start()
            return
        # What was cancelled lets go of the connections before they are closed.
        if self._busy.acquire(timeout=_CANCELLED_WITHIN_S):
            self._busy.release()
            self.close()


def _read_shape(shape: Any) -> tuple[int, ...]:
    """Sizes of an array that is to be made: whole numbers, numpy's too."""
    try:
        given = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        sizes = tuple(map(operator.index, given))
    except TypeError as error:
        msg = f"empty: shape {quote(str(shape))}: expected a whole number, or a tuple of them"
        raise InputError(msg) from error
    if min(sizes, default=0) < 0 or math.prod(size or 1 for size in sizes) > _LARGEST_COUNT:
        msg = f"empty: shape {quote(str(shape))}: expected sizes of 0 or more that memory can have"
        raise InputError(msg)
    return sizes


def _read_dtype(dtype: Any) -> np.dtype[Any]:
    """Type of the elements of an array that is to be made."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise InputError(f"empty: dtype {quote(str(dtype))}: {error}") from error
    if found.subdtype is not None:
        msg = f"empty: dtype {quote(str(dtype))} is an array itself; give its sizes as the last of the shape"
        raise InputError(msg)
    if found.hasobject or not found.itemsize:
        msg = (
            f"empty: dtype {quote(str(dtype))}: memory that ranks share holds numbers, not objects or nothing"
        )
        raise InputError(msg)
    return found
