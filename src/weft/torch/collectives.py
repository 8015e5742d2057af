"""The collectives of torch in terms of the runtime's.

Each function looks at what it is given and refuses it at once, in the caller's thread; what it returns does
the work, when its turn comes. Inputs are read then and not before: they may be results of what runs until
then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from weft.errors import InputError
from weft.torch.tensors import (
    Staged,
    array_of,
    check_input,
    check_output,
    check_pair,
    flat_of,
    joined,
    op_name,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from weft.runtime.communicator import Communicator

Job: TypeAlias = Callable[[float], None]
"""Does it, within so many seconds for each operation."""


def all_reduce(comm: Communicator, tensors: Sequence[Tensor], op: Any) -> Job:
    """Combine tensors, in place."""
    check_output("all_reduce", *tensors)
    names = [op_name("all_reduce", op, tensor) for tensor in tensors]

    def run(timeout: float) -> None:
        for tensor, name in zip(tensors, names, strict=True):
            staged = Staged(tensor)
            comm.all_reduce(staged.numbers, name, timeout=timeout)
            staged.settle()

    return run


def reduce(comm: Communicator, tensors: Sequence[Tensor], root: int, op: Any) -> Job:
    """Combine tensors at the root, in place."""
    check_output("reduce", *tensors)
    names = [op_name("reduce", op, tensor) for tensor in tensors]

    def run(timeout: float) -> None:
        for tensor, name in zip(tensors, names, strict=True):
            staged = Staged(tensor)
            comm.reduce(staged.numbers, root, name, timeout=timeout)
            staged.settle()

    return run


def broadcast(comm: Communicator, tensors: Sequence[Tensor], root: int) -> Job:
    """Give every rank the root's tensors."""
    check_output("broadcast", *tensors)

    def run(timeout: float) -> None:
        for tensor in tensors:
            staged = Staged(tensor)
            comm.broadcast(staged.array, root, timeout=timeout)
            staged.settle()

    return run


def all_gather(comm: Communicator, output: Tensor, source: Tensor) -> Job:
    """Join the tensors of all ranks."""
    check_pair("all_gather", output, source, larger=comm.size, smaller=1)

    def run(timeout: float) -> None:
        staged = Staged(output)
        comm.all_gather(array_of(flat_of(source)), out=staged.array, timeout=timeout)
        staged.settle()

    return run


def all_gather_list(comm: Communicator, outputs: Sequence[Tensor], source: Tensor) -> Job:
    """Give every rank the tensors of all; sizes may differ from rank to rank."""
    _check_count("all_gather", "outputs", outputs, comm.size)
    check_pair("all_gather", outputs[comm.rank], source, larger=1, smaller=1)
    check_output("all_gather", *outputs)
    if len({tensor.numel() for tensor in outputs}) > 1:
        return _gather_unequal(comm, outputs, source)

    def run(timeout: float) -> None:
        whole = joined(outputs)
        room = source.new_empty(source.numel() * comm.size) if whole is None else whole
        comm.all_gather(array_of(flat_of(source)), out=array_of(room), timeout=timeout)
        if whole is None:
            _deal_out(room, outputs)

    return run


def _gather_unequal(comm: Communicator, outputs: Sequence[Tensor], source: Tensor) -> Job:
    def run(timeout: float) -> None:
        write(outputs[comm.rank], source)
        for root, output in enumerate(outputs):
            staged = Staged(output)
            comm.broadcast(staged.array, root, timeout=timeout)
            staged.settle()

    return run


def reduce_scatter(comm: Communicator, output: Tensor, source: Tensor, op: Any) -> Job:
    """Combine tensors and keep this rank's share."""
    check_pair("reduce_scatter", output, source, larger=1, smaller=comm.size)
    name = op_name("reduce_scatter", op, source)

    def run(timeout: float) -> None:
        staged = Staged(output)
        comm.reduce_scatter(Staged(source).numbers, name, out=staged.numbers, timeout=timeout)
        staged.settle()

    return run


def reduce_scatter_list(comm: Communicator, output: Tensor, sources: Sequence[Tensor], op: Any) -> Job:
    """Combine the r-th tensors of all at rank r; sizes may differ from rank to rank."""
    _check_count("reduce_scatter", "inputs", sources, comm.size)
    check_pair("reduce_scatter", output, sources[comm.rank], larger=1, smaller=1)
    check_input("reduce_scatter", *sources)
    name = op_name("reduce_scatter", op, output)
    equal = len({tensor.numel() for tensor in sources}) == 1

    def run(timeout: float) -> None:
        staged = Staged(output)
        if equal:
            whole = joined(sources)
            whole = torch.cat([flat_of(source) for source in sources]) if whole is None else whole
            comm.reduce_scatter(Staged(whole).numbers, name, out=staged.numbers, timeout=timeout)
        else:
            for root, source in enumerate(sources):
                part = Staged(flat_of(source).clone())
                comm.reduce(part.numbers, root, name, timeout=timeout)
                if root == comm.rank:
                    staged.flat.copy_(part.flat)
        staged.settle()

    return run


