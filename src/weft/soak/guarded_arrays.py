"""Arrays of a soak test: what they hold, where they lie, and what is written around them.

Inputs and results are whole numbers, so that every sum is exact.

Before, behind and between the elements of an array there are elements of a known value, the guards, except
for arrays that ``Communicator.empty`` gives as they are. An operation that writes outside its array changes
them.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.bench.data import FOLD, count_wrong, encode, fill, pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.runtime import Communicator
    from weft.soak.random_operations import Memory

_MARGIN: Final = 3
"""Elements before and behind the array, which is therefore not aligned to anything but its type."""

_GUARD: Final = 0xA5


@cache
def input_values(rank: int, op: str, ranks: int, dtype: str) -> NDArray[Any]:
    """Pattern that one rank's input repeats, as bits of the type."""
    return encode(_numbers(rank, op, ranks, dtype), dtype)


@cache
def result_values(op: str, ranks: int, dtype: str) -> NDArray[Any]:
    """Pattern that the inputs of all ranks combine to, as bits of the type."""
    total = reduce(
        FOLD["sum" if op == "avg" else op], (_numbers(rank, op, ranks, dtype) for rank in range(ranks))
    )
    return encode(total // ranks if op == "avg" else total, dtype)


def _numbers(rank: int, op: str, ranks: int, dtype: str) -> NDArray[np.int64]:
    if op == "avg":  # multiples of the number of ranks have a whole average
        return ranks * pattern(rank, "sum", ranks, dtype)
    return pattern(rank, op, ranks, dtype)


class Block:
    """An array for an operation.

    Parameters
    ----------
    array
        What the operation is given.
    guards
        What lies around it, as unsigned integers.
    """

    def __init__(self, array: NDArray[Any], guards: tuple[NDArray[Any], ...] = ()) -> None:
        self.array = array
        self._guards = guards
        self._guard = np.frombuffer(bytes([_GUARD] * array.itemsize), f"u{array.itemsize}")[0]
        for guard in guards:
            guard[...] = self._guard

    def write(self, values: NDArray[Any], phase: int) -> None:
        """Fill the array with a repeated pattern, given as bits of its type."""
        flat = np.empty(self.array.size, values.dtype)
        fill(flat, values, phase)
        self.array[...] = flat.view(self.array.dtype).reshape(self.array.shape)

    def count_overwritten(self) -> int:
        """How many guards have changed."""
        return sum(int(np.count_nonzero(guard != self._guard)) for guard in self._guards)


def count_wrong_elements(array: NDArray[Any], values: NDArray[Any], phase: int) -> int:
    """How many elements of an array are not those of a repeated pattern, bit by bit."""
    flat = np.ascontiguousarray(array).reshape(-1).view(values.dtype)
    return count_wrong(flat, values, phase % values.size)


def make_block(communicator: Communicator, memory: Memory, elements: int, dtype: str) -> Block:
    """Make an array of so many elements.

    Parameters
    ----------
    communicator
        Whose shared memory is used.
    memory
        Where and how it lies.
    elements, dtype
        How many, of which type.
    """
    if memory == "shared":
        return Block(communicator.empty(elements, dtype))
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    step = 2 if memory == "strided" else 1
    room = _MARGIN + step * elements + _MARGIN
    whole = communicator.empty(room, dtype).view(bits) if memory == "inside" else np.empty(room, bits)
    middle = whole[_MARGIN : room - _MARGIN]
    guards = [whole[:_MARGIN], whole[room - _MARGIN :]]
    if memory == "strided":
        guards.append(middle[1::2])
        middle = middle[::2]
    elif memory == "columns":
        width = next((width for width in (2, 3, 5) if elements and elements % width == 0), 1)
        middle = middle.reshape(-1, width).T
    return Block(middle.view(dtype), tuple(guards))
