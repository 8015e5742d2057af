"""Tensors as the runtime takes them: flat, contiguous, of a type that it moves or adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import distributed as dist

from weft.collective_names import REDUCE_OPS, ReduceOp
from weft.errors import InputError
from weft.runtime.buffers import DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMPY: Final = frozenset(getattr(torch, name) for name in DTYPES if name != "bfloat16")
"""Types that numpy has too."""

_PARTS_OF_BYTES: Final = frozenset(
    found
    for sign in ("int", "uint")
    for bits in range(1, 8)
    if (found := getattr(torch, f"{sign}{bits}", None)) is not None
)
"""Integers of less than a byte, which torch itself can neither copy nor compare."""

_HAVE_NAN: Final = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
)
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


class Staged:
    """A tensor's own memory, or a contiguous copy of it that goes back at the end.

    Parameters
    ----------
    tensor
        A tensor that `check_input` or `check_output` has accepted.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.flat = flat_of(tensor)

    @property
    def array(self) -> Any:
        """The array that the runtime moves."""
        return array_of(self.flat)

    @property
    def numbers(self) -> Any:
        """The array that the runtime adds."""
        if self.flat.is_complex():
            return torch.view_as_real(self.flat).view(-1).numpy()
        return self.array

    def write_back(self) -> None:
        """Copy the result back to the tensor, if this is a copy."""
        if self.flat.data_ptr() != self.tensor.data_ptr():
            write(self.tensor, self.flat.view(self.tensor.shape))


def write_bytes(tensor: torch.Tensor, data: Any) -> None:
    """Overwrite the elements of a tensor with these bytes."""
    staged = Staged(tensor)
    bytes_of(staged.flat)[:] = data
    staged.write_back()


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor in one row, without a copy where that is possible."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    flat = plain.contiguous().view(-1)
    # One element counts as contiguous whatever its stride; but as bytes it cannot be seen then.
    return flat if flat.stride(0) == 1 else flat.as_strided((flat.numel(),), (1,))


def array_of(flat: torch.Tensor) -> Any:
    """Return a flat tensor as the runtime takes it: types that it does not know are bytes."""
    if flat.dtype in _NUMPY:
        return flat.numpy()
    return flat if flat.dtype == torch.bfloat16 else bytes_of(flat)


def bytes_of(flat: torch.Tensor) -> Any:
    """Return the memory of a flat tensor of any type as bytes."""
    return flat.view(torch.uint8).numpy()


def share_memory(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors of two lists may share memory."""
    here, there = ({tensor.untyped_storage().data_ptr() for tensor in part} for part in (some, others))
    return bool(here & there)


def any_share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether two of these tensors may share memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
    return len(set(places)) < len(places)


def kind_of(name: str, tensor: torch.Tensor) -> str:
    """Return the name of a collective on such a tensor for the fingerprint of the runtime's operation."""
    return f"{name} {given_dtype(tensor)}"


def given_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Return the type of the tensor that the caller gave to torch.

    For most collectives torch turns a complex tensor into pairs of real numbers before a backend sees it. The
    tensor that such pairs are a view of shows it, except in inference mode, where torch does not track views.
    """
    base = tensor._base
    if base is None or not base.is_complex() or tensor.is_complex():
        return tensor.dtype
    is_pairs = tensor.dim() > 0 and tensor.shape[-1] == 2 and tensor.stride(-1) == 1
    return base.dtype if is_pairs else tensor.dtype


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the memory of adjacent tensors of one size as one row; None if they are not adjacent."""
    first = tensors[0]
    step = first.numel() * first.element_size()
    storage = first.untyped_storage().data_ptr()
    for index, tensor in enumerate(tensors):
        if (
            not tensor.is_contiguous()
            or tensor.data_ptr() != first.data_ptr() + index * step
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return None
    return first.detach().as_strided((len(tensors) * first.numel(),), (1,))


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Overwrite a tensor, also one that needs a gradient or was made for inference."""
    if values.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        values = values.clone()  # torch refuses to copy between places that overlap
    with torch.inference_mode(tensor.is_inference()):
        tensor.detach().copy_(values)


def invalidate(tensor: torch.Tensor) -> None:
    """Fill the output of a failed operation with NaN, if its type has that."""
    if tensor.dtype in _HAVE_NAN:
        with torch.inference_mode(tensor.is_inference()):
            found = tensor.detach()
            if found.layout == torch.sparse_coo:  # where it has no element, it has none to invalidate
                found = found._values()
            found.fill_(float("nan"))


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
    if tensor.dtype not in _NUMPY and tensor.dtype not in _HAVE_NAN and tensor.dtype != torch.bool:
        raise TypeError(f"{name}: {tensor.dtype} can be moved but not added; supported are {_SUPPORTED}")
    if found in ("band", "bor", "bxor") and tensor.is_floating_point():
        raise TypeError(f"{name}: Cannot use ReduceOp.{given} with non-integral dtype {tensor.dtype}")
    return found, f"{kind_of(name, tensor)} {given}"


def _name(op: Any) -> str:
    """Return the name of a reduction of torch's, which backends get as an object without one."""
    return next((name for name in (*_OPS, "PREMUL_SUM") if op == getattr(dist.ReduceOp, name)), str(op))
