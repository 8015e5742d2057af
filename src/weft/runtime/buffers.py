"""Flat views of the user's arrays: contiguous memory of a known type."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES: Final = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "int16", "int8", "uint8")
_NAMES: Final = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}


@dataclass(slots=True)
class Flat:
    """One-dimensional view of an array, or a copy of one that is not contiguous.

    Parameters
    ----------
    array
        The user's.
    seen
        The same as numpy sees it; bfloat16 as whole numbers.
    bytes
        What the runtime works on.
    dtype
        One of `DTYPES`.
    """

    array: Any
    seen: NDArray[Any]
    bytes: NDArray[np.uint8]
    dtype: str
    itemsize: int
    copied: bool

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

    def overlaps(self, other: Flat) -> bool:
        """Whether they share memory."""
        return np.may_share_memory(self.bytes, other.bytes)

    def is_at(self, other: Flat) -> bool:
        """Whether they are the same memory."""
        mine, theirs = self.bytes.__array_interface__, other.bytes.__array_interface__
        return bool(self.nbytes == other.nbytes and mine["data"][0] == theirs["data"][0])

    def divide(self, by: int) -> None:
        """Divide every element."""
        _core.divide(self.bytes, self.dtype, by)

    def take(self) -> Any:
        """The elements as a flat array, for the user to keep; a tensor if torch's were given."""
        values = self.bytes.view(self.seen.dtype)
        if self.array is self.seen or type(self.array).__module__.partition(".")[0] != "torch":
            return values
        return sys.modules["torch"].from_numpy(values).view(self.array.dtype)

    def give_back(self) -> Any:
        """Return the user's array, with the result in it."""
        if self.copied:
            self.seen[...] = self.bytes.view(self.seen.dtype).reshape(self.seen.shape)
        return self.array


def flatten(array: Any, *, writable: bool) -> Flat:
    """Take an array, or anything with DLPack or the buffer protocol, without copying where possible.

    Raises
    ------
    TypeError
        If its type is not supported, or it cannot be written to.
    """
    seen, name = array, None
    if not isinstance(array, np.ndarray):
        if getattr(array, "is_neg", bool)():
            msg = "this tensor is not in memory as it reads (torch's negative bit); take array.resolve_neg()"
            raise TypeError(msg)
        if str(getattr(array, "dtype", "")) == "torch.bfloat16":
            # numpy has no such type: the same bytes under another name.
            seen, name = array.view(sys.modules["torch"].int16), "bfloat16"
        try:
            seen = np.from_dlpack(seen) if hasattr(seen, "__dlpack__") else np.asarray(memoryview(seen))
        except (TypeError, BufferError, RuntimeError) as error:
            msg = f"a {type(array).__name__} cannot be taken as an array: {error}"
            raise TypeError(msg) from error
    name = name or _NAMES.get(seen.dtype)
    if name is None:
        msg = f"arrays of {seen.dtype} are not supported, only {', '.join(DTYPES)}"
        raise TypeError(msg)
    flags = seen.flags
    if writable and not flags.writeable:
        msg = "the array is read-only"
        raise TypeError(msg)
    whole = seen if flags.c_contiguous else np.ascontiguousarray(seen)
    return Flat(array, seen, whole.reshape(-1).view(np.uint8), name, seen.itemsize, whole is not seen)
