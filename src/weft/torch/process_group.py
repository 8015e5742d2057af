"""``torch.distributed.init_process_group("weft")``: a process group that runs on Weft.

torch calls a process group written in Python by the names below; where it has renamed a collective, both
names are here. Those that torch's own C++ calls, for DistributedDataParallel and functional collectives, are
the same methods. Whatever is not here raises (`weft.torch.internals.make_stand_in`).
"""

from __future__ import annotations

import atexit
import weakref
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from weft.errors import InputError, RuntimeFailure
from weft.runtime.work import Work as Started
from weft.torch import collectives
from weft.torch.guard import Guard
from weft.torch.internals import ProcessGroup, make_stand_in, register
from weft.torch.meeting import find_topology, meet
from weft.torch.options import Options
from weft.torch.pairs import Pairs
from weft.torch.tensors import check_input, check_output
from weft.torch.works import Work, guarded, over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.collectives import Job

BACKEND = "weft"


class WeftProcessGroup(ProcessGroup):  # type: ignore[misc]
    """Ranks that compute collectives together; made by ``init_process_group`` and ``new_group``.

    Parameters
    ----------
    store
        That the ranks have met through.
    communicator
        What runs.
    transport
        Of `communicator`.
    """

    def __init__(self, store: Any, communicator: Communicator, transport: str = "auto") -> None:
        super().__init__(communicator.rank, communicator.size)
        register(self, make_stand_in(communicator.rank, communicator.size))
        self._store = store
        self.communicator = communicator
        self.guard = Guard(communicator.timeout)
        self._pairs = Pairs(store, communicator.rank, transport)
        self._together: list[Work] | None = None
        atexit.register(_leave, weakref.ref(self))

    def name(self) -> str:
        """Name of the backend."""
        return BACKEND

    def _get_backend_name(self) -> str:
        return BACKEND

    getBackendName = _get_backend_name

    def get_group_store(self) -> Any:
        """Store that the ranks have met through."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Seconds that an operation may take from here on."""
        self.communicator.timeout = self.guard.timeout = timeout.total_seconds()

    def shutdown(self) -> None:
        """Finish what was started, and leave."""
        self.guard.close()
        self._pairs.close()
        self.communicator.close()

    abort = shutdown

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Combine tensors, in place."""
        tensors, op = _listed(tensors), _op(opts)
        return self._start(collectives.all_reduce(self.communicator, tensors, op), tensors, opts, timeout)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give every rank the root's tensors."""
        tensors = _listed(tensors)
        job = collectives.broadcast(self.communicator, tensors, _root(opts))
        return self._start(job, tensors, opts, timeout)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combine tensors at the root, in place."""
        tensors, root = _listed(tensors), _root(opts)
        job = collectives.reduce(self.communicator, tensors, root, op or _op(opts))
        return self._start(job, tensors if self.rank() == root else [], opts, timeout)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Give every rank the tensors of all."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        pairs = zip(outputs, inputs, strict=True)
        jobs = [collectives.all_gather_list(self.communicator, some, source) for some, source in pairs]
        return self._start(_one_by_one(jobs), [tensor for some in outputs for tensor in some], opts, timeout)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """Join the tensors of all ranks."""
        return self._start(collectives.all_gather(self.communicator, output, source), [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Join several tensors of all ranks."""
        pairs = zip(outputs, inputs, strict=True)
        jobs = [collectives.all_gather(self.communicator, output, source) for output, source in pairs]
        return self._start(_one_by_one(jobs), outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combine the r-th tensors of all at rank r."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        op, pairs = _op(opts), zip(outputs, inputs, strict=True)
        jobs = [collectives.reduce_scatter_list(self.communicator, *pair, op) for pair in pairs]
        return self._start(_one_by_one(jobs), outputs, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """Combine tensors and keep this rank's share."""
        job = collectives.reduce_scatter(self.communicator, output, source, _op(opts))
        return self._start(job, [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Combine several tensors and keep this rank's shares."""
        op, pairs = _op(opts), zip(outputs, inputs, strict=True)
        jobs = [collectives.reduce_scatter(self.communicator, *pair, op) for pair in pairs]
        return self._start(_one_by_one(jobs), outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give the root the tensors of all."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        room = outputs[0] if outputs else []
        job = collectives.gather(self.communicator, room, inputs[0], _root(opts))
        return self._start(job, room, opts, timeout)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give rank r the root's r-th tensor."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        sources = inputs[0] if inputs else []
        job = collectives.scatter(self.communicator, outputs[0], sources, _root(opts))
        return self._start(job, outputs, opts, timeout)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give rank r the r-th tensor."""
        return self._start(collectives.all_to_all(self.communicator, outputs, inputs), outputs, opts, timeout)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Give rank r the r-th part of a tensor."""
        sizes = output_split_sizes, input_split_sizes
        job = collectives.all_to_all_single(self.communicator, output, source, *sizes)
        return self._start(job, [output], opts, timeout)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Be over once every rank has come."""
        return self._start(lambda seconds: self.communicator.barrier(timeout=seconds), [], opts, timeout)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once every rank has come; a rank that does not is named, as by every operation."""
        del wait_all_ranks
        self._start(lambda seconds: self.communicator.barrier(timeout=seconds), [], None, timeout).wait()

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> Work:
        """Send a tensor to one other rank."""
        (tensor,) = tensors
        check_input("send", tensor)
        self._check_peer("send", dst)
        return self._watch(self._pairs.send(tensor, dst, tag, self.communicator.timeout), [])

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> Work:
        """Receive a tensor from one other rank."""
        (tensor,) = tensors
        check_output("recv", tensor)
        self._check_peer("recv", src)
        seconds = self.communicator.timeout
        started = self._pairs.receive(tensor, src, tag, seconds)
        return self._watch(started, [tensor], src)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Refuse: whoever receives says from whom."""
        del tensors, tag
        msg = "recv: a group of backend weft receives from a rank that is named; give src="
        raise InputError(msg)

    def _start_coalescing(self, device: torch.device) -> None:
        del device
        self._together = []

    def _end_coalescing(self, device: torch.device) -> Work:
        del device
        works, self._together = self._together or [], None
        outputs = [output for work in works for output in work.result()]

        def finish() -> None:
            for work in works:
                work.wait()

        return self._watch(self.communicator.in_turn(finish, async_op=True), outputs)

    def _start(
        self, job: Job, outputs: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Do it now if the caller waits anyway and nothing is under way; else when its turn comes."""
        self.guard.check()
        seconds = _seconds(getattr(opts, "timeout", timeout)) or self.communicator.timeout
        run = guarded(lambda: job(seconds), outputs)
        if getattr(opts, "asyncOp", True) or self._together is not None:
            return self._watch(self.communicator.in_turn(run, async_op=True), outputs)
        try:
            self.communicator.in_turn(run)
        except RuntimeFailure as failure:
            self.guard.failed(failure)
            raise
        return Work(over(), self.guard, outputs)

    def _watch(self, started: Started, outputs: Sequence[Tensor], source: int = -1) -> Work:
        self.guard.started(started)
        work = Work(started, self.guard, outputs, source)
        if self._together is not None:
            self._together.append(work)
        return work

    def _check_peer(self, name: str, peer: int) -> None:
        self.guard.check()
        if not 0 <= peer < self.size() or peer == self.rank():
            msg = f"{name}: rank {self.rank()} of {self.size()} has no peer {peer}"
            raise InputError(msg)


def _leave(alive: Callable[[], WeftProcessGroup | None]) -> None:
    """At the end of the process let go of what torch, which keeps the group, would keep beyond it."""
    group = alive()
    if group is not None:
        group.shutdown()
        group.__dict__.clear()


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Communicator that a group of backend weft runs on; by default that of all ranks.

    Raises
    ------
    InputError
        If the group has another backend; `weft.torch.connect` makes a communicator of its ranks.
    """
    return weft_group(group).communicator


def weft_group(group: dist.ProcessGroup | None = None) -> WeftProcessGroup:
    """The group, if it is one of Weft's."""
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if not isinstance(group, WeftProcessGroup):
        what = "there is no process group" if group is None else "the process group is not of backend weft"
        msg = f"{what}; init_process_group('weft') makes one, weft.torch.connect takes any"
        raise InputError(msg)
    return group


def create(given: Any, options: Options | None) -> WeftProcessGroup:
    """Make a group, for torch: meet the others, and connect."""
    if options is not None and not isinstance(options, Options):
        msg = f"pg_options of backend weft are weft.torch.Options, not {type(options).__name__}"
        raise TypeError(msg)
    options = options or Options()
    options = replace(options, topology=find_topology(options, given.group_size))
    seconds = given.timeout.total_seconds()
    found = meet(given.store, given.group_rank, given.group_size, options, timeout=seconds)
    return WeftProcessGroup(given.store, found, options.transport)


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _op(opts: Any) -> Any:
    """Reduction that options ask for; torch's older calls give it in their place."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def _root(opts: Any) -> int:
    return 0 if opts is None else int(getattr(opts, "rootRank", opts))


def _seconds(timeout: timedelta | None) -> float | None:
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else None


def _one_by_one(jobs: Sequence[Job]) -> Job:
    def run(timeout: float) -> None:
        for job in jobs:
            job(timeout)

    return run
