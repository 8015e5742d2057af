"""The ordered queue of operations of a communicator.

There is one queue and one kind of handle. An operation that is started with ``async_op``, by a user, by a
process group of torch or by DeAR, goes to the communicator's `Worker`: one thread, which carries operations
out in the order in which they were started, and a `Handle` for each. A blocking call runs in the caller's own
thread if the queue is empty, else it is queued and waited for. `OperationQueue.in_turn` queues several calls
as one operation; calls that are made within it run at once. `_busy` is no second queue: it is the lock that
keeps a blocking call which found the queue empty apart from an operation that another thread starts at the
same moment.

Operations of a kind that ran before are kept prepared. After a failure every further operation is refused.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from weft.errors import InputError, LimitError, RuntimeFailure, quote
from weft.runtime import flight_recorder
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.runtime.buffers import Flat
from weft.runtime.element_ranges import cut_into_chunks, share_of
from weft.runtime.engines import Prepared, Record
from weft.runtime.extension import _runtime
from weft.runtime.handles import AnyOptions, Worker, done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from weft.runtime.buffers import Buffer
    from weft.runtime.engines import Engine, PeerExchange
    from weft.runtime.handles import OperationOptions
    from weft.runtime.launcher.failure_reports import FailureReporter
    from weft.runtime.schedule_selection import Chosen, ScheduleSelector

_MOST_KEPT: Final = 4096
"""Prepared operations that are kept; when there are more kinds, all of them are prepared anew."""

_MEETS: Final = {
    "send": "message",
    "recv": "message",
    "send_recv": "message",
    "send_parts": "parts",
    "recv_parts": "parts",
}
"""What the two ends of an exchange are called together, where they have different names."""

SEGMENT_BYTES: Final = 256 << 10
"""Fits into a core's cache while several ranks' pieces are added to it."""

_OPTIONS: Final = frozenset(AnyOptions.__annotations__)
"""The keywords that every operation takes."""


class OperationQueue:
    """The base of `Communicator` that queues, prepares and runs operations; parameters as there."""

    def __init__(
        self, engine: Engine[Any], chooser: ScheduleSelector, timeout: float, reporter: FailureReporter
    ) -> None:
        self.rank, self.size = engine.rank, engine.size
        self._reporter = reporter
        self.timeout = check_timeout(timeout)
        self._engine, self._chooser = engine, chooser
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self._busy = _runtime.OperationLock()
        self._repeated = _runtime.RepeatedOperations(engine.operations, np.ndarray, self._busy)
        self._repeat = self._repeated.run  # looked up by every small all-reduce
        self._worker = Worker()
        self._queue = self._worker.queue
        self._turn: int | None = None
        self._forked = False
        self._closed = self._engine_closed = False
        self._failure: RuntimeFailure | None = None
        self._recorder = flight_recorder.FlightRecorder(engine)
        flight_recorder.write_on_signal()
        _here.add(self)

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.size}>"

    @property
    def last(self) -> Record | None:
        """What the latest operation was; None before the first."""
        latest: Prepared | None = self._engine.operations.latest
        return None if latest is None else latest.record

    @property
    def failure(self) -> RuntimeFailure | None:
        """The failure that ended this communicator; None as long as it can be used."""
        return self._failure

    def use(self, chooser: ScheduleSelector) -> None:
        """Use other schedules from here on; every rank calls this between the same two operations."""
        with self._busy:
            self._chooser = chooser
            self._forget_prepared()

    def in_turn(self, run: Callable[[], Any], *, async_op: bool = False, name: str = "an operation") -> Any:
        """Run several operations as if they were one.

        Parameters
        ----------
        run
            A function that is called when all operations that were started before are over. Operations that
            it calls run at once, also with ``async_op=True``. Its result is the result.
        async_op
            Return a `Handle` at once instead of waiting.
        name
            The name of the operation, for messages.
        """
        return self._do(name, self._taking_turn(run), how={"async_op": async_op})

    @contextmanager
    def together(self) -> Iterator[None]:
        """Queue several operations, which begin at the end of this context at the latest.

        The thread that carries them out is woken once: then, or when somebody waits for an operation.
        """
        self._queue.hold()
        try:
            yield
        finally:
            self._queue.release()

    def _taking_turn(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function whose operations run at once."""

        def one_after_the_other() -> Any:
            outer, self._turn = self._turn, threading.get_ident()
            try:
                return run()
            finally:
                self._turn = outer

        return one_after_the_other

    def _do(self, name: str, run: Callable[[], Any], *buffers: Buffer, how: AnyOptions) -> Any:
        """Run an operation now or queue it; return its result or, with `async_op`, its handle.

        Parameters
        ----------
        name
            Of the operation, for messages.
        run
            The operation.
        buffers
            The arrays that it works on. It takes their elements as they are when its turn comes: operations
            that were queued at the call may have changed them.
        how
            The user's options, which are checked before anything is queued.
        """
        async_op = self._check_options(name, how)
        if not self._has_turn():  # an operation that was started before `close` may still make calls
            self._check_open()
        if self._has_turn():
            return done(run) if async_op else run()

        def run_in_turn() -> Any:
            for buffer in buffers:
                buffer.reload()
            return run()

        if async_op:
            return self._worker.submit(run_in_turn, name)
        if self._worker.idle():
            return run_in_turn()  # the queue may have become empty since a strided array was copied
        if self._worker.is_current():
            msg = "a blocking call within another operation would wait for itself; use Communicator.in_turn"
            raise RuntimeFailure(msg)
        return self._worker.submit(run_in_turn, name).wait()

    def _check_options(self, name: str, how: AnyOptions) -> bool:
        """Refuse options of a call that do not exist or cannot be; return whether it is asynchronous."""
        if not how.keys() <= _OPTIONS:
            unknown = min(how.keys() - _OPTIONS)
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}")
        self._wait(how.get("timeout"))
        _check_kind(how.get("kind", ""))
        async_op = how.get("async_op", False)
        if not isinstance(async_op, bool):
            raise InputError(f"async_op {async_op!r}: expected True or False")
        return async_op

    def _has_turn(self) -> bool:
        """Return whether this thread runs a function that was given to `in_turn`."""
        return self._turn == threading.get_ident()

    def _check_open(self) -> None:
        if self._forked:
            msg = f"this process was forked from rank {self.rank}, and cannot use its communicator"
            raise RuntimeFailure(f"{msg}; fork before weft.init, or start the process by 'spawn'")
        if self._closed:
            raise RuntimeFailure(f"rank {self.rank} has closed this communicator")

    def _execute(
        self, collective: str, flat: Buffer, out: Buffer, op: str, root: int, how: OperationOptions
    ) -> Prepared | None:
        """Run one operation; return None if this is the only rank."""
        if self.size == 1:
            return None
        prepared = self._find(collective, flat, op, root, how)
        self._run(prepared, flat, out, op, how.get("timeout"))
        return prepared

    def _find(self, collective: str, flat: Buffer, op: str, root: int, how: OperationOptions) -> Prepared:
        key = (collective, flat.elements, flat.dtype, op, root, how.get("kind", ""))
        known = self._prepared.get(key)
        if known is not None:
            return known
        chosen = self._chooser.choose(collective, flat.nbytes, root)
        return self._prepare(key, chosen, flat, f"op {op}, root {root}")

    def _execute_chosen(
        self, name: str, chosen: Chosen, flat: Buffer, timeout: float | None, kind: str = ""
    ) -> None:
        """Run one half of an all-reduce, in place; the schedules of the two halves were chosen together."""
        key = (name, flat.elements, flat.dtype, chosen[0].digest, chosen[1], kind)
        prepared = self._prepared.get(key) or self._prepare(key, chosen, flat)
        self._run(prepared, flat, flat, "sum", timeout)

    def _prepare(
        self, key: tuple[Any, ...], chosen: Chosen, flat: Buffer, arguments: str = "half of an all-reduce"
    ) -> Prepared:
        schedule, segment_bytes = chosen
        if schedule.ranks != self.size:
            msg = f"{schedule.algorithm}: a schedule for {schedule.ranks} ranks; the job has {self.size}"
            raise InputError(msg)
        start = cut_into_chunks(schedule, flat.elements)
        segment = segment_bytes or SEGMENT_BYTES
        if segment >= flat.nbytes and not self._engine.over_sockets:
            segment = SEGMENT_BYTES  # pieces that stay in the caches: within a machine memory is what limits
        script = self._engine.prepare(schedule, start, max(1, segment // flat.itemsize))
        record = Record(key[0], schedule.algorithm, schedule.digest, flat.nbytes, segment, kind=key[-1])
        mark = _fingerprint((*key, schedule.digest, segment))
        details = (
            f"{flat.dtype}, {arguments}, kind {record.kind or record.collective}, "
            f"schedule {schedule.digest[:12]}, segments of {segment} bytes"
        )
        scatters = schedule.collective == "reduce_scatter"
        share = share_of(schedule, start, self.rank) if scatters else (0, 0)
        share_only = self._engine.writes_shares_only(schedule)
        return self._keep_ready(key, Prepared(schedule, script, record, mark, share, share_only, details))

    def _keep_ready(self, key: tuple[Any, ...], prepared: Prepared) -> Prepared:
        """Keep a prepared operation for the next one of the same kind."""
        if len(self._prepared) >= _MOST_KEPT:
            self._forget_prepared()
        self._prepared[key] = prepared
        return prepared

    def _forget_prepared(self) -> None:
        self._prepared.clear()
        self._repeated.forget()

    def _exchange(
        self,
        name: str,
        exchanges: tuple[PeerExchange, ...],
        flat: Buffer,
        out: Buffer,
        how: OperationOptions,
    ) -> None:
        kind = how.get("kind", "")
        key = (name, exchanges, flat.nbytes, flat.dtype, kind)
        prepared = self._prepared.get(key)
        if prepared is None:
            segment = max(1, SEGMENT_BYTES // flat.itemsize)
            script = self._engine.prepare_exchange(exchanges, segment)
            record = Record(name, "point to point", "", flat.nbytes, segment * flat.itemsize, kind)
            mark = _fingerprint(("exchange", _MEETS.get(name, name), flat.dtype, kind))
            details = f"{flat.dtype}, kind {kind or name}"
            prepared = self._keep_ready(key, Prepared(None, script, record, mark, details=details))
        self._run(prepared, flat, out, "sum", how.get("timeout"))

    def _run(self, prepared: Prepared, flat: Buffer, out: Buffer, op: str, timeout: float | None) -> None:
        if self._busy.locked():
            self._refuse_nested()
        with self._busy:
            if self._engine_closed:  # by another thread, since this one found the communicator open
                self._check_open()
            with self._watched():
                self._engine.operations.begin(prepared)
                self._engine.run(prepared, flat, out, op, self._wait(timeout))
                self._engine.operations.end()

    def _allocate(self, make: Callable[[], Buffer]) -> Buffer:
        """Make room for an operation; a rank that has none leaves, because the others wait for it."""
        with self._watched():
            return make()

    def _refuse_nested(self) -> None:
        """Refuse a call by a handler that interrupted an operation of this thread, which would never end.

        Python runs handlers of signals, and those of log lines, in the middle of what a thread does. The lock
        does not know whose it is, since to ask at every operation would cost more than the lock; so the
        thread's own calls are looked through where the lock is taken.
        """
        nested = self._repeated.runs_in_this_thread
        frame = sys._getframe(1)  # the call that is here now
        while frame.f_back is not None and not nested:
            frame = frame.f_back
            nested = frame.f_code is OperationQueue._run.__code__ and frame.f_locals.get("self") is self
        if nested:
            msg = f"rank {self.rank} called its communicator within an operation of the same thread"
            raise RuntimeFailure(f"{msg}, in a handler of signals or log lines; call it later")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Refuse to run after a failure, and keep a new one."""
        if self._failure is not None:
            msg = f"this communicator is of no further use: {self._failure}"
            raise RuntimeFailure(msg) from self._failure
        try:
            yield
        except RuntimeFailure as failure:
            self._note_failure(failure)
            raise
        except (MemoryError, LimitError, OSError) as error:
            # The others wait in an operation that this rank has not done, and would pair it with its next.
            unable = RuntimeFailure(f"rank {self.rank} could not do its part of an operation: {error!r}")
            self._note_failure(unable)
            self._engine.leave()
            raise unable from error

    def _note_failure(self, failure: RuntimeFailure) -> None:
        self._failure = failure
        self._repeated.forget()
        self._recorder.fail(failure)
        flight_recorder.write_flight_of_failure(failure)
        self._reporter.tell(failure)  # last: a launcher that has heard it may end this process

    def flight(self) -> Path | None:
        """Write the flight record of this process: the latest operations of all its communicators.

        The file is ``flight-JOB-rN.json`` in the folder that ``WEFT_FLIGHT_DIR`` names, by default the
        working directory; ``weft explain`` merges those of all ranks. It is also written when an operation
        fails, and on SIGUSR2.

        Returns
        -------
        Path or None
            The file; None if ``WEFT_FLIGHT_DIR`` is set but empty.

        Raises
        ------
        RuntimeFailure
            If it cannot be written.
        """
        return flight_recorder.write_flight("on demand")

    def _wait(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else check_timeout(timeout)

    def _check_root(self, root: int) -> None:
        if not is_rank(root, self.size):
            raise InputError(f"root {root!r} is not a rank 0..{self.size - 1}")

    def _into(self, name: str, out: Any, flat: Buffer, elements: float) -> Buffer:
        """Return the array that the user gave for the result, checked."""
        into: Buffer = self._engine.flatten(out, writable=True)
        if into.dtype != flat.dtype:
            raise TypeError(f"{name}: out is {into.dtype}, the array {flat.dtype}; both have one type")
        if into.elements != elements:
            need = f"{self.size} ranks with {flat.elements} elements need {elements:g}"
            raise InputError(f"{name}: out has {into.elements} elements; {need}")
        return into

    def _room(self, name: str, out: Any, flat: Buffer, elements: int) -> Buffer:
        """Return room for a result: the array that the user gave for it, checked, else a new one."""
        return flat.empty(elements) if out is None else self._into(name, out, flat, elements)

    def _learn(self, prepared: Prepared, flat: Buffer, dtype: np.dtype[Any], op: str, kind: str) -> None:
        """Keep an all-reduce, which the next array of the same size, type, op and kind then repeats."""
        if self._failure is not None or self._closed:
            return
        operation = self._engine.repeatable(prepared, flat, op)
        if operation is not None:
            self._repeated.learn(prepared, operation, dtype, op, kind)

    def repeat(
        self, run: Callable[[], Any], array: Any, op: str, divided: slice = slice(0)
    ) -> _runtime.RepeatedCall | None:
        """Return a call whose `start` queues the latest operation again, for the worker to do without Python.

        Parameters
        ----------
        run
            What has just made the operation, within `in_turn`, and makes it where that is impossible: after a
            failure, or a change of engine or schedules.
        array
            Whose elements it has combined in place.
        op
            What it was run with.
        divided
            The elements that are divided by the number of ranks afterwards.

        Returns
        -------
        RepeatedCall or None
            None if this engine cannot repeat it.
        """
        flat = self._engine.flatten(array, writable=True)
        if not isinstance(flat, Flat) or flat.copied:
            return None
        prepared: Prepared | None = self._engine.operations.latest if self.size > 1 else None
        operation = None if prepared is None else self._engine.repeatable(prepared, flat, op)
        if self.size > 1 and operation is None:
            return None
        first, last, _ = divided.indices(flat.elements)
        return _runtime.RepeatedCall(
            self._queue,
            self._repeated,
            operation,
            prepared,
            flat.bytes,
            flat.dtype,
            (first * flat.itemsize, (last - first) * flat.itemsize),
            self.size,
            self._taking_turn(run),
            self._fail_call,
            self._worker.check_waiter,
        )

    def _fail_call(self, ending: _runtime.OperationResult | None, wait: float) -> NoReturn:
        """Raise the failure of a call that was repeated; None: there was no memory for it."""
        if ending is not None:
            self._fail_repeated(ending, wait)
        with self._watched():
            raise MemoryError("no memory for an operation that was repeated")
        raise AssertionError

    def _fail_repeated(self, ending: _runtime.OperationResult, wait: float) -> NoReturn:
        """Raise the failure of an all-reduce that was repeated."""
        try:
            self._engine.fail_repeated(ending, wait)
        except RuntimeFailure as failure:
            self._note_failure(failure)
            raise


def is_rank(value: Any, size: int) -> bool:
    """Return whether a value is the number of one of `size` ranks."""
    return isinstance(value, int | np.integer) and 0 <= int(value) < size


def _check_kind(kind: Any) -> None:
    if not isinstance(kind, str):
        what = f"expected a text that names what the elements are, not {type(kind).__name__}"
        raise InputError(f"kind {quote(str(kind))}: {what}")
    if not kind.isascii() and any("\ud800" <= one <= "\udfff" for one in kind):
        raise InputError(f"kind {kind!a}: half of a surrogate pair cannot be sent")


_here: weakref.WeakSet[OperationQueue] = weakref.WeakSet()


def _forget() -> None:
    """Close all communicators in a forked child: to the other ranks it would look like its parent."""
    for communicator in _here:
        communicator._closed = communicator._forked = True
        communicator._repeated.forget()
        communicator._turn = None


os.register_at_fork(after_in_child=_forget)


def _fingerprint(what: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:8])
