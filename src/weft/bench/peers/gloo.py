"""Gloo, through torch.distributed: over loopback sockets, which is the only transport it has."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from weft.bench.peers.peer import Call, JobInvitation, JobPlace, Peer, PeerRank, Start, one_thread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.bench.task import BenchTask


class GlooRank(PeerRank):
    """One rank; one thread of torch, tensors over the memory that the others get too."""

    def __init__(self, invitation: JobInvitation) -> None:
        import torch
        from torch import distributed

        assert invitation.rank is not None
        torch.set_num_threads(1)
        self.rank = invitation.rank
        self._torch: Any = torch
        self._group: Any = distributed
        store = self._group.FileStore(f"{invitation.folder}/{invitation.name}", invitation.ranks)
        patience = timedelta(seconds=invitation.timeout)
        self._group.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=invitation.ranks, timeout=patience
        )

    def bind(self, task: BenchTask, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> Call:
        """Out of place, `all_reduce` is a copy first, for it has no such form."""
        dtype = getattr(self._torch, task.dtype)
        given, result = (self._torch.from_numpy(array).view(dtype) for array in (source, target))
        group = self._group
        op = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}[task.op]
        reduction = getattr(group.ReduceOp, op)
        if task.collective == "all_gather":
            return lambda: group.all_gather_into_tensor(result, given)
        if task.collective == "reduce_scatter":
            return lambda: group.reduce_scatter_tensor(result, given, reduction)
        if task.collective == "broadcast":
            return lambda: group.broadcast(result, 0)
        if source is target:
            return lambda: group.all_reduce(result, reduction)

        def out_of_place() -> None:
            result.copy_(given)
            group.all_reduce(result, reduction)

        return out_of_place

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._group.barrier()

    def versions(self) -> dict[str, str]:
        """Of torch, which Gloo is a part of."""
        return {"torch": str(self._torch.__version__)}

    def close(self) -> None:
        """Leave the job."""
        self._group.destroy_process_group()


class Gloo(Peer):
    """Gloo as torch has it."""

    name: ClassVar[str] = "gloo"

    def start(self, job: JobPlace) -> Start:
        """One process per rank; they meet through a file."""
        self.need_package("torch")
        return Start((), job.ranks, {**one_thread(), "GLOO_SOCKET_IFNAME": "lo"})

    def join(self, invitation: JobInvitation) -> GlooRank:
        """Join the job and return this rank of it."""
        return GlooRank(invitation)
