"""User memory as the runtime takes it: flat, contiguous, of a known type."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES: Final = ("float16", "bfloat16", "float32", "float64", "int32", "int64")


@dataclass(slots=True)
class Flat:
    """One-dimensional view of an array, or a copy of one that is not contiguous.

    Parameters
    ----------
    array
        The user's.
    bytes
        What the runtime works on.
    dtype
        One of `DTYPES`.
    """

    array: NDArray[Any]
    bytes: NDArray[np.uint8]
    dtype: str
    itemsize: int
    copied: bool

    @property
    def address(self) -> int:
        """Where it begins; 0 if it is empty."""
        return int(self.bytes.__array_interface__["data"][0]) if self.bytes.size else 0

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.bytes.nbytes

    @property
    def elements(self) -> int:
        """Elements in all."""
        return self.bytes.nbytes // self.itemsize

    def copy(self) -> Flat:
        """A copy that may be overwritten."""
        return replace(self, bytes=self.bytes if self.copied else self.bytes.copy())

    def empty(self, times: int) -> Flat:
        """Room for so many arrays like this one."""
        return replace(self, bytes=np.empty(self.nbytes * times, np.uint8), copied=True)

    def part(self, first: int, last: int) -> Flat:
        """Some of the elements, in the same memory."""
        return replace(self, bytes=self.bytes[first * self.itemsize : last * self.itemsize])

    def fill(self, other: Flat) -> None:
        """Take over the elements of another, of the same size."""
        self.bytes[:] = other.bytes

    def divide(self, by: int) -> None:
        """Divide every element."""
        _core.divide(self.bytes, self.dtype, by)

    def take(self) -> NDArray[Any]:
        """The elements as a flat array, for the user to keep."""
        return self.bytes.view(self.array.dtype)

    def give_back(self) -> NDArray[Any]:
        """The user's array, with what was computed in it."""
        if self.copied:
            self.array[...] = self.bytes.view(self.array.dtype).reshape(self.array.shape)
        return self.array


def flatten(array: Any, *, writable: bool) -> Flat:
    """Take an array, or anything with DLPack or the buffer protocol, without copying where possible.

    Raises
    ------
    TypeError
        If its type is not supported, or it cannot be written to.
    """
    name = ""
    if not isinstance(array, np.ndarray):
        if str(getattr(array, "dtype", "")) == "torch.bfloat16":
            # numpy has no such type: the same bytes under another name.
            array, name = array.view(sys.modules["torch"].int16), "bfloat16"
        array = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(memoryview(array))
    name = name or array.dtype.name
    if name not in DTYPES or not array.dtype.isnative:
        msg = f"arrays of {array.dtype} are not supported, only {', '.join(DTYPES)}"
        raise TypeError(msg)
    if writable and not array.flags.writeable:
        msg = "the array is read-only"
        raise TypeError(msg)
    copied = not array.flags.c_contiguous
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Flat(array, flat, name, array.dtype.itemsize, copied)
