"""The opening of a channel for DeAR, from the process group or communicator that the user gives."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from weft.errors import InputError
from weft.runtime import Communicator
from weft.runtime.bootstrap.control_plane import check_timeout
from weft.torch.dear.torch_channel import TorchChannel
from weft.torch.dear.weft_channel import WeftChannel
from weft.torch.group_methods import BACKEND
from weft.torch.process_group import communicator
from weft.torch.store_bootstrap import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.dear.bucket_channel import BucketChannel


def open_channel(group: Any, plan: Any, topology: Any, timeout: float) -> BucketChannel:
    """Open a channel that only DeAR uses, so that other operations of the group never come in between.

    Parameters
    ----------
    group
        A process group, a communicator, or None for all ranks.
    plan, topology
        As for `weft.init`.
    """
    is_prescribed = plan is not None or topology is not None
    if isinstance(group, Communicator):
        if is_prescribed:
            raise InputError("give plan or topology to weft.init, whose communicator this is")
        return _over(group.duplicate(timeout=timeout))
    if not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group('weft') first")
    found: Any = dist.group.WORLD if group is None else group
    if is_prescribed:
        return _over(connect(found, plan=plan, topology=topology, timeout=timeout))
    if dist.get_backend(found) == BACKEND:
        return _over(communicator(found).duplicate(timeout=timeout))
    return _over_torch(found, timeout)


def broadcast_from_first(channel: BucketChannel, tensors: Sequence[torch.Tensor]) -> None:
    """Give all ranks the tensors of rank 0, as bytes, so that their types do not matter."""
    if channel.size == 1 or not tensors:
        return
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor.detach())
    for together in by_device.values():
        flat = torch.cat([one.contiguous().reshape(-1).view(torch.uint8) for one in together])
        padded = torch.nn.functional.pad(flat, (0, -len(flat) % 4))
        words = padded.view(torch.int32)
        channel.broadcast(words)
        received, first = words.view(torch.uint8), 0
        for one in together:
            size = one.numel() * one.element_size()
            one.copy_(received[first : first + size].clone().view(one.dtype).view(one.shape))
            first += size


def _over(communicator: Communicator) -> WeftChannel:
    communicator.plan_halves()
    return WeftChannel(communicator)


def _over_torch(group: dist.ProcessGroup, timeout: float) -> TorchChannel:
    if dist.get_backend(group) == "gloo":
        warnings.warn(
            "gloo's reduce-scatter is an all-reduce, so that DeAR sends half as much again; "
            "init_process_group('weft') has one of its own",
            UserWarning,
            stacklevel=4,
        )
    ranks = dist.get_process_group_ranks(group)
    limit = timedelta(seconds=check_timeout(timeout))
    has_all_ranks = len(ranks) == dist.get_world_size()
    # Of some ranks only these make the group, and torch names it by them: once left, it cannot be made anew.
    made = dist.new_group(ranks, limit, dist.get_backend(group), use_local_synchronization=not has_all_ranks)
    return TorchChannel(made, leave=has_all_ranks)
