"""Collectives over arrays, executed for real.

A `Communicator` runs verified schedules: it asks its chooser for the schedule of a collective and a size,
keeps the part that concerns its own rank (`_core.Script`), and lets the executor move the bytes. What ran is
always told: `Communicator.last` is a `Record` of the latest operation.

Operations run one after the other, in the order of the calls. A blocking call works in the caller's own
thread when nothing is queued; what was started with ``async_op`` is done by one worker thread.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import numpy as np

from weft import _core, limits
from weft.errors import DesyncError, InputError, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.arena import Arena
from weft.runtime.buffers import Flat, flatten
from weft.runtime.wiring import connect
from weft.runtime.work import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft.runtime.chooser import Chooser
    from weft.runtime.roster import Roster
    from weft.schedule import Schedule

OPS: Final = ("sum", "avg", "min", "max", "prod")

_LARGE: Final = 64 << 10
"""Bytes from which a system call per piece is cheaper than copying twice."""

_SEGMENT_BYTES: Final = 256 << 10
"""Fits into a core's cache while several ranks' pieces are added to it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What ran: for people, logs and tests."""

    collective: str
    algorithm: str
    digest: str
    size_bytes: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A schedule made ready for one size and type."""

    schedule: Schedule
    script: _core.Script
    record: Record
    fingerprint: int
    start: NDArray[np.int64]


