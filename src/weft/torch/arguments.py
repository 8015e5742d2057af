"""What torch gives to a process group, in one form: options or plain values, one tensor or a list of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from weft.errors import InputError
from weft.runtime.roster import check_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.collectives import Job


def single(name: str, what: str, given: Sequence[Any]) -> Any:
    """The only element of a list: torch has lists for the several GPUs that a rank once had."""
    if len(given) != 1:
        msg = f"{name}: {len(given)} {what}, but a rank gives one at a time"
        raise InputError(msg)
    return given[0]


def paired(name: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Outputs, each with its input."""
    if len(outputs) != len(inputs):
        msg = f"{name}: {len(outputs)} outputs for {len(inputs)} inputs; there is one for each"
        raise InputError(msg)
    return list(zip(outputs, inputs, strict=True))


def check_message(name: str, comm: Communicator, peer: int, tag: int) -> None:
    """Refuse a message to or from a rank that is not there, or with a tag that cannot be."""
    if not 0 <= operator.index(peer) < comm.size or peer == comm.rank:
        msg = f"{name}: rank {comm.rank} of {comm.size} has no peer {peer}"
        raise InputError(msg)
    if not 0 <= operator.index(tag) < 1 << 63:
        msg = f"{name}: tag {tag} is not a number from 0 to 2**63 - 1"
        raise InputError(msg)


def listed(tensors: Any) -> list[Tensor]:
    """One tensor or several, as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def op_of(opts: Any) -> Any:
    """Reduction that options ask for; torch's older calls give it in their place."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def root_of(opts: Any) -> int:
    """Root that options name; torch's older calls give it in their place."""
    return 0 if opts is None else int(getattr(opts, "rootRank", opts))


def seconds_of(opts: Any, timeout: timedelta | None, default: float) -> float:
    """Seconds that an operation may take: torch marks a time that was not given by a negative one."""
    given = getattr(opts, "timeout", timeout)
    seconds = given.total_seconds() if given is not None else 0.0
    return check_timeout(seconds) if seconds > 0 else default


def one_by_one(jobs: Sequence[Job]) -> Job:
    """One job that does several."""

    def run(timeout: float) -> None:
        for job in jobs:
            job(timeout)

    return run
