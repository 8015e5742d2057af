"""Arithmetic of the interpreter: on numpy bytes by Weft's own kernels, or on tensors by torch.

The C++ half is ``cpp/runtime/kernels.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


class ByteArithmetic:
    """Values are bytes, because numpy has no bfloat16.

    Parameters
    ----------
    dtype
        One of `weft.runtime.buffers.DTYPES`.
    itemsize
        Bytes of an element.
    op
        What combining is.
    """

    def __init__(self, dtype: str, itemsize: int, op: str) -> None:
        self.dtype, self.itemsize, self.op = dtype, itemsize, op

    def empty(self, elements: int) -> Bytes:
        """Return uninitialised memory for values."""
        return np.empty(elements * self.itemsize, np.uint8)

    def view(self, values: Bytes, first: int, last: int) -> Bytes:
        """Some of the values, in the same memory."""
        return values[first * self.itemsize : last * self.itemsize]

    def copy(self, into: Bytes, values: Bytes) -> None:
        """Overwrite values with others."""
        into[:] = values

    def combine(self, into: Bytes, values: Bytes) -> None:
        """Add, or whatever the op is."""
        _core.reduce(into, values, self.dtype, self.op)


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


class TensorArithmetic:
    """Values are tensors, on whatever device, and torch computes.

    Parameters
    ----------
    like
        A tensor of the same type on the same device.
    op
        What combining is.
    """

    def __init__(self, like: Any, op: str) -> None:
        import torch

        self.like = like
        self._combine = getattr(torch, TORCH_OPS[op])

    def empty(self, elements: int) -> Any:
        """Return uninitialised memory for values."""
        return self.like.new_empty(elements)

    def view(self, values: Any, first: int, last: int) -> Any:
        """Some of the values, in the same memory."""
        return values[first:last]

    def copy(self, into: Any, values: Any) -> None:
        """Overwrite values with others."""
        into.copy_(values)

    def combine(self, into: Any, values: Any) -> None:
        """Add, or whatever the op is."""
        self._combine(into, values, out=into)
