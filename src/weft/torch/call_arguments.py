"""The arguments of a process group's methods: options or plain values, one tensor or a list of them."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import distributed as dist

from weft.errors import InputError
from weft.runtime.bootstrap.control_plane import check_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.communicator import Communicator
    from weft.torch.windows import Windows

_REDUCTIONS: Final = (dist.ReduceOp, dist.ReduceOp.RedOpType)


def either(name: str, *given: Any) -> Any:
    """Return the argument that was given under one of several names."""
    found = [value for value in given if value is not None]
    if len(found) != 1:
        raise InputError(f"{name}: expected one tensor or one list of tensors, but {len(found)} were given")
    return found[0]


def single(name: str, what: str, given: Sequence[Any]) -> Any:
    """Return the only element of a list: torch has lists for the several GPUs that a rank once had."""
    if len(given) != 1:
        raise InputError(f"{name}: {len(given)} {what}, but a rank gives one at a time")
    return given[0]


def paired(name: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each output with its input."""
    if len(outputs) != len(inputs):
        raise InputError(f"{name}: {len(outputs)} outputs for {len(inputs)} inputs; there is one for each")
    return list(zip(outputs, inputs, strict=True))


def check_message(name: str, comm: Communicator, peer: int | None, tag: int) -> None:
    """Refuse a message to or from a rank that does not exist (None: any), or with an invalid tag."""
    if peer is None and comm.size == 1:
        raise InputError(f"{name}: a group of one rank has no other to receive from")
    if peer is not None and (not 0 <= operator.index(peer) < comm.size or peer == comm.rank):
        raise InputError(f"{name}: rank {comm.rank} of {comm.size} has no peer {peer}")
    if not 0 <= operator.index(tag) < 1 << 63:
        raise InputError(f"{name}: tag {tag} is not a number from 0 to 2**63 - 1")


def listed(tensors: Any) -> list[Any]:
    """Return one tensor or several as a list."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if isinstance(tensors, str) or not hasattr(tensors, "__iter__"):
        raise TypeError(f"expected a tensor or a list of tensors, not {type(tensors).__name__}")
    return list(tensors)


class GroupCall(NamedTuple):
    """The call of a collective: the group that it is of, and its options."""

    comm: Communicator
    windows: Windows
    op: Any
    root: int
    seconds: float
    """The time that the operation may take."""
    is_async: bool

    @property
    def dispatched(self) -> tuple[bool, int]:
        """The last arguments of the operation in the namespace ``c10d``."""
        return self.is_async, round(self.seconds * 1000)


def read_call(
    comm: Communicator,
    windows: Windows,
    opts: Any,
    timeout: timedelta | None,
    *,
    op: Any = None,
    root: int | None = None,
) -> GroupCall:
    """Return a call with torch's options, or with the values in their place.

    torch gives options, as its functions do, or plain values in their place or by name, as users of a group's
    methods do. Where no time is given, which torch also marks by a negative one, it is the communicator's.

    Parameters
    ----------
    opts
        Options of any collective, or a reduction or a root, or None.
    timeout, op, root
        Values given by name.
    """
    if isinstance(opts, int):
        root = opts
    elif isinstance(opts, _REDUCTIONS):
        op = opts
    elif isinstance(opts, timedelta):  # of methods that take nothing else
        timeout = opts
    given = check_time(getattr(opts, "timeout", timeout))
    seconds = given.total_seconds() if given is not None else 0.0
    return GroupCall(
        comm=comm,
        windows=windows,
        op=getattr(opts, "reduceOp", dist.ReduceOp.SUM if op is None else op),
        root=int(getattr(opts, "rootRank", root or 0)),
        seconds=check_timeout(seconds) if seconds > 0 else comm.timeout,
        is_async=bool(getattr(opts, "asyncOp", True)),
    )


def check_time(given: Any) -> timedelta | None:
    """Refuse a time that torch would refuse."""
    if given is not None and not isinstance(given, timedelta):
        raise TypeError(f"timeout {given!r}: expected a datetime.timedelta, as torch does")
    return given
