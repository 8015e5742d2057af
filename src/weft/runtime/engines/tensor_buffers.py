"""Tensors and arrays as the torch engine takes them: they stay on their device.

torch is imported where it is needed, so that the rest of the runtime does without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.runtime.buffers import DTYPES, flatten


@dataclass(slots=True)
class TensorFlat:
    """One-dimensional view of a tensor, or a copy of one that is not contiguous.

    Parameters
    ----------
    array
        The user's: a tensor, or a numpy array.
    values
        What the engine works on: a tensor.
    dtype
        One of `DTYPES`.
    """

    array: Any
    values: Any
    dtype: str
    copied: bool

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.values.element_size())

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.elements * self.itemsize

    @property
    def elements(self) -> int:
        """Elements in all."""
        return int(self.values.numel())

    def copy(self) -> TensorFlat:
        """A copy that may be overwritten."""
        return replace(self, values=self.values if self.copied else self.values.clone())

    def empty(self, times: int) -> TensorFlat:
        """Room for so many tensors like this one."""
        return replace(self, values=self.values.new_empty(self.elements * times), copied=True)

    def part(self, first: int, last: int) -> TensorFlat:
        """Some of the elements, in the same memory."""
        return replace(self, values=self.values[first:last])

    def fill(self, other: TensorFlat) -> None:
        """Take over the elements of another, of the same size."""
        self.values.copy_(other.values)

    def overlaps(self, other: TensorFlat) -> bool:
        """Whether they share memory."""
        mine, theirs = self.values, other.values
        begins, ends = mine.data_ptr(), mine.data_ptr() + self.nbytes
        same = mine.device == theirs.device
        return bool(same and begins < theirs.data_ptr() + other.nbytes and theirs.data_ptr() < ends)

    def is_at(self, other: TensorFlat) -> bool:
        """Whether they are the same memory."""
        mine, theirs = self.values, other.values
        same = mine.device == theirs.device and self.nbytes == other.nbytes
        return bool(same and mine.data_ptr() == theirs.data_ptr())

    def divide(self, by: int) -> None:
        """Divide every element."""
        self.values.div_(by, rounding_mode=None if self.values.is_floating_point() else "trunc")

    def give_back(self) -> Any:
        """Return the user's tensor or array, with the result in it."""
        if self.copied:
            shaped = self.values.reshape(self.array.shape)
            if isinstance(self.array, np.ndarray):
                self.array[...] = shaped.numpy()
            else:
                self.array.detach().copy_(shaped)
        return self.array

    def take(self) -> Any:
        """The elements as a flat tensor or array, for the user to keep."""
        return self.values.numpy() if isinstance(self.array, np.ndarray) else self.values


def flatten_tensor(array: Any, *, writable: bool) -> TensorFlat:
    """Take a tensor on any device, or whatever the native engine takes.

    Raises
    ------
    TypeError
        If its type is not supported, or it cannot be written to.
    """
    import torch

    if isinstance(array, torch.Tensor):
        name = str(array.dtype).removeprefix("torch.")
        if name not in DTYPES:
            msg = f"arrays of {array.dtype} are not supported, only {', '.join(DTYPES)}"
            raise TypeError(msg)
        tensor = array.detach()
        copied = not tensor.is_contiguous()
        return TensorFlat(array, tensor.contiguous().reshape(-1), name, copied)
    flat = flatten(array, writable=writable)
    # torch does not know read-only memory; what is only read may be a copy.
    elements = flat.bytes.view(flat.seen.dtype)
    values = torch.from_numpy(elements if elements.flags.writeable else elements.copy())
    return TensorFlat(flat.array, values, flat.dtype, flat.copied)
