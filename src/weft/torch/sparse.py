"""The all-reduce of sparse tensors: every rank gathers the elements of all ranks, and adds them up itself.

Only a rank itself knows its number of elements, so the numbers are gathered first. Memory and traffic grow
with the elements of all ranks, as in torch's own gloo backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

from weft.errors import InputError
from weft.torch import collectives
from weft.torch.tensor_checks import check_cpu
from weft.torch.tensors import array_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.call_arguments import GroupCall
    from weft.torch.collectives import Job


def all_reduce(call: GroupCall, tensors: Sequence[Tensor]) -> Job:
    """Make a sparse tensor the sum of those of all ranks, in place; combine dense ones as usual.

    Raises
    ------
    InputError
        If there are several tensors, or dense ones among them.
    TypeError
        If the reduction is neither a sum nor an average.
    """
    if not any(tensor.layout == torch.sparse_coo for tensor in tensors):
        return collectives.all_reduce(call, tensors)
    if len(tensors) != 1:
        msg = f"all_reduce: {len(tensors)} tensors, some of them sparse; reduce sparse ones one at a time"
        raise InputError(msg)
    (tensor,) = tensors
    comm, op = call.comm, call.op
    check_cpu("all_reduce", tensor)
    averages = bool(op == dist.ReduceOp.AVG)
    if not averages and not op == dist.ReduceOp.SUM:  # noqa: SIM201 - torch's operations know no other sign
        msg = "all_reduce: sparse tensors have only SUM and AVG; use tensor.to_dense() for other reductions"
        raise TypeError(msg)
    if averages and tensor.dtype == torch.bool:
        raise TypeError("all_reduce: AVG of torch.bool is not supported; use SUM")
    shape, axes = tuple(tensor.shape), tensor.sparse_dim()
    kind = f"sparse all_reduce {tensor.dtype} {shape} {axes}"

    def run(timeout: float) -> None:
        mine = tensor.detach().coalesce()
        counts = torch.empty(comm.size, dtype=torch.int64)
        own = torch.tensor([mine._nnz()])
        comm.all_gather(own.numpy(), out=counts.numpy(), timeout=timeout, kind=f"{kind} counts")
        most = int(counts.max())
        places = _share(comm, mine.indices().t(), most, timeout, f"{kind} places")
        values = _share(comm, mine.values(), most, timeout, f"{kind} values")
        some = [slice(rank * most, rank * most + count) for rank, count in enumerate(counts.tolist())]
        total = torch.sparse_coo_tensor(
            torch.cat([places[part] for part in some]).t(),
            torch.cat([values[part] for part in some]),
            shape,
            check_invariants=False,
        ).coalesce()
        if averages:
            exact = total.is_floating_point() or total.is_complex()
            total.values().div_(comm.size, rounding_mode=None if exact else "trunc")
        with torch.no_grad():  # a detached sparse tensor would have elements of its own
            tensor.copy_(total)

    return run


def _share(comm: Communicator, rows: Tensor, most: int, timeout: float, kind: str) -> Tensor:
    """Gather the rows of all ranks, each rank's from a multiple of `most` on."""
    padded = rows.new_zeros((most, *rows.shape[1:]))
    padded[: len(rows)] = rows
    gathered = rows.new_empty((comm.size * most, *rows.shape[1:]))
    if gathered.numel():
        into = array_of(gathered.view(-1))
        comm.all_gather(array_of(padded.view(-1)), out=into, timeout=timeout, kind=kind)
    return gathered
