"""Operations of a soak test carried out on a communicator, and their results checked."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from weft.runtime import Handle
from weft.soak.guarded_arrays import Block, count_wrong_elements, input_values, make_block, result_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.runtime import Communicator
    from weft.soak.random_operations import Operation

Calls = Generator[Any, Any, int]
"""Yields what a call returned, is sent its result, and returns how many elements are wrong."""


class Action:
    """One operation on one rank: it is started, waited for, and checked.

    There is one method for each kind of operation. It makes the arrays, yields the call of the operation, and
    goes on when that is over: it counts the elements that are wrong.

    Parameters
    ----------
    operation
        What is done.
    communicator
        Of the operation's group.
    """

    def __init__(self, operation: Operation, communicator: Communicator) -> None:
        self.operation = operation
        self._comm: Any = communicator  # whether a call returns a handle is known only when it is made
        self._me, self._size = communicator.rank, communicator.size
        self._later = operation.asynchronous
        self._blocks: list[Block] = []

    def start(self) -> None:
        """Call the operation; unless it is asynchronous, it is over when this returns."""
        self._calls: Calls = getattr(self, f"_{self.operation.kind}")()
        self._called = next(self._calls)

    def finish(self) -> int:
        """Wait for the operation, and count the elements and guards that are wrong."""
        try:
            while True:
                self._called = self._calls.send(self._wait(self._called))
        except StopIteration as checked:
            overwritten = sum(block.count_overwritten() for block in self._blocks)
            return int(checked.value) + overwritten

    def _wait(self, called: Any) -> Any:
        """Result of a call, which may have been asynchronous."""
        return called.wait(2 * self._comm.timeout) if isinstance(called, Handle) else called

    def _input_of(self, rank: int) -> NDArray[Any]:
        return input_values(rank, self.operation.op, self._size, self.operation.dtype)

    @property
    def _total(self) -> NDArray[Any]:
        return result_values(self.operation.op, self._size, self.operation.dtype)

    def _empty(self, elements: int) -> NDArray[Any]:
        block = make_block(self._comm, self.operation.memory[self._me], elements, self.operation.dtype)
        self._blocks.append(block)
        return block.array

    def _input(self, *, read_only: bool = False) -> NDArray[Any]:
        """Array of this rank; only where it is not written to may it be read-only."""
        array = self._empty(self.operation.elements)
        Block(array).write(self._input_of(self._me), self.operation.phase)
        if read_only and self.operation.read_only[self._me]:
            array.flags.writeable = False
        return array

    def _count_wrong(self, found: NDArray[Any], values: NDArray[Any], first: int = 0) -> int:
        """Compare elements that begin at the element `first` of a pattern."""
        return count_wrong_elements(found, values, self.operation.phase + first)

    def _count_wrong_parts(self, found: NDArray[Any], part: int, first: int = 0) -> int:
        """Compare what has come from all ranks, so many elements of each one's input from `first` on."""
        flat = found.reshape(-1)
        wrong = abs(int(flat.size) - part * self._size)
        for rank in range(self._size):
            piece = flat[rank * part : (rank + 1) * part]
            wrong += self._count_wrong(piece, self._input_of(rank), first)
        return wrong

    def _all_reduce(self) -> Calls:
        elsewhere = self.operation.into == "out"
        array = self._input(read_only=elsewhere)
        out = self._empty(self.operation.elements) if elsewhere else None
        found = yield self._comm.all_reduce(array, self.operation.op, out=out, async_op=self._later)
        wrong = (found is not (out if elsewhere else array)) + self._count_wrong(found, self._total)
        return wrong + self._count_wrong(array, self._input_of(self._me)) if elsewhere else wrong

    def _broadcast(self) -> Calls:
        array, root = self._input(), self.operation.root
        yield self._comm.broadcast(array, root, async_op=self._later)
        return self._count_wrong(array, self._input_of(root))

    def _reduce(self) -> Calls:
        root, op = self.operation.root, self.operation.op
        array = self._input(read_only=self._me != root)
        yield self._comm.reduce(array, root, op, async_op=self._later)
        return self._count_wrong(array, self._total if self._me == root else self._input_of(self._me))

    def _reduce_scatter(self) -> Calls:
        into, mine = self.operation.into, self._input_of(self._me)
        array = self._input(read_only=into != "place")
        share, more = divmod(self.operation.elements, self._size)
        first = self._me * share + min(self._me, more)
        last = first + share + (self._me < more)
        out = array[first:last] if into == "place" else self._empty(share) if into == "out" else None
        found = yield self._comm.reduce_scatter(array, self.operation.op, out=out, async_op=self._later)
        wrong = abs(int(found.size) - (last - first)) + self._count_wrong(found, self._total, first)
        if into != "place":
            return wrong + self._count_wrong(array, mine)
        return wrong + self._count_wrong(array[:first], mine) + self._count_wrong(array[last:], mine, last)

    def _all_gather(self) -> Calls:
        into, part = self.operation.into, self.operation.elements
        out = None if into == "new" else self._empty(part * self._size)
        if into == "place":
            assert out is not None
            array = out[self._me * part : (self._me + 1) * part]
            Block(array).write(self._input_of(self._me), self.operation.phase)
        else:
            array = self._input(read_only=True)
        found = yield self._comm.all_gather(array, out=out, async_op=self._later)
        return self._count_wrong_parts(found, part) + self._count_wrong(array, self._input_of(self._me))

    def _all_to_all(self) -> Calls:
        into, part = self.operation.into, self.operation.elements // self._size
        array = self._input(read_only=into != "place")
        given = self._empty(self.operation.elements) if into == "out" else None
        out = array if into == "place" else given
        found = yield self._comm.all_to_all(array, out=out, async_op=self._later)
        wrong = self._count_wrong_parts(found, part, self._me * part)
        return wrong if into == "place" else wrong + self._count_wrong(array, self._input_of(self._me))

    def _halves(self) -> Calls:
        array = self._input()
        halves = self._comm.halves(self.operation.elements, self.operation.dtype)
        yield halves.reduce(array, self.operation.op, async_op=self._later)
        wrong = self._count_wrong(array.reshape(-1)[halves.mine], self._total, halves.mine.start)
        yield halves.gather(array, async_op=self._later)
        return wrong + self._count_wrong(array, self._total)

    def _send(self) -> Calls:
        sender, receiver = self.operation.root, self.operation.peer
        if self._me not in (sender, receiver):
            yield None
            return 0
        array = self._input(read_only=self._me == sender)
        if self._me == sender:
            yield self._comm.send(array, receiver, async_op=self._later)
        else:
            yield self._comm.recv(array, sender, async_op=self._later)
        return self._count_wrong(array, self._input_of(sender))

    def _send_recv(self) -> Calls:
        away = self.operation.peer
        to, source = (self._me + away) % self._size, (self._me - away) % self._size
        array, result = self._input(read_only=True), self._empty(self.operation.elements)
        yield self._comm.send_recv(array, to, result, source, async_op=self._later)
        wrong = self._count_wrong(array, self._input_of(self._me))
        return wrong + self._count_wrong(result, self._input_of(source))

    def _barrier(self) -> Calls:
        yield self._comm.barrier()
        return 0
