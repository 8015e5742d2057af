"""The collectives of torch in terms of the runtime's.

Each function checks its arguments at once, in the caller's thread, and raises if they are wrong: nothing has
started then, and the group can be used further. It returns a job that runs the operation when its turn comes.
Inputs are read then and not before, because they may be results of earlier operations.

Every operation has torch's name of the collective and the type of the tensors in its fingerprint. Ranks that
differ in them get a `DesyncError` also where the runtime would move the same bytes.

The methods that torch calls are in `group_methods.py`: a new operation needs one there, and a function here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from weft.errors import InputError
from weft.runtime.element_ranges import cut_into_chunks, share_of
from weft.torch.call_arguments import listed, paired, single
from weft.torch.tensor_checks import check_input, check_one_type, check_output, check_pair, find_reduction
from weft.torch.tensors import (
    Staged,
    any_share_memory,
    array_of,
    flat_of,
    joined,
    kind_of,
    share_memory,
    write,
)
from weft.torch.windows import WindowEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from weft.collective_names import ReduceOp
    from weft.runtime.communicator import Communicator
    from weft.schedule import Schedule
    from weft.torch.call_arguments import GroupCall

Job: TypeAlias = Callable[[float], None]
"""A function that runs an operation, and takes the seconds that each of its parts may need."""

_MakeJob: TypeAlias = "Callable[[GroupCall, Any, Any], Job]"


def _for_each_pair(make: _MakeJob) -> _MakeJob:
    """Let a function that makes the job of one output and its input make one of several pairs as well."""
    name = make.__name__.removesuffix("_list")

    @wraps(make)
    def make_one_of_several(call: GroupCall, outputs: Any, inputs: Any) -> Job:
        jobs = [make(call, *pair) for pair in paired(name, listed(outputs), listed(inputs))]

        def run(timeout: float) -> None:
            for job in jobs:
                job(timeout)

        return run

    return make_one_of_several


def all_reduce(call: GroupCall, tensors: Sequence[Tensor]) -> Job:
    """Combine tensors, in place."""
    comm = call.comm
    check_output("all_reduce", *tensors)
    found = [find_reduction("all_reduce", call.op, tensor) for tensor in tensors]
    for tensor in tensors:
        _check_served(comm, "all_reduce", tensor)

    apart = not any_share_memory(tensors)

    def run(timeout: float) -> None:
        # Of tensors that lie in the same memory, no result may become the input of the next.
        inputs = tensors if apart else [tensor.detach().clone() for tensor in tensors]
        for tensor, given, (name, kind) in zip(tensors, inputs, found, strict=True):
            staged = Staged(given)
            comm.all_reduce(staged.numbers, name, timeout=timeout, kind=kind)
            staged.write_back()
            if not apart:
                write(tensor, given)

    return run


def reduce(call: GroupCall, tensors: Sequence[Tensor]) -> Job:
    """Combine tensors at the root, in place."""
    comm, root = call.comm, call.root
    _check_root(comm, "reduce", root)
    check_output("reduce", *tensors)
    found = [find_reduction("reduce", call.op, tensor) for tensor in tensors]
    for tensor in tensors:
        _check_served(comm, "reduce", tensor, root)

    def run(timeout: float) -> None:
        for tensor, (name, kind) in zip(tensors, found, strict=True):
            staged = Staged(tensor)
            comm.reduce(staged.numbers, root, name, timeout=timeout, kind=kind)
            staged.write_back()

    return run


def broadcast(call: GroupCall, tensors: Sequence[Tensor]) -> Job:
    """Give every rank the root's tensors."""
    comm, root = call.comm, call.root
    _check_root(comm, "broadcast", root)
    check_output("broadcast", *tensors)
    for tensor in tensors:
        _check_served(comm, "broadcast", tensor, root)

    def run(timeout: float) -> None:
        for tensor in tensors:
            staged = Staged(tensor)
            comm.broadcast(staged.array, root, timeout=timeout, kind=kind_of("broadcast", tensor))
            staged.write_back()

    return run