def gather(comm: Communicator, outputs: Sequence[Tensor], source: Tensor, root: int) -> Job:
    """Give the root the tensors of all."""
    check_input("gather", source)
    if comm.rank == root:
        _check_count("gather", "outputs", outputs, comm.size)
        for output in outputs:
            check_pair("gather", output, source, larger=1, smaller=1)

    def run(timeout: float) -> None:
        if comm.rank != root:
            comm.send(array_of(flat_of(source)), root, timeout=timeout)
            return
        for rank, output in enumerate(outputs):
            if rank == root:
                write(output, source.detach().view(output.shape))
            else:
                staged = Staged(output)
                comm.recv(staged.array, rank, timeout=timeout)
                staged.settle()

    return run


def scatter(comm: Communicator, output: Tensor, sources: Sequence[Tensor], root: int) -> Job:
    """Give rank r the root's r-th tensor."""
    check_output("scatter", output)
    if comm.rank == root:
        _check_count("scatter", "inputs", sources, comm.size)
        for source in sources:
            check_pair("scatter", output, source, larger=1, smaller=1)

    def run(timeout: float) -> None:
        if comm.rank != root:
            staged = Staged(output)
            comm.recv(staged.array, root, timeout=timeout)
            staged.settle()
            return
        for rank, source in enumerate(sources):
            if rank == root:
                write(output, source.detach().view(output.shape))
            else:
                comm.send(array_of(flat_of(source)), rank, timeout=timeout)

    return run


def all_to_all(comm: Communicator, outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> Job:
    """Give rank r the r-th tensor, and take what all others give this one; sizes are whatever they are."""
    _check_count("all_to_all", "outputs", outputs, comm.size)
    _check_count("all_to_all", "inputs", sources, comm.size)
    check_input("all_to_all", *sources)
    check_output("all_to_all", *outputs)
    check_pair("all_to_all", outputs[comm.rank], sources[comm.rank], larger=1, smaller=1)

    def run(timeout: float) -> None:
        write(outputs[comm.rank], sources[comm.rank].detach().view(outputs[comm.rank].shape))
        for distance in range(1, comm.size):
            dest, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
            staged = Staged(outputs[source])
            goes = array_of(flat_of(sources[dest]))
            comm.send_recv(goes, dest, staged.array, source, timeout=timeout)
            staged.settle()

    return run


def all_to_all_single(
    comm: Communicator, output: Tensor, source: Tensor, received: Sequence[int], sent: Sequence[int]
) -> Job:
    """The same with parts of one tensor, along its first dimension; equal parts where no sizes are given."""
    check_input("all_to_all", source)
    check_output("all_to_all", output)
    if received or sent:
        into = _parts("output", output, received, comm.size)
        parts = _parts("input", source, sent, comm.size)
        return all_to_all(comm, into, parts)
    check_pair("all_to_all", output, source, larger=1, smaller=1)

    def run(timeout: float) -> None:
        staged = Staged(output)
        comm.all_to_all(array_of(flat_of(source)), out=staged.array, timeout=timeout)
        staged.settle()

    return run


def _parts(what: str, tensor: Tensor, sizes: Sequence[int], ranks: int) -> Sequence[Tensor]:
    if not sizes:
        sizes = [tensor.shape[0] // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != tensor.shape[0]:
        rows = f"{list(sizes)} rows for {ranks} ranks"
        msg = f"all_to_all: {rows} are not the {tensor.shape[0]} that the {what} has"
        raise InputError(msg)
    return torch.split(tensor.detach(), list(sizes))


def _deal_out(room: Tensor, outputs: Sequence[Tensor]) -> None:
    for part, output in zip(room.chunk(len(outputs)) if room.numel() else (), outputs, strict=False):
        write(output, part.view(output.shape))


def _check_count(name: str, what: str, tensors: Sequence[Tensor], ranks: int) -> None:
    if len(tensors) != ranks:
        msg = f"{name}: {len(tensors)} {what} for {ranks} ranks; there is one for each"
        raise InputError(msg)
