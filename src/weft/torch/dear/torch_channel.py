"""DeAR's buckets over a process group of torch: NCCL, gloo, or another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from weft.errors import RuntimeFailure
from weft.torch.dear.bucket_channel import BucketChannel, BucketCut, Pending
from weft.torch.internals import device_of

if TYPE_CHECKING:
    from collections.abc import Callable


class TorchChannel(BucketChannel):
    """Over a process group of torch: NCCL, gloo, or another.

    Parameters
    ----------
    group
        For DeAR alone: what others do on it would come in between.
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
        """Memory of the parameter's device."""
        return torch.zeros(elements, dtype=like.dtype, device=like.device)

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:
        """Equal parts, as torch's reduce-scatter and all-gather have them."""
        return _TorchCut(self, elements, torch.empty(0, dtype=dtype, device=device), group)

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Add up, on the device of the group."""
        carrier = tensor.to(self._device)
        started = self.pending("vote", -1, lambda: dist.all_reduce(carrier, group=self.group, async_op=True))

        def wait() -> None:
            started.wait()
            if carrier is not tensor:
                tensor.copy_(carrier)

        return Pending(wait, started.is_done)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give everybody rank 0's."""
        carrier = tensor.to(self._device)
        dist.broadcast(carrier, dist.get_global_rank(self.group, 0), group=self.group)
        if carrier is not tensor:
            tensor.copy_(carrier)

    def failure(self) -> BaseException | None:
        """What a wait ended with."""
        return self._failure

    def close(self) -> None:
        """Leave the group that was made for DeAR."""
        if self._leave:
            dist.destroy_process_group(self.group)

    def pending(self, kind: str, group: int, start: Callable[[], dist.Work]) -> Pending:
        """Start something, and wait for it later; on a GPU, waiting means that its stream does."""
        self.check()
        started = self.clock()
        work = start()

        def wait() -> None:
            try:
                work.wait()
            except RuntimeFailure:
                raise  # a group of Weft's own has said it better
            except RuntimeError as error:
                self._failure = RuntimeFailure(f"{kind} over the {self.name} group: {error}")
                raise self._failure from error
            self.report(kind, group, started, self.clock())

        return Pending(wait, work.is_completed)


class _TorchCut(BucketCut):
    def __init__(self, channel: TorchChannel, elements: int, like: torch.Tensor, group: int) -> None:
        self._channel, self._group = channel, group
        share = -(-elements // channel.size)
        self.padded = share * channel.size
        self.owned = tuple((rank * share, (rank + 1) * share) for rank in range(channel.size))
        self.mine = slice(*self.owned[channel.rank])
        self._shard = like.new_empty(share)

    def reduce(self, bucket: torch.Tensor) -> Pending:
        group, shard = self._channel.group, self._shard
        bucket.mul_(1 / self._channel.size)  # not every backend has an average
        return self._channel.pending(
            "reduce_scatter",
            self._group,
            lambda: dist.reduce_scatter_single(shard, bucket, group=group, async_op=True),
        )

    def own(self, bucket: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - it lies beside the bucket
        return self._shard

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> Pending:
        # Not every backend lets what it sends lie inside what it receives.
        sent = self._shard if own is None else own.clone()

        group = self._channel.group
        return self._channel.pending(
            "all_gather",
            self._group,
            lambda: dist.all_gather_single(bucket, sent, group=group, async_op=True),
        )

    def all_reduce(self, bucket: torch.Tensor) -> Pending:
        group = self._channel.group
        bucket.mul_(1 / self._channel.size)
        return self._channel.pending(
            "all_reduce", self._group, lambda: dist.all_reduce(bucket, group=group, async_op=True)
        )