@_for_each_pair
def all_gather(call: GroupCall, output: Tensor, source: Tensor) -> Job:
    """Join the tensors of all ranks."""
    comm = call.comm
    check_pair("all_gather", output, source, larger=comm.size, smaller=1)
    _check_served(comm, "all_gather", output)
    kind = kind_of("all_gather", source)

    def run(timeout: float) -> None:
        staged = Staged(output)
        comm.all_gather(array_of(flat_of(source)), out=staged.array, timeout=timeout, kind=kind)
        staged.write_back()

    return run


@_for_each_pair
def all_gather_list(call: GroupCall, outputs: Sequence[Tensor], source: Tensor) -> Job:
    """Give every rank the tensors of all; sizes may differ from rank to rank."""
    comm = call.comm
    _check_count("all_gather", "outputs", outputs, comm.size)
    check_pair("all_gather", outputs[comm.rank], source, larger=1, smaller=1)
    check_output("all_gather", *outputs)
    check_one_type("all_gather", source, *outputs)
    if len({tensor.numel() for tensor in outputs}) > 1:
        return _gather_unequal(comm, outputs, source)
    _check_served(comm, "all_gather", source, times=comm.size)
    kind = kind_of("all_gather", source)

    def run(timeout: float) -> None:
        whole = joined(outputs)
        room = source.new_empty(source.numel() * comm.size) if whole is None else whole
        comm.all_gather(array_of(flat_of(source)), out=array_of(room), timeout=timeout, kind=kind)
        if whole is None:
            _write_parts(room, outputs)

    return run


def _gather_unequal(comm: Communicator, outputs: Sequence[Tensor], source: Tensor) -> Job:
    for root, output in enumerate(outputs):
        _check_served(comm, "broadcast", output, root)
    kind = kind_of("all_gather", source)

    def run(timeout: float) -> None:
        _copy(outputs[comm.rank], source)
        for root, output in enumerate(outputs):
            staged = Staged(output)
            comm.broadcast(staged.array, root, timeout=timeout, kind=kind)
            staged.write_back()

    return run


@_for_each_pair
def reduce_scatter(call: GroupCall, output: Tensor, source: Tensor) -> Job:
    """Combine tensors and keep this rank's share."""
    comm = call.comm
    check_pair("reduce_scatter", output, source, larger=1, smaller=comm.size)
    name, kind = find_reduction("reduce_scatter", call.op, source)
    _check_shares(comm, output)

    def run(timeout: float) -> None:
        staged = Staged(output)
        numbers = Staged(source).numbers
        comm.reduce_scatter(numbers, name, out=staged.numbers, timeout=timeout, kind=kind)
        staged.write_back()

    return run


@_for_each_pair
def reduce_scatter_list(call: GroupCall, output: Tensor, sources: Sequence[Tensor]) -> Job:
    """Combine the r-th tensors of all at rank r; sizes may differ from rank to rank."""
    comm = call.comm
    _check_count("reduce_scatter", "inputs", sources, comm.size)
    check_pair("reduce_scatter", output, sources[comm.rank], larger=1, smaller=1)
    check_input("reduce_scatter", *sources)
    check_one_type("reduce_scatter", output, *sources)
    name, kind = find_reduction("reduce_scatter", call.op, output)
    if len({tensor.numel() for tensor in sources}) > 1:
        return _reduce_unequal(comm, output, sources, name, kind)
    _check_shares(comm, output)

    def run(timeout: float) -> None:
        staged = Staged(output)
        numbers = Staged(_join(sources)).numbers
        comm.reduce_scatter(numbers, name, out=staged.numbers, timeout=timeout, kind=kind)
        staged.write_back()

    return run


