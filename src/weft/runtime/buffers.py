"""Buffers: flat, contiguous memory of a known type that engines work on, and the user's arrays as such."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from weft.runtime.extension import _runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES: Final = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "int16", "int8", "uint8")
_NAMES: Final = {np.dtype(name): name for name in DTYPES if name != "bfloat16"}


@dataclass(slots=True)
class Buffer(ABC):
    """A user's array as an engine takes it: flat, or a copy of one that is not contiguous.

    Parameters
    ----------
    array
        The user's.
    values
        What the engine works on: a flat array or tensor.
    dtype
        One of `DTYPES`.
    copied
        Whether the values lie elsewhere than the user's.
    """

    array: Any
    values: Any
    dtype: str
    copied: bool

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.values.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.values.nbytes)

    @property
    def elements(self) -> int:
        """Elements in all."""
        return len(self.values)

    @property
    @abstractmethod
    def place(self) -> tuple[Any, int]:
        """Device that the values are on, and their address there."""

    def copy(self) -> Self:
        """A copy that may be overwritten."""
        if self.copied:
            return self
        made = self.empty(self.elements)
        made.fill(self)
        return made

    @abstractmethod
    def empty(self, elements: int) -> Self:
        """Room for so many elements, of the same type on the same device, in a flat array for the user."""

    def part(self, first: int, last: int) -> Self:
        """Some of the elements, in the same memory."""
        return replace(self, values=self.values[first:last])

    def fill(self, other: Self) -> None:
        """Take over the elements of another, of the same size; it may be the same memory."""
        if self.place != other.place:
            self.values[:] = other.values

    def overlaps(self, other: Self) -> bool:
        """Whether they share memory."""
        (device, mine), (other_device, theirs) = self.place, other.place
        shared = max(mine, theirs) < min(mine + self.nbytes, theirs + other.nbytes)
        return device == other_device and shared

    @abstractmethod
    def combine(self, other: Self, op: str) -> None:
        """Add the elements of another, of the same size, or do to them whatever the op is."""

    @abstractmethod
    def divide(self, by: int) -> None:
        """Divide every element."""

    @abstractmethod
    def reload(self) -> None:
        """Copy the user's elements again, if the values are a copy, because they may have changed."""

    @abstractmethod
    def give_back(self) -> Any:
        """Return the user's array, with the result in it."""


@dataclass(slots=True)
class Flat(Buffer):
    """A buffer in ordinary memory.

    Parameters
    ----------
    values
        Of numpy's type; bfloat16 as whole numbers.
    seen
        The user's array as numpy sees it.
    """

    values: NDArray[Any]
    seen: NDArray[Any]

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """What Weft's own kernels and links work on."""
        return self.values.view(np.uint8)

    @property
    def place(self) -> tuple[None, int]:
        """The address of the values."""
        return None, self.values.__array_interface__["data"][0]

    def empty(self, elements: int) -> Flat:
        """Room for so many elements of the same type, in a flat array; a tensor if torch's were given."""
        values = np.empty(elements, self.values.dtype)
        array: Any = values
        if self.array is not self.seen and type(self.array).__module__.partition(".")[0] == "torch":
            array = sys.modules["torch"].from_numpy(values).view(self.array.dtype)
        return replace(self, array=array, values=values, copied=False, seen=values)

    def combine(self, other: Flat, op: str) -> None:
        """Add the elements of another, or do to them whatever the op is."""
        _runtime.reduce(self.bytes, other.bytes, self.dtype, op)

    def divide(self, by: int) -> None:
        """Divide every element."""
        _runtime.divide(self.bytes, self.dtype, by)

    def reload(self) -> None:
        """Copy the user's elements again, if the values are a copy."""
        if self.copied:
            self.values.reshape(self.seen.shape)[...] = self.seen

    def give_back(self) -> Any:
        """Return the user's array, with the result in it."""
        if self.copied:
            self.seen[...] = self.values.reshape(self.seen.shape)
        return self.array


def _plain_view(array: NDArray[Any]) -> NDArray[Any]:
    """The elements of a subclass of numpy's array, whose methods may do something else, such as np.matrix."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("a masked array cannot be taken as an array: others have no mask; use array.filled()")
    return array.view(np.ndarray)


def check_sign(array: Any) -> None:
    """Refuse a tensor whose elements have another sign than what lies in memory."""
    if getattr(array, "is_neg", bool)():
        msg = "this tensor is not in memory as it reads (torch's negative bit); take array.resolve_neg()"
        raise TypeError(msg)


def flatten(array: Any, *, writable: bool) -> Flat:
    """Take an array, or anything with DLPack or the buffer protocol, without copying where possible.

    Raises
    ------
    TypeError
        If its type is not supported, or it cannot be written to.
    """
    seen, name = array, None
    if isinstance(array, np.ndarray):
        if type(array) is not np.ndarray:
            seen = _plain_view(array)
    else:
        check_sign(array)
        if str(getattr(array, "dtype", "")) == "torch.bfloat16":
            if array.requires_grad:  # DLPack refuses such tensors of other types by itself
                msg = "a Tensor that requires gradient cannot be taken as an array; take array.detach()"
                raise TypeError(msg)
            # numpy has no such type: the same bytes under another name.
            seen, name = array.view(sys.modules["torch"].int16), "bfloat16"
        try:
            seen = np.from_dlpack(seen) if hasattr(seen, "__dlpack__") else np.asarray(memoryview(seen))
        except (TypeError, BufferError, RuntimeError) as error:
            raise TypeError(f"a {type(array).__name__} cannot be taken as an array: {error}") from error
    name = name or _NAMES.get(seen.dtype)
    if name is None:
        raise TypeError(f"arrays of {seen.dtype} are not supported, only {', '.join(DTYPES)}")
    flags = seen.flags
    if writable and not flags.writeable:
        raise TypeError("the array is read-only")
    whole = seen if flags.c_contiguous else np.ascontiguousarray(seen)
    return Flat(array, whole.reshape(-1), name, whole is not seen, seen)
