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

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.collectives import Job


_REDUCTIONS: Final = (dist.ReduceOp, dist.ReduceOp.RedOpType)


def either(name: str, *given: Any) -> Any:
    """Return the argument that was given under one of several names."""
    found = [value for value in given if value is not None]
    if len(found) != 1:
        msg = f"{name}: expected one tensor or one list of tensors, but {len(found)} were given"
        raise InputError(msg)
    return found[0]


def single(name: str, what: str, given: Sequence[Any]) -> Any:
    """Return the only element of a list: torch has lists for the several GPUs that a rank once had."""
    if len(given) != 1:
        msg = f"{name}: {len(given)} {what}, but a rank gives one at a time"
        raise InputError(msg)
    return given[0]


def paired(name: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each output with its input."""
    if len(outputs) != len(inputs):
        msg = f"{name}: {len(outputs)} outputs for {len(inputs)} inputs; there is one for each"
        raise InputError(msg)
    return list(zip(outputs, inputs, strict=True))


def check_message(name: str, comm: Communicator, peer: int | None, tag: int) -> None:
    """Refuse a message to or from a rank that does not exist (None: any), or with an invalid tag."""
    if peer is None and comm.size == 1:
        msg = f"{name}: a group of one rank has no other to receive from"
        raise InputError(msg)
    if peer is not None and (not 0 <= operator.index(peer) < comm.size or peer == comm.rank):
        msg = f"{name}: rank {comm.rank} of {comm.size} has no peer {peer}"
        raise InputError(msg)
    if not 0 <= operator.index(tag) < 1 << 63:
        msg = f"{name}: tag {tag} is not a number from 0 to 2**63 - 1"
        raise InputError(msg)


def listed(tensors: Any) -> list[Tensor]:
    """Return one tensor or several as a list."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if isinstance(tensors, str) or not hasattr(tensors, "__iter__"):
        msg = f"expected a tensor or a list of tensors, not {type(tensors).__name__}"
        raise TypeError(msg)
    return list(tensors)


class CallOptions(NamedTuple):
    """The options of a call.

    torch gives options, as its functions do, or plain values in their place or by name, as users of a group's
    methods do.
    """

    op: Any
    root: int
    seconds: float
    """The time that the operation may take."""
    is_async: bool

    @property
    def dispatched(self) -> tuple[bool, int]:
        """The last arguments of the operation in the namespace ``c10d``."""
        return self.is_async, round(self.seconds * 1000)


def read_options(
    opts: Any, timeout: timedelta | None, default: float, *, op: Any = None, root: int | None = None
) -> CallOptions:
    """Return the options of a call from torch's options, or from the values in their place.

    Parameters
    ----------
    opts
        Options of any collective, or a reduction or a root, or None.
    timeout, op, root
        Values given by name.
    default
        Seconds, where none are given; torch marks that by a negative time.
    """
    if opts is None or isinstance(opts, int):
        root = root if opts is None else opts
        options = None
    elif isinstance(opts, _REDUCTIONS):
        op, options = opts, None
    elif isinstance(opts, timedelta):  # of methods that take nothing else
        timeout, options = opts, None
    else:
        options = opts
    given = check_time(getattr(options, "timeout", timeout))
    seconds = given.total_seconds() if given is not None else 0.0
    return CallOptions(
        op=getattr(options, "reduceOp", dist.ReduceOp.SUM if op is None else op),
        root=int(getattr(options, "rootRank", root or 0)),
        seconds=check_timeout(seconds) if seconds > 0 else default,
        is_async=bool(getattr(options, "asyncOp", True)),
    )


def check_time(given: Any) -> timedelta | None:
    """Refuse a time that torch would refuse."""
    if given is not None and not isinstance(given, timedelta):
        msg = f"timeout {given!r}: expected a datetime.timedelta, as torch does"
        raise TypeError(msg)
    return given


def one_by_one(jobs: Sequence[Job]) -> Job:
    """Return one job that runs several."""

    def run(timeout: float) -> None:
        for job in jobs:
            job(timeout)

    return run
