"""Operations of a soak test carried out on a communicator, and their results checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.soak.guarded_arrays import Block, count_wrong_elements, make_block
from weft.soak.values import input_values, result_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft.runtime import Communicator
    from weft.soak.random_operations import Operation

    Finish = Callable[[], int]


class Action:
    """One operation on one rank: it is started, waited for, and checked.

    There is one method for each kind of operation. It makes the arrays, calls the operation, and returns what
    is to be done later: wait for it, and count the elements that are wrong.

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
        self._phase, self._later = operation.phase, operation.asynchronous
        self._finish: Finish | None = None

    def start(self) -> None:
        """Call the operation; unless it is asynchronous, it is over when this returns."""
        self._finish = getattr(self, f"_{self.operation.kind}")()

    def finish(self) -> int:
        """Wait for the operation, and count the elements that are wrong."""
        assert self._finish is not None
        return self._finish()

    def _input_of(self, rank: int) -> NDArray[Any]:
        return input_values(rank, self.operation.op, self._size, self.operation.dtype)

    @property
    def _total(self) -> NDArray[Any]:
        return result_values(self.operation.op, self._size, self.operation.dtype)

    def _wait(self, called: Any) -> Any:
        """Result of a call, which may have been asynchronous."""
        return called.wait(2 * self._comm.timeout) if self._later else called

    def _empty(self, elements: int) -> Block:
        return make_block(self._comm, self.operation.memory[self._me], elements, self.operation.dtype)

    def _input(self, *, read_only: bool = False) -> Block:
        """Array of this rank; only where it is not written to may it be read-only."""
        block = self._empty(self.operation.elements)
        block.write(self._input_of(self._me), self._phase)
        if read_only and self.operation.read_only[self._me]:
            block.array.flags.writeable = False
        return block

    def _count_wrong(self, found: NDArray[Any], values: NDArray[Any], first: int = 0) -> int:
        """Compare elements that begin at the element `first` of a pattern."""
        return count_wrong_elements(found, values, self._phase + first)

    def _all_reduce(self) -> Finish:
        block = self._input()
        called = self._comm.all_reduce(block.array, self.operation.op, async_op=self._later)

        def finish() -> int:
            other = self._wait(called) is not block.array
            return other + block.count_wrong(self._total, self._phase)

        return finish

    def _broadcast(self) -> Finish:
        block, root = self._input(), self.operation.root
        called = self._comm.broadcast(block.array, root, async_op=self._later)

        def finish() -> int:
            self._wait(called)
            return block.count_wrong(self._input_of(root), self._phase)

        return finish

    def _reduce(self) -> Finish:
        at_root = self._me == self.operation.root
        block = self._input(read_only=not at_root)
        called = self._comm.reduce(block.array, self.operation.root, self.operation.op, async_op=self._later)

        def finish() -> int:
            self._wait(called)
            return block.count_wrong(self._total if at_root else self._input_of(self._me), self._phase)

        return finish

    def _reduce_scatter(self) -> Finish:
        into = self.operation.into
        block = self._input(read_only=into != "place")
        share, more = divmod(self.operation.elements, self._size)
        first = self._me * share + min(self._me, more)
        last = first + share + (self._me < more)
        result = self._empty(share) if into == "out" else None
        out = block.array[first:last] if into == "place" else None if result is None else result.array
        called = self._comm.reduce_scatter(block.array, self.operation.op, out=out, async_op=self._later)

        def finish() -> int:
            found, mine = self._wait(called), self._input_of(self._me)
            wrong = abs(int(found.size) - (last - first)) + self._count_wrong(found, self._total, first)
            wrong += block.count_overwritten() + (0 if result is None else result.count_overwritten())
            if into != "place":
                return wrong + self._count_wrong(block.array, mine)
            wrong += self._count_wrong(block.array[:first], mine)
            return wrong + self._count_wrong(block.array[last:], mine, last)

        return finish

    def _all_gather(self) -> Finish:
        into, part = self.operation.into, self.operation.elements
        result = None if into == "new" else self._empty(part * self._size)
        if into == "place":
            assert result is not None
            array = result.array[self._me * part : (self._me + 1) * part]
            block = Block(array)
            block.write(self._input_of(self._me), self._phase)
        else:
            block = self._input(read_only=True)
        out = None if result is None else result.array
        called = self._comm.all_gather(block.array, out=out, async_op=self._later)

        def finish() -> int:
            found = self._wait(called).reshape(-1)
            wrong = abs(int(found.size) - part * self._size)
            for rank in range(self._size):
                wrong += self._count_wrong(found[rank * part : (rank + 1) * part], self._input_of(rank))
            wrong += 0 if result is None else result.count_overwritten()
            return wrong + block.count_wrong(self._input_of(self._me), self._phase)

        return finish

    def _all_to_all(self) -> Finish:
        into, part = self.operation.into, self.operation.elements // self._size
        block = self._input(read_only=into != "place")
        result = self._empty(self.operation.elements) if into == "out" else None
        out = block.array if into == "place" else None if result is None else result.array
        called = self._comm.all_to_all(block.array, out=out, async_op=self._later)

        def finish() -> int:
            found = self._wait(called).reshape(-1)
            wrong = abs(int(found.size) - part * self._size) + block.count_overwritten()
            for rank in range(self._size):
                piece = found[rank * part : (rank + 1) * part]
                wrong += self._count_wrong(piece, self._input_of(rank), self._me * part)
            if into != "place":
                wrong += self._count_wrong(block.array, self._input_of(self._me))
            return wrong + (0 if result is None else result.count_overwritten())

        return finish

    def _halves(self) -> Finish:
        block, op = self._input(), self.operation.op
        halves = self._comm.halves(self.operation.elements, self.operation.dtype)
        called = halves.reduce(block.array, op, async_op=self._later)

        def finish() -> int:
            self._wait(called)
            mine = block.array.reshape(-1)[halves.mine]
            wrong = self._count_wrong(mine, self._total, halves.mine.start)
            self._wait(halves.gather(block.array, async_op=self._later))
            return wrong + block.count_wrong(self._total, self._phase)

        return finish

    def _send(self) -> Finish:
        sender, receiver = self.operation.root, self.operation.peer
        if self._me not in (sender, receiver):
            return lambda: 0
        block = self._input(read_only=self._me == sender)
        if self._me == sender:
            called: Any = self._comm.send(block.array, receiver, async_op=self._later)
        else:
            called = self._comm.recv(block.array, sender, async_op=self._later)

        def finish() -> int:
            self._wait(called)
            return block.count_wrong(self._input_of(sender), self._phase)

        return finish

    def _send_recv(self) -> Finish:
        away = self.operation.peer
        to, source = (self._me + away) % self._size, (self._me - away) % self._size
        block, result = self._input(read_only=True), self._empty(self.operation.elements)
        called = self._comm.send_recv(block.array, to, result.array, source, async_op=self._later)

        def finish() -> int:
            self._wait(called)
            wrong = block.count_wrong(self._input_of(self._me), self._phase)
            return wrong + result.count_wrong(self._input_of(source), self._phase)

        return finish

    def _barrier(self) -> Finish:
        self._comm.barrier()
        return lambda: 0
