"""The collectives of a communicator: all-reduce, broadcast, reduce, reduce-scatter, all-gather, all-to-all.

An array may be a numpy array, or anything with DLPack or the buffer protocol, of float16, bfloat16 (through
DLPack), float32, float64, int32, int64, int8 or uint8. Every rank makes the same calls in the same order with
the same sizes and types; a rank that does not is named in a `weft.DesyncError` on every rank that meets it.
All collectives take these parameters:

array
    This rank's part.
op
    ``sum``, ``avg``, ``min``, ``max`` or ``prod``; of integers also the bitwise ``band``, ``bor`` and
    ``bxor``. An average of integers is rounded towards zero, and their sum must fit their type.
root
    The rank that a broadcast starts at, or that a reduction ends at.
out
    Array for the result, which then has its shape; by default the result is a new flat array.
timeout
    Seconds after which the operation gives up; the communicator's own by default.
async_op
    Return a `weft.runtime.handles.Handle` at once instead of waiting for the result.
kind
    Name of what the elements are, where the type of the array does not say it, such as complex numbers that
    are kept as pairs of floats. All ranks give the same name, or get a `weft.DesyncError`.

They raise `TypeError` if the type or the op is not supported, and `weft.PeerLost`, `weft.TimedOut` or
`weft.DesyncError` if they cannot be done; what the arrays hold is then undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

import numpy as np

from weft.collective_names import REDUCE_OPS, ReduceOp
from weft.errors import InputError
from weft.runtime.point_to_point import PointToPoint

if TYPE_CHECKING:
    from weft.runtime.buffers import Buffer
    from weft.runtime.handles import AnyOptions, Handle, OperationOptions, StartingOptions, WaitingOptions

_BITWISE: Final = ("band", "bor", "bxor")
_Array = TypeVar("_Array")


class ArrayCollectives(PointToPoint):
    """The part of `Communicator` that computes collectives; the module says what their parameters are."""

    @overload
    def all_reduce(
        self, array: _Array, op: ReduceOp = ..., *, out: _Array | None = ..., **how: Unpack[WaitingOptions]
    ) -> _Array: ...
    @overload
    def all_reduce(
        self, array: _Array, op: ReduceOp = ..., *, out: _Array | None = ..., **how: Unpack[StartingOptions]
    ) -> Handle[_Array]: ...
    def all_reduce(
        self,
        array: Any,
        op: ReduceOp = "sum",
        *,
        out: Any = None,
        timeout: float | None = None,
        async_op: bool = False,
        kind: str = "",
    ) -> Any:
        """Combine the arrays of all ranks; the array of every rank then holds the result.

        With `out` the result goes there instead, and `array` stays as it is; nothing is copied for that. Some
        ranks may give `out`, and others not.
        """
        if out is None and async_op is False and (not self._queue.pending or self._has_turn()):
            wait = self.timeout if timeout is None else timeout
            ending = self._repeat(array, op, kind, wait)
            if ending is True:
                return array
            if ending is not False:
                self._fail_repeated(ending, wait)
        return self._all_reduce(array, op, out, {"async_op": async_op, "timeout": timeout, "kind": kind})

    # Apart from what is repeated: a function whose variables another one uses takes longer to call.
    def _all_reduce(self, array: Any, op: ReduceOp, out: Any, how: AnyOptions) -> Any:
        """Combine arrays for the first time, or on another way than that of small ones."""
        flat = self._engine.flatten(array, writable=out is None)
        _check_op(op, flat)
        result = flat if out is None else self._into("all_reduce", out, flat, flat.elements)

        def run() -> Any:
            shifted = flat.overlaps(result) and flat.place != result.place
            source = self._allocate(flat.copy) if shifted else flat
            prepared = self._execute("all_reduce", source, result, op, 0, how)
            if prepared is None:
                result.fill(flat)
            if op == "avg":
                result.divide(self.size)
            elif prepared is not None and result is flat and type(array) is np.ndarray:
                self._learn(prepared, flat, array.dtype, op, how.get("kind", ""))
            return result.give_back()

        return self._do("all_reduce", run, flat, how=how)

    @overload
    def broadcast(self, array: _Array, root: int = ..., **how: Unpack[WaitingOptions]) -> _Array: ...
    @overload
    def broadcast(self, array: _Array, root: int = ..., **how: Unpack[StartingOptions]) -> Handle[_Array]: ...
    def broadcast(self, array: Any, root: int = 0, **how: Unpack[AnyOptions]) -> Any:
        """Send the array of the root to every rank, in place."""
        self._check_root(root)
        flat = self._engine.flatten(array, writable=True)

        def run() -> Any:
            self._execute("broadcast", flat, flat, "sum", root, how)
            return flat.give_back()

        return self._do("broadcast", run, flat, how=how)

    @overload
    def reduce(
        self, array: _Array, root: int = ..., op: ReduceOp = ..., **how: Unpack[WaitingOptions]
    ) -> _Array: ...
    @overload
    def reduce(
        self, array: _Array, root: int = ..., op: ReduceOp = ..., **how: Unpack[StartingOptions]
    ) -> Handle[_Array]: ...
    def reduce(self, array: Any, root: int = 0, op: ReduceOp = "sum", **how: Unpack[AnyOptions]) -> Any:
        """Combine the arrays of all ranks at the root, in place; the other ranks' arrays stay as they are."""
        self._check_root(root)
        flat = self._engine.flatten(array, writable=self.rank == root)
        _check_op(op, flat)

        def run() -> Any:
            work = flat if self.rank == root else self._allocate(lambda: flat.empty(flat.elements))
            self._execute("reduce", flat, work, op, root, how)
            if op == "avg" and self.rank == root:
                work.divide(self.size)
            return work.give_back() if self.rank == root else flat.array

        return self._do("reduce", run, flat, how=how)

    @overload
    def reduce_scatter(
        self, array: Any, op: ReduceOp = ..., *, out: Any = ..., **how: Unpack[WaitingOptions]
    ) -> Any: ...
    @overload
    def reduce_scatter(
        self, array: Any, op: ReduceOp = ..., *, out: Any = ..., **how: Unpack[StartingOptions]
    ) -> Handle[Any]: ...
    def reduce_scatter(
        self, array: Any, op: ReduceOp = "sum", *, out: Any = None, **how: Unpack[AnyOptions]
    ) -> Any:
        """Combine the arrays of all ranks and return this rank's share of the result.

        Shares are equal, or differ by one element where the size is not a multiple of the ranks; the first
        ranks then have more. With `out` all shares have its size, and it may be this rank's share of `array`.
        """
        flat = self._engine.flatten(array, writable=False)
        _check_op(op, flat)
        into = None if out is None else self._into("reduce_scatter", out, flat, flat.elements / self.size)

        def run() -> Any:
            result = self._reduce_share(flat, into, op, how)
            if op == "avg":
                result.divide(self.size)
            return result.give_back()

        return self._do("reduce_scatter", run, flat, how=how)

    @overload
    def all_gather(self, array: Any, *, out: Any = ..., **how: Unpack[WaitingOptions]) -> Any: ...
    @overload
    def all_gather(self, array: Any, *, out: Any = ..., **how: Unpack[StartingOptions]) -> Handle[Any]: ...
    def all_gather(self, array: Any, *, out: Any = None, **how: Unpack[AnyOptions]) -> Any:
        """Join the arrays of all ranks, which have the same size, in rank order.

        `array` may be this rank's place in `out`.
        """
        flat = self._engine.flatten(array, writable=False)
        whole = self._room("all_gather", out, flat, flat.elements * self.size)

        def run() -> Any:
            whole.part(self.rank * flat.elements, (self.rank + 1) * flat.elements).fill(flat)
            self._execute("all_gather", whole, whole, "sum", 0, how)
            return whole.give_back()

        return self._do("all_gather", run, flat, how=how)

    @overload
    def all_to_all(self, array: Any, *, out: Any = ..., **how: Unpack[WaitingOptions]) -> Any: ...
    @overload
    def all_to_all(self, array: Any, *, out: Any = ..., **how: Unpack[StartingOptions]) -> Handle[Any]: ...
    def all_to_all(self, array: Any, *, out: Any = None, **how: Unpack[AnyOptions]) -> Any:
        """Send the r-th part of the array to rank r, and return the parts that other ranks sent, by rank.

        `out` may be `array`.
        """
        flat = self._engine.flatten(array, writable=False)
        if flat.elements % self.size:
            raise InputError(f"all_to_all: {flat.elements} elements are no multiple of {self.size} ranks")
        result = self._room("all_to_all", out, flat, flat.elements)
        part = flat.elements // self.size
        own = self.rank * part, (self.rank + 1) * part

        def run() -> Any:
            source = self._allocate(flat.copy) if flat.overlaps(result) else flat
            self._execute("all_to_all", source, result, "sum", 0, how)
            result.part(*own).fill(source.part(*own))
            return result.give_back()

        return self._do("all_to_all", run, flat, how=how)

    def barrier(self, *, timeout: float | None = None) -> None:
        """Return once every rank has called this; `last` stays what it was."""
        operations = self._engine.operations
        latest = operations.latest
        self.all_reduce(np.zeros(1, np.int32), timeout=timeout, kind="barrier")
        operations.latest = latest

    def _reduce_share(self, flat: Buffer, into: Buffer | None, op: str, how: OperationOptions) -> Buffer:
        """Reduce-scatter an array, which stays as it is; this rank's share, undivided."""
        if self.size == 1:
            return _settle(flat, into)
        prepared = self._find("reduce_scatter", flat, op, 0, how)
        first, last = prepared.share
        if into is not None and (first, last) != (self.rank * into.elements, (self.rank + 1) * into.elements):
            what = f"elements {first} to {last}, not an equal share; leave out= out, or use another schedule"
            raise InputError(f"reduce_scatter: {prepared.record.algorithm} gives rank {self.rank} {what}")
        if prepared.share_only:
            result = self._allocate(lambda: flat.empty(last - first)) if into is None else into
            # Others read all of the array but this rank's share.
            shifted = flat.overlaps(result) and flat.part(first, last).place != result.place
            source = self._allocate(flat.copy) if shifted else flat
            self._execute("reduce_scatter", source, result, op, 0, how)
            return result
        work = flat if flat.copied else self._allocate(lambda: flat.empty(flat.elements))
        self._execute("reduce_scatter", flat, work, op, 0, how)
        return _settle(work.part(first, last), into)


def _settle(share: Buffer, into: Buffer | None) -> Buffer:
    room = share.empty(share.elements) if into is None else into
    room.fill(share)
    return room


def _check_op(op: object, flat: Buffer) -> None:
    if not isinstance(op, str) or op not in REDUCE_OPS:
        raise TypeError(f"op {str(op)[:40]!r} is not supported, only {', '.join(REDUCE_OPS)}")
    if op in _BITWISE and not flat.dtype.startswith(("int", "uint")):
        raise TypeError(f"{op} works on the bits of integers, not on {flat.dtype}")
