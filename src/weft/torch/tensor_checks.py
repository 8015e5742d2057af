"""Checks of tensors: what the process group refuses, with the reason, and the name of a reduction."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import distributed as dist

from weft.collective_names import REDUCE_OPS, ReduceOp
from weft.errors import InputError
from weft.torch.tensors import DTYPES_WITH_NAN, NUMPY_DTYPES, kind_of

_PARTS_OF_BYTES: Final = frozenset(
    found
    for sign in ("int", "uint")
    for bits in range(1, 8)
    if (found := getattr(torch, f"{sign}{bits}", None)) is not None
)
"""Integers of less than a byte, which torch itself can neither copy nor compare."""

_SUPPORTED: Final = "float16, bfloat16, float32, float64, int64, int32, int16, int8, uint8, bool and complex"
_OPS: Final[dict[str, ReduceOp]] = {
    "PRODUCT" if name == "prod" else name.upper(): name for name in REDUCE_OPS
}
"""The runtime's name of each reduction of torch's."""

_BOOL_OPS: Final[dict[str, ReduceOp]] = {
    **dict.fromkeys(("SUM", "MAX", "BOR"), "max"),
    **dict.fromkeys(("MIN", "PRODUCT", "BAND"), "min"),
    "BXOR": "bxor",
}
"""The same for true and false, which are one and zero, as bytes."""


def check_input(name: str, *tensors: torch.Tensor) -> None:
    """Refuse tensors that cannot be moved.

    Raises
    ------
    TypeError
        If a tensor is not on the CPU, or not plainly strided.
    InputError
        If its elements are smaller than a byte.
    """
    for tensor in tensors:
        if tensor.is_nested or tensor.is_quantized:
            what, how = ("nested", "to_padded_tensor") if tensor.is_nested else ("quantized", "int_repr")
            raise TypeError(f"{name}: {what} tensors are not supported; use tensor.{how}()")
        if tensor.dtype in _PARTS_OF_BYTES:
            what = f"{tensor.dtype} is smaller than a byte, and torch itself cannot copy it"
            raise InputError(f"{name}: {what}; use tensor.view(torch.uint8)")
        check_cpu(name, tensor)
        if tensor.layout != torch.strided:
            raise TypeError(f"{name}: {tensor.layout} tensors are not supported; use tensor.to_dense()")


def check_cpu(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that is elsewhere."""
    if tensor.device.type != "cpu":
        msg = f"{name}: a group of backend weft moves tensors on CPUs, not on {tensor.device}"
        raise TypeError(f"{msg}; use nccl there, or weft.torch.DeAR over it")


def check_output(name: str, *tensors: torch.Tensor) -> None:
    """Refuse tensors that cannot be moved or written to."""
    check_input(name, *tensors)
    for tensor in tensors:
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        if not tensor.is_contiguous() and any(size > 1 and step == 0 for size, step in pairs):
            msg = f"{name}: several elements of an expanded tensor share memory; use tensor.contiguous()"
            raise TypeError(msg)


def check_one_type(name: str, *tensors: torch.Tensor) -> None:
    """Refuse tensors of different types."""
    types = {tensor.dtype for tensor in tensors}
    if len(types) > 1:
        raise TypeError(f"{name}: the tensors are {', '.join(sorted(map(str, types)))}; all have one type")


def check_pair(name: str, output: torch.Tensor, source: torch.Tensor, *, larger: int, smaller: int) -> None:
    """Refuse an output that does not fit: `smaller` outputs have as many elements as `larger` inputs."""
    check_input(name, source)
    check_output(name, output)
    if output.dtype != source.dtype:
        raise TypeError(f"{name}: the output is {output.dtype}, the input {source.dtype}; both have one type")
    if output.numel() * smaller != source.numel() * larger:
        raise InputError(f"{name}: {output.numel()} elements of output do not fit {source.numel()} of input")


def find_reduction(name: str, op: Any, tensor: torch.Tensor) -> tuple[ReduceOp, str]:
    """Return the runtime's name of a reduction of such a tensor, and the kind of this collective.

    Raises
    ------
    TypeError
        If the reduction is not supported; the error says which are.
    """
    known = _BOOL_OPS if tensor.dtype == torch.bool else _OPS
    given = _name(op)
    found = known.get(given)
    if tensor.is_complex() and found not in ("sum", "avg"):
        found = None
    if found is None:
        allowed = "SUM and AVG" if tensor.is_complex() else ", ".join(sorted(known))
        raise TypeError(f"{name}: {given} of {tensor.dtype} is not supported, only {allowed}")
    if (
        tensor.dtype not in NUMPY_DTYPES
        and tensor.dtype not in DTYPES_WITH_NAN
        and tensor.dtype != torch.bool
    ):
        raise TypeError(f"{name}: {tensor.dtype} can be moved but not added; supported are {_SUPPORTED}")
    if found in ("band", "bor", "bxor") and tensor.is_floating_point():
        raise TypeError(f"{name}: Cannot use ReduceOp.{given} with non-integral dtype {tensor.dtype}")
    return found, f"{kind_of(name, tensor)} {given}"


def _name(op: Any) -> str:
    """Return the name of a reduction of torch's, which backends get as an object without one."""
    return next((name for name in (*_OPS, "PREMUL_SUM") if op == getattr(dist.ReduceOp, name)), str(op))
