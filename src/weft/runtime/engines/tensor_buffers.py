"""Tensors and arrays as the torch engine takes them: they stay on their device.

torch is imported where it is needed, so that the rest of the runtime does without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from weft.runtime.buffers import DTYPES, Buffer, check_sign, flatten

TORCH_OPS: Final = {
    "sum": "add",
    "avg": "add",
    "min": "minimum",
    "max": "maximum",
    "prod": "mul",
    "band": "bitwise_and",
    "bor": "bitwise_or",
    "bxor": "bitwise_xor",
}


@dataclass(slots=True)
class TensorFlat(Buffer):
    """A buffer that is a tensor, on whatever device, and torch computes; the user's may be a numpy array."""

    @property
    def place(self) -> tuple[Any, int]:
        """Device that the tensor is on, and its address there."""
        return self.values.device, self.values.data_ptr()

    def empty(self, elements: int) -> TensorFlat:
        """Room for so many elements, of the same type on the same device, in a flat tensor or array."""
        values = self.values.new_empty(elements)
        array = values.numpy() if isinstance(self.array, np.ndarray) else values
        return replace(self, array=array, values=values, copied=False)

    def fill(self, other: TensorFlat) -> None:
        """Take over the elements of another, of the same size, in whatever memory."""
        if self.place != other.place:
            self.values.copy_(other.values.clone() if self.overlaps(other) else other.values)

    def combine(self, other: TensorFlat, op: str) -> None:
        """Add the elements of another, or do to them whatever the op is."""
        import torch

        getattr(torch, TORCH_OPS[op])(self.values, other.values, out=self.values)

    def divide(self, by: int) -> None:
        """Divide every element."""
        self.values.div_(by, rounding_mode=None if self.values.is_floating_point() else "trunc")

    def reload(self) -> None:
        """Copy the user's elements again, if the values are a copy."""
        if self.copied:
            self.values.copy_(flatten_tensor(self.array, writable=False).values)

    def give_back(self) -> Any:
        """Return the user's tensor or array, with the result in it."""
        if self.copied:
            shaped = self.values.reshape(self.array.shape)
            if isinstance(self.array, np.ndarray):
                self.array[...] = shaped.numpy()
            else:
                self.array.detach().copy_(shaped)
        return self.array


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
            raise TypeError(f"arrays of {array.dtype} are not supported, only {', '.join(DTYPES)}")
        check_sign(array)
        tensor = array.detach()
        copied = not tensor.is_contiguous()
        return TensorFlat(array, tensor.contiguous().reshape(-1), name, copied)
    flat = flatten(array, writable=writable)
    # torch does not know read-only memory; what is only read may be a copy.
    only_read = not flat.values.flags.writeable
    elements = flat.values.copy() if only_read else flat.values
    return TensorFlat(flat.array, torch.from_numpy(elements), flat.dtype, flat.copied or only_read)
