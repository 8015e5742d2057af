"""Collectives over arrays, executed for real.

A `Communicator` runs verified schedules: it asks its chooser for the schedule of a collective and a size, has
its engine keep the part that concerns this rank, and lets the engine move the bytes. What ran is always told:
`Communicator.last` is a `Record` of the latest operation.

Operations run one after the other, in the order of the calls. A blocking call works in the caller's own
thread when nothing is queued; what was started with ``async_op`` is done by one worker thread.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from weft.errors import InputError, RuntimeFailure
from weft.runtime.engines import Buffer, Engine, Prepared, Record
from weft.runtime.work import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime.chooser import Chooser

OPS: Final = ("sum", "avg", "min", "max", "prod")

_SEGMENT_BYTES: Final = 256 << 10
"""Fits into a core's cache while several ranks' pieces are added to it."""


class Communicator:
    """Ranks that compute collectives together; made by `weft.init`.

    Arrays may be numpy arrays, or anything with DLPack or the buffer protocol, of float16, bfloat16 (through
    DLPack), float32, float64, int32 or int64. Every rank makes the same calls in the same order with the same
    sizes and types; a rank that does not is named in a `weft.DesyncError` on every rank that meets it.

    Parameters
    ----------
    engine
        Who takes part, and what moves the bytes.
    chooser
        Which schedule runs for which collective and size.
    timeout
        Seconds after which an operation gives up, unless it is given its own.
    """

    def __init__(self, engine: Engine[Any], chooser: Chooser, *, timeout: float = 60.0) -> None:
        self.rank, self.size = engine.rank, engine.size
        self.timeout = timeout
        self.last: Record | None = None
        self._engine, self._chooser = engine, chooser
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self._busy = threading.Lock()
        self._worker = Worker()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.size}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, chooser: Chooser) -> None:
        """Take other schedules from here on; every rank calls this between the same two operations."""
        with self._busy:
            self._chooser = chooser
            self._prepared.clear()

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Array where the engine works best; Weft's own: in memory that the ranks of a machine share."""
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._engine.empty(int(np.prod(dims)), np.dtype(dtype)).reshape(dims)

    def all_reduce(
        self, array: Any, op: str = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Combine the arrays of all ranks, in place.

        Parameters
        ----------
        array
            This rank's part; holds the result afterwards.
        op
            ``sum``, ``avg`` (floating point only), ``min``, ``max`` or ``prod``.
        timeout
            Seconds; the communicator's own by default.
        async_op
            Return a `Work` at once instead of waiting.

        Raises
        ------
        TypeError
            If the type or the op is not supported.
        PeerLost, TimedOut, DesyncError
            If it cannot be done; what the array holds is then undefined.
        """
        flat = self._engine.flatten(array, writable=True)
        _check_op(op, flat)

        def run() -> Any:
            self._execute("all_reduce", flat, flat, op, 0, timeout)
            if op == "avg":
                flat.divide(self.size)
            return flat.give_back()

        return self._do(run, async_op=async_op)

    def broadcast(
        self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Give every rank the root's array, in place."""
        self._check_root(root)
        flat = self._engine.flatten(array, writable=True)

        def run() -> Any:
            self._execute("broadcast", flat, flat, "sum", root, timeout)
            return flat.give_back()

        return self._do(run, async_op=async_op)

    def reduce(
        self,
        array: Any,
        root: int = 0,
        op: str = "sum",
        *,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Combine the arrays of all ranks at the root, in place; the other ranks' arrays stay as they are."""
        self._check_root(root)
        flat = self._engine.flatten(array, writable=self.rank == root)
        _check_op(op, flat)
        work = flat if self.rank == root else flat.copy()

        def run() -> Any:
            self._execute("reduce", work, work, op, root, timeout)
            if op == "avg" and self.rank == root:
                work.divide(self.size)
            return work.give_back() if self.rank == root else flat.array

        return self._do(run, async_op=async_op)

    def reduce_scatter(
        self, array: Any, op: str = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Combine the arrays of all ranks and return this rank's share of the result, flat.

        Shares are equal, or differ by one element where the size is not a multiple of the ranks; the first
        ranks then have more.
        """
        flat = self._engine.flatten(array, writable=False)
        _check_op(op, flat)
        work = flat.copy()

        def run() -> Any:
            prepared = self._execute("reduce_scatter", work, work, op, 0, timeout)
            first, last = self._share(prepared) if prepared else (0, work.elements)
            mine = work.part(first, last).copy()
            if op == "avg":
                mine.divide(self.size)
            return mine.take()

        return self._do(run, async_op=async_op)

    def all_gather(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Join the arrays of all ranks, which have the same size, in rank order; returned flat."""
        flat = self._engine.flatten(array, writable=False)
        whole = flat.empty(self.size)
        whole.part(self.rank * flat.elements, (self.rank + 1) * flat.elements).fill(flat)

        def run() -> Any:
            self._execute("all_gather", whole, whole, "sum", 0, timeout)
            return whole.take()

        return self._do(run, async_op=async_op)

    def all_to_all(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Send the r-th part of the array to rank r and return what came, in rank order, flat."""
        flat = self._engine.flatten(array, writable=False)
        if flat.elements % self.size:
            msg = f"all_to_all: {flat.elements} elements are no multiple of {self.size} ranks"
            raise InputError(msg)
        result = flat.empty(1)
        part = flat.elements // self.size
        own = self.rank * part, (self.rank + 1) * part

        def run() -> Any:
            self._execute("all_to_all", flat, result, "sum", 0, timeout)
            result.part(*own).fill(flat.part(*own))
            return result.take()

        return self._do(run, async_op=async_op)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return once every rank has called this."""
        self.all_reduce(self._engine.empty(1, np.dtype(np.int32)), timeout=timeout)

    def close(self) -> None:
        """Leave; the others may go on among themselves, but not with this rank."""
        if not self._closed:
            self._closed = True
            self._worker.close()
            self._engine.close()

    def _do(self, run: Callable[[], Any], *, async_op: bool) -> Any:
        if self._closed:
            msg = f"rank {self.rank} has closed this communicator"
            raise RuntimeFailure(msg)
        if async_op:
            return self._worker.submit(run)
        return run() if self._worker.idle() else self._worker.submit(run).wait()

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            msg = f"root {root} is not a rank 0..{self.size - 1}"
            raise InputError(msg)

    def _share(self, prepared: Prepared) -> tuple[int, int]:
        mine = np.flatnonzero(prepared.schedule.target == self.rank)
        return int(prepared.start[mine[0]]), int(prepared.start[mine[-1] + 1])

    def _execute(
        self, collective: str, flat: Buffer, out: Buffer, op: str, root: int, timeout: float | None
    ) -> Prepared | None:
        """Run one operation; None where there is nobody to run it with."""
        if self.size == 1:
            return None
        prepared = self._prepare(collective, flat, op, root)
        with self._busy:
            self.last = prepared.record
            self._engine.run(prepared, flat, out, op, self.timeout if timeout is None else timeout)
        return prepared

    def _prepare(self, collective: str, flat: Buffer, op: str, root: int) -> Prepared:
        key = (collective, flat.elements, flat.dtype, op, root)
        found = self._prepared.get(key)
        if found is None:
            schedule, segment_bytes = self._chooser.choose(collective, flat.nbytes, root)
            if schedule.ranks != self.size:
                msg = f"{schedule.algorithm}: a schedule for {schedule.ranks} ranks; the job has {self.size}"
                raise InputError(msg)
            sizes = schedule.chunk_bytes(flat.elements)
            start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
            segment = segment_bytes or _SEGMENT_BYTES
            script = self._engine.prepare(schedule, start, max(1, segment // flat.itemsize))
            record = Record(collective, schedule.algorithm, schedule.digest, flat.nbytes, segment)
            text = repr((*key, schedule.digest, segment))
            (fingerprint,) = struct.unpack("<Q", hashlib.sha256(text.encode()).digest()[:8])
            found = self._prepared[key] = Prepared(schedule, script, record, fingerprint, start)
        return found


def _check_op(op: str, flat: Buffer) -> None:
    if op not in OPS:
        msg = f"op {op!r} is not supported, only {', '.join(OPS)}"
        raise TypeError(msg)
    if op == "avg" and flat.dtype.startswith("int"):
        msg = f"avg is for floating point, not {flat.dtype}; use sum and divide"
        raise TypeError(msg)
