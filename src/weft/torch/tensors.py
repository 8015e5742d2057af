"""Tensors as the runtime takes them: flat and contiguous, as arrays or bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from weft.runtime.buffers import DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMPY_DTYPES: Final = frozenset(getattr(torch, name) for name in DTYPES if name != "bfloat16")
"""Types that numpy has too."""

DTYPES_WITH_NAN: Final = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
)


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
    if flat.dtype in NUMPY_DTYPES:
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
    if tensor.dtype in DTYPES_WITH_NAN:
        with torch.inference_mode(tensor.is_inference()):
            found = tensor.detach()
            if found.layout == torch.sparse_coo:  # where it has no element, it has none to invalidate
                found = found._values()
            found.fill_(float("nan"))
