"""DeAR's operations over a process group of torch: NCCL, gloo, or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from weft.errors import RuntimeFailure
from weft.torch.dear.bucket_channel import BucketChannel, BucketCut
from weft.torch.internals import all_gather_single, device_of, reduce_scatter_single

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.torch.dear.bucket_channel import StartedOperation


class TorchChannel(BucketChannel):
    """A channel over a process group of torch: NCCL, gloo, or another.

    Parameters
    ----------
    group
        A group that only this channel uses: other operations on it would come in between.
    leave
        Whether to destroy it at the end.
    """

    ordered = False
    counts = True

    def __init__(self, group: dist.ProcessGroup, *, leave: bool) -> None:
        self.group, self._leave = group, leave
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.name = dist.get_backend(group)
        self._device = device_of(group)
        self._failure: BaseException | None = None

    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory of the parameter's device."""
        return torch.zeros(elements, dtype=like.dtype, device=like.device)

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:
        """Return the operations on equal parts, as torch's reduce-scatter and all-gather have them."""
        return _TorchCut(self, elements, torch.empty(0, dtype=dtype, device=device), group)

    def sum(self, tensor: torch.Tensor) -> StartedOperation:
        """Start adding up a small tensor of all ranks, in place, on the device of the group."""
        moved = tensor.to(self._device)
        copy_back = None if moved is tensor else lambda: tensor.copy_(moved)
        return self.start("vote", -1, dist.all_reduce, moved, then=copy_back)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give all ranks rank 0's tensor, in place."""
        moved = tensor.to(self._device)
        dist.broadcast(moved, dist.get_global_rank(self.group, 0), group=self.group)
        if moved is not tensor:
            tensor.copy_(moved)

    def failure(self) -> BaseException | None:
        """Return the failure of an operation, if one was waited for and has failed."""
        return self._failure

    def close(self) -> None:
        """Destroy the group that was made for DeAR.

        The reference to it goes as well: the group ends its threads with its last reference. A thread of gloo
        that lives until the interpreter ends may still free a tensor of Python's then, and aborts the
        process.
        """
        group = self.__dict__.pop("group", None)
        if self._leave and group is not None:
            dist.destroy_process_group(group)

    def start(
        self,
        kind: str,
        group: int,
        collective: Callable[..., Any],
        *tensors: torch.Tensor,
        then: Callable[[], Any] | None = None,
    ) -> StartedOperation:
        """Start a collective of ``torch.distributed``; `then` is called once it was waited for."""
        self.check()
        begun = self.clock()
        work = collective(*tensors, group=self.group, async_op=True)
        return _TorchOperation(self, kind, group, begun, work, then)

    def fail(self, kind: str, error: RuntimeError) -> RuntimeFailure:
        """Keep why an operation of the group has failed."""
        self._failure = RuntimeFailure(f"{kind} over the {self.name} group: {error}")
        return self._failure


@dataclass(slots=True)
class _TorchOperation:
    """An operation of a torch process group; on an accelerator, to wait means that its stream waits."""

    channel: TorchChannel
    kind: str
    group: int
    begun: float
    work: dist.Work | None
    then: Callable[[], Any] | None

    def is_done(self) -> bool:
        return self.work is None or self.work.is_completed()

    def wait(self) -> None:
        if self.work is None:  # it was waited for and reported before
            return
        try:
            self.work.wait()
        except RuntimeFailure:
            raise  # a group of Weft's own has said it better
        except RuntimeError as error:
            raise self.channel.fail(self.kind, error) from error
        self.channel.report(self.kind, self.group, self.begun, self.channel.clock())
        if self.then is not None:
            self.then()
        self.work = None


class _TorchCut(BucketCut):
    def __init__(self, channel: TorchChannel, elements: int, like: torch.Tensor, group: int) -> None:
        self._channel, self._group = channel, group
        share = -(-elements // channel.size)
        self.padded = share * channel.size
        self.mine = slice(channel.rank * share, (channel.rank + 1) * share)
        self._shard = like.new_empty(share)

    def reduce(self, bucket: torch.Tensor) -> StartedOperation:
        bucket.mul_(1 / self._channel.size)  # not every backend has an average
        return self._channel.start("reduce_scatter", self._group, reduce_scatter_single, self._shard, bucket)

    def own(self, bucket: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - it lies beside the bucket
        return self._shard

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> StartedOperation:
        # Not every backend lets what it sends lie inside what it receives.
        sent = self._shard if own is None else own.clone()
        return self._channel.start("all_gather", self._group, all_gather_single, bucket, sent)

    def all_reduce(self, bucket: torch.Tensor) -> StartedOperation:
        bucket.mul_(1 / self._channel.size)
        return self._channel.start("all_reduce", self._group, dist.all_reduce, bucket)