class Communicator:
    """Ranks that compute collectives together; made by `weft.init`.

    Arrays may be numpy arrays, or anything with DLPack or the buffer protocol, of float16, bfloat16 (through
    DLPack), float32, float64, int32 or int64. Every rank makes the same calls in the same order with the same
    sizes and types; a rank that does not is named in a `weft.DesyncError` on every rank that meets it.

    Parameters
    ----------
    roster
        Who takes part.
    chooser
        Which schedule runs for which collective and size.
    timeout
        Seconds after which an operation gives up, unless it is given its own.
    transport
        ``"auto"``: memory within a machine, sockets between machines. ``"tcp"``: sockets everywhere.
    arena_bytes
        Room for `empty`; only what is used takes memory.
    """

    def __init__(
        self,
        roster: Roster,
        chooser: Chooser,
        *,
        timeout: float = 60.0,
        transport: str = "auto",
        arena_bytes: int = limits.DEFAULT_ARENA_BYTES,
    ) -> None:
        self.rank, self.size = roster.rank, roster.size
        self.timeout = timeout
        self.last: Record | None = None
        self._roster, self._chooser = roster, chooser
        self._wires = connect(roster, transport=transport, arena_bytes=arena_bytes, timeout=timeout)
        self._arena = Arena(self._wires.host)
        self._prepared: dict[tuple[Any, ...], _Prepared] = {}
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)
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

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """Array in memory that the ranks of this machine share: collectives on it need no copies."""
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._arena.empty(int(np.prod(dims)), np.dtype(dtype)).reshape(dims)

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
        flat = flatten(array, writable=True)
        _check_op(op, flat)

        def run() -> Any:
            self._execute("all_reduce", flat, flat, op, 0, timeout)
            if op == "avg":
                _core.divide(flat.bytes, flat.dtype, self.size)
            return flat.give_back()

        return self._do(run, async_op=async_op)

    def broadcast(
        self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Give every rank the root's array, in place."""
        self._check_root(root)
        flat = flatten(array, writable=True)

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
        flat = flatten(array, writable=self.rank == root)
        _check_op(op, flat)
        work = flat if self.rank == root else flat.copy()

        def run() -> Any:
            self._execute("reduce", work, work, op, root, timeout)
            if op == "avg" and self.rank == root:
                _core.divide(work.bytes, work.dtype, self.size)
            return work.give_back() if self.rank == root else flat.array

        return self._do(run, async_op=async_op)

    def reduce_scatter(
        self, array: Any, op: str = "sum", *, timeout: float | None = None, async_op: bool = False
    ) -> Any:
        """Combine the arrays of all ranks and return this rank's share of the result, flat.

        Shares are equal, or differ by one element where the size is not a multiple of the ranks; the first
        ranks then have more.
        """
        flat = flatten(array, writable=False)
        _check_op(op, flat)
        work = flat.copy()

        def run() -> Any:
            prepared = self._execute("reduce_scatter", work, work, op, 0, timeout)
            first, last = self._share(prepared) if prepared else (0, work.elements)
            mine = work.bytes[first * work.itemsize : last * work.itemsize].copy()
            if op == "avg":
                _core.divide(mine, work.dtype, self.size)
            return mine.view(work.array.dtype)

        return self._do(run, async_op=async_op)

    def all_gather(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Join the arrays of all ranks, which have the same size, in rank order; returned flat."""
        flat = flatten(array, writable=False)
        whole = Flat.empty(flat, self.size)
        whole.bytes[self.rank * flat.nbytes : (self.rank + 1) * flat.nbytes] = flat.bytes

        def run() -> Any:
            self._execute("all_gather", whole, whole, "sum", 0, timeout)
            return whole.bytes.view(flat.array.dtype)

        return self._do(run, async_op=async_op)

    def all_to_all(self, array: Any, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Send the r-th part of the array to rank r and return what came, in rank order, flat."""
        flat = flatten(array, writable=False)
        if flat.elements % self.size:
            msg = f"all_to_all: {flat.elements} elements are no multiple of {self.size} ranks"
            raise InputError(msg)
        result = Flat.empty(flat, 1)
        part = flat.nbytes // self.size

        def run() -> Any:
            self._execute("all_to_all", flat, result, "sum", 0, timeout)
            own = slice(self.rank * part, (self.rank + 1) * part)
            result.bytes[own] = flat.bytes[own]
            return result.bytes.view(flat.array.dtype)

        return self._do(run, async_op=async_op)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return once every rank has called this."""
        self.all_reduce(np.zeros(1, np.int32), timeout=timeout)

    def close(self) -> None:
        """Leave; the others may go on among themselves, but not with this rank."""
        if not self._closed:
            self._closed = True
            self._worker.close()
            self._wires.close()
            self._roster.close()

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

    def _share(self, prepared: _Prepared) -> tuple[int, int]:
        mine = np.flatnonzero(prepared.schedule.target == self.rank)
        return int(prepared.start[mine[0]]), int(prepared.start[mine[-1] + 1])

    def _execute(
        self, collective: str, flat: Flat, out: Flat, op: str, root: int, timeout: float | None
    ) -> _Prepared | None:
        """Run one operation; None where there is nobody to run it with."""
        if self.size == 1:
            return None
        prepared = self._prepare(collective, flat, op, root)
        script = prepared.script
        wait = self.timeout if timeout is None else timeout
        with self._busy:
            needed = (script.scratch_elements + script.stage_elements) * flat.itemsize
            if self._scratch.nbytes < needed:
                self._scratch = self._arena.empty(needed, np.dtype(np.uint8))
            scratch = int(self._scratch.__array_interface__["data"][0]) if needed else 0
            memory = [flat.address, out.address, scratch]
            shared, addresses = 0, []
            for region, address in enumerate(memory):
                where = self._arena.find(address) if address else None
                shared |= (where is not None) << region
                addresses.append(address if where is None else where)
            ending = self._wires.executor.run(
                script,
                prepared.fingerprint,
                [*memory, scratch + script.scratch_elements * flat.itemsize],
                addresses,
                shared,
                flat.nbytes > _LARGE,
                flat.dtype,
                op,
                max(1, int(wait * 1000)),
            )
        self.last = prepared.record
        if ending.status != _core.Status.done:
            self._fail(ending, prepared, wait)
        return prepared

    def _prepare(self, collective: str, flat: Flat, op: str, root: int) -> _Prepared:
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
            script = _core.write_script(
                schedule.table,
                schedule.ranks,
                schedule.slots,
                start,
                collective == "all_to_all",
                max(1, segment // flat.itemsize),
                self.rank,
                limits.MAX_SEGMENTS,
            )
            record = Record(collective, schedule.algorithm, schedule.digest, flat.nbytes, segment)
            text = repr((*key, schedule.digest, segment))
            (fingerprint,) = struct.unpack("<Q", hashlib.sha256(text.encode()).digest()[:8])
            found = self._prepared[key] = _Prepared(schedule, script, record, fingerprint, start)
        return found

    def _fail(self, ending: _core.Ending, prepared: _Prepared, wait: float) -> NoReturn:
        what = f"{prepared.record.collective} #{self._wires.executor.sequence} ({prepared.record.algorithm})"
        status = ending.status
        if status == _core.Status.timed_out:
            raise TimedOut(what, wait, [ending.waited_for])
        if status == _core.Status.differs:
            raise DesyncError(ending.rank, what)
        step = int(prepared.schedule.step[ending.row]) if ending.row >= 0 else None
        member = self._roster.members[ending.rank] if ending.rank >= 0 else None
        if member is None:
            msg = f"{what}: a rank was lost, and nobody knows which"
            raise RuntimeFailure(msg)
        raise PeerLost(member.rank, member.host, member.pid, what, step)


def _check_op(op: str, flat: Flat) -> None:
    if op not in OPS:
        msg = f"op {op!r} is not supported, only {', '.join(OPS)}"
        raise TypeError(msg)
    if op == "avg" and flat.dtype.startswith("int"):
        msg = f"avg is for floating point, not {flat.dtype}; use sum and divide"
        raise TypeError(msg)