def _reduce_unequal(
    comm: Communicator, output: Tensor, sources: Sequence[Tensor], name: ReduceOp, kind: str
) -> Job:
    for root, source in enumerate(sources):
        _check_served(comm, "reduce", source, root)

    def run(timeout: float) -> None:
        for root, source in enumerate(sources):
            part = Staged(flat_of(source).clone())
            comm.reduce(part.numbers, root, name, timeout=timeout, kind=kind)
            if root == comm.rank:
                _copy(output, part.flat)

    return run


def gather(call: GroupCall, output_lists: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> Job:
    """Give the root the tensors of all."""
    comm, root = call.comm, call.root
    outputs = single("gather", "lists of outputs", output_lists) if output_lists else []
    source = single("gather", "inputs", inputs)
    _check_root(comm, "gather", root)
    check_input("gather", source)
    _check_count("gather", "outputs", outputs, comm.size if comm.rank == root else 0)
    for output in outputs:
        check_pair("gather", output, source, larger=1, smaller=1)
    kind = kind_of("gather", source)
    window = call.windows.find("gather", kind, root, source.numel() * source.element_size())
    if window is not None:
        return window.add(WindowEntry(comm.rank, {root: source}, dict(enumerate(outputs))))

    def run(timeout: float) -> None:
        mine = array_of(flat_of(source))
        if comm.rank != root:
            comm.gather(mine, root, timeout=timeout, kind=kind)
            return
        whole = joined(outputs)
        room = source.new_empty(source.numel() * comm.size) if whole is None else whole
        comm.gather(mine, root, out=array_of(room), timeout=timeout, kind=kind)
        if whole is None:
            _write_parts(room, outputs)

    return call.windows.close_before(run)


def scatter(call: GroupCall, outputs: Sequence[Tensor], input_lists: Sequence[Sequence[Tensor]]) -> Job:
    """Give rank r the root's r-th tensor."""
    comm, root = call.comm, call.root
    sources = single("scatter", "lists of inputs", input_lists) if input_lists else []
    output = single("scatter", "outputs", outputs)
    _check_root(comm, "scatter", root)
    check_output("scatter", output)
    _check_count("scatter", "inputs", sources, comm.size if comm.rank == root else 0)
    for source in sources:
        check_pair("scatter", output, source, larger=1, smaller=1)
    kind = kind_of("scatter", output)
    window = call.windows.find("scatter", kind, root, output.numel() * output.element_size())
    if window is not None:
        return window.add(WindowEntry(comm.rank, dict(enumerate(sources)), {root: output}))

    def run(timeout: float) -> None:
        staged = Staged(output)
        given = array_of(_join(sources)) if comm.rank == root else None
        comm.scatter(given, root, out=staged.array, timeout=timeout, kind=kind)
        staged.write_back()

    return call.windows.close_before(run)


def all_to_all(call: GroupCall, outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> Job:
    """Send the r-th tensor to rank r, and receive the tensors of all ranks for this one; of any sizes."""
    comm = call.comm
    _check_count("all_to_all", "outputs", outputs, comm.size)
    _check_count("all_to_all", "inputs", sources, comm.size)
    check_input("all_to_all", *sources)
    check_output("all_to_all", *outputs)
    check_one_type("all_to_all", *outputs, *sources)
    check_pair("all_to_all", outputs[comm.rank], sources[comm.rank], larger=1, smaller=1)
    kind = kind_of("all_to_all", sources[0])
    in_place = share_memory(outputs, sources)

    def run(timeout: float) -> None:
        parts = [source.detach().clone() for source in sources] if in_place else sources
        _copy(outputs[comm.rank], parts[comm.rank])
        for distance in range(1, comm.size):
            dest, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
            staged = Staged(outputs[source])
            sent = array_of(flat_of(parts[dest]))
            comm.send_recv(sent, dest, staged.array, source, timeout=timeout, kind=kind)
            staged.write_back()

    return run


def all_to_all_single(
    call: GroupCall, output: Tensor, source: Tensor, *, received: Sequence[int], sent: Sequence[int]
) -> Job:
    """Exchange parts of one tensor, along its first dimension; equal parts where no sizes are given."""
    comm = call.comm
    check_input("all_to_all", source)
    check_output("all_to_all", output)
    check_one_type("all_to_all", output, source)
    into = _parts("output", output, received, comm.size)
    parts = _parts("input", source, sent, comm.size)
    if received or sent:
        return all_to_all(call, into, parts)
    check_pair("all_to_all", output, source, larger=1, smaller=1)
    _check_served(comm, "all_to_all", source)
    kind = kind_of("all_to_all", source)

    def run(timeout: float) -> None:
        staged = Staged(output)
        comm.all_to_all(array_of(flat_of(source)), out=staged.array, timeout=timeout, kind=kind)
        staged.write_back()

    return run


def _parts(what: str, tensor: Tensor, sizes: Sequence[int], ranks: int) -> Sequence[Tensor]:
    rows = tensor.shape[0] if tensor.dim() else 0
    if not tensor.dim() or (not sizes and rows % ranks):
        shape = list(tensor.shape)
        msg = f"all_to_all: the {what} of shape {shape} has no equal number of rows for each of {ranks} ranks"
        raise InputError(f"{msg}; give the sizes of the parts, or another shape")
    sizes = list(sizes) or [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        raise InputError(f"all_to_all: {sizes} rows for {ranks} ranks are not the {rows} that the {what} has")
    return torch.split(tensor.detach(), sizes)


def _join(sources: Sequence[Tensor]) -> Tensor:
    """Return the elements of inputs of one size in one row, without a copy where they are adjacent."""
    whole = joined(sources)
    return torch.cat([flat_of(source) for source in sources]) if whole is None else whole


def _copy(output: Tensor, source: Tensor) -> None:
    """Copy the elements of a source to an output with the same number of elements."""
    write(output, flat_of(source).view(output.shape))


def _write_parts(room: Tensor, outputs: Sequence[Tensor]) -> None:
    """Write the parts of a gathered buffer to the outputs."""
    for part, output in zip(room.chunk(len(outputs)) if room.numel() else (), outputs, strict=False):
        write(output, part.view(output.shape))


def _check_count(name: str, what: str, tensors: Sequence[Tensor], count: int) -> None:
    if len(tensors) != count:
        due = f"{count} ranks; there is one for each" if count else "a rank that is not the root; give none"
        raise InputError(f"{name}: {len(tensors)} {what} for {due}")


def _check_root(comm: Communicator, name: str, root: int) -> None:
    if not 0 <= root < comm.size:
        raise InputError(f"{name}: root {root} is not a rank of the group, 0 to {comm.size - 1}")


def _check_served(comm: Communicator, collective: str, tensor: Tensor, root: int = 0, times: int = 1) -> None:
    """Refuse a collective that no schedule of the communicator serves."""
    if comm.size > 1:
        comm.choose(collective, tensor.numel() * tensor.element_size() * times, root)


def _check_shares(comm: Communicator, output: Tensor) -> None:
    """Refuse a reduce-scatter whose schedule does not give rank r the r-th of equal shares."""
    if comm.size == 1:
        return
    elements = output.numel() * (2 if output.is_complex() else 1)
    size_bytes = output.numel() * output.element_size() * comm.size
    schedule, _ = comm.choose("reduce_scatter", size_bytes)
    found = _find_share(schedule, elements * comm.size, comm.rank)
    if found != (comm.rank * elements, (comm.rank + 1) * elements):
        what = f"elements {found[0]} to {found[1]}, not an equal share; use another schedule or plan"
        raise InputError(f"reduce_scatter: {schedule.algorithm} gives rank {comm.rank} {what}")


@lru_cache(maxsize=1024)
def _find_share(schedule: Schedule, elements: int, rank: int) -> tuple[int, int]:
    """Return the share of a rank; cached, because finding it takes longer than starting the operation."""
    return share_of(schedule, cut_into_chunks(schedule, elements), rank)
