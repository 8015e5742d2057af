"""``torch.distributed.init_process_group("weft")``: a process group that runs on Weft.

torch calls a process group written in Python by the names below; where it has renamed a collective, both
names are here. Those that torch's own C++ calls, for DistributedDataParallel and functional collectives, are
the same methods. Whatever is not here raises (`weft.torch.internals.make_stand_in`).
"""

from __future__ import annotations

import atexit
import time
import warnings
import weakref
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import distributed as dist

from weft.errors import InputError, LimitError, RuntimeFailure
from weft.runtime.roster import check_timeout
from weft.runtime.work import Work as Started
from weft.torch import collectives
from weft.torch.arguments import check_message, listed, one_by_one, op_of, paired, root_of, seconds_of, single
from weft.torch.guard import Guard
from weft.torch.internals import ProcessGroup, make_stand_in, register
from weft.torch.meeting import find_topology, meet
from weft.torch.options import Options
from weft.torch.pairs import Pairs, open_pairs
from weft.torch.tensors import check_input, check_output
from weft.torch.works import Work, guarded, over, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.torch.collectives import Job

BACKEND = "weft"

_EXIT_PATIENCE_S: Final = 10.0
"""How long a process that ends waits for operations under way, so that the others get its part of them."""

_CANCELLED_WITHIN_S: Final = 5.0
"""How long a group that is aborted waits until what it has cancelled has ended."""


class WeftProcessGroup(ProcessGroup):  # type: ignore[misc]
    """Ranks that compute collectives together; made by ``init_process_group`` and ``new_group``.

    Parameters
    ----------
    store
        That the ranks have met through.
    communicator
        What runs.
    pairs
        For messages between two ranks.
    guard
        Keeps failures.
    """

    def __init__(self, store: Any, communicator: Communicator, pairs: Pairs, guard: Guard) -> None:
        super().__init__(communicator.rank, communicator.size)
        register(self, make_stand_in(communicator.rank, communicator.size))
        self._store = store
        self.communicator = communicator
        self.guard = guard
        self._pairs = pairs
        self._together: list[Work] | None = None
        self._leaving = self._ended = False
        # At the end of the process the group ends, and its communicator with it.
        atexit.unregister(communicator.close)
        _groups.add(self)

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
        seconds = check_timeout(timeout.total_seconds())
        self.communicator.timeout = self.guard.timeout = seconds

    def shutdown(self) -> None:
        """Finish what was started, each operation within its own deadline, and leave.

        An operation that cannot be finished does not raise here, where torch could not go on, but where it is
        waited for; a warning names it.
        """
        if not self._has_ended():
            self._end(None)
            self._warn()

    def abort(self) -> None:
        """Leave at once, and cancel what is under way: its ``wait`` raises a `RuntimeFailure`.

        Ranks that are in an operation with this one get `PeerLost`.
        """
        if not self._has_ended():
            self._end(0.0)

    def _has_ended(self) -> bool:
        """Whether there is nothing to leave any more, or it is the parent's of this forked child."""
        return self._ended or self.guard.forked

    def _end(self, patience: float | None) -> bool:
        """Leave; whether operations had to be cancelled, since they were not over within so many seconds."""
        self._leaving = True
        self._pairs.leave()
        cancelled = self.guard.drain(patience) > 0
        if cancelled:
            self._pairs.abort()
            self.communicator.abort()
            self.guard.drain(_CANCELLED_WITHIN_S)  # nothing writes to a tensor afterwards
        else:
            self._pairs.close()
            self.communicator.close()
        self.guard.close()
        self._ended = True
        return cancelled

    def _warn(self) -> None:
        """Tell what nobody has been told of, and nobody can be told of any more."""
        if self.guard.untold is not None:
            msg = f"an operation that nobody has waited for has failed: {self.guard.untold}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)
        for sender, tags in self._pairs.unreceived().items():
            msg = f"messages of rank {sender} with tags that were never received are lost: {tags[:10]}"
            warnings.warn(msg, RuntimeWarning, stacklevel=3)

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Combine tensors, in place."""
        tensors, op = listed(tensors), op_of(opts)
        return self._start(collectives.all_reduce(self.communicator, tensors, op), tensors, opts, timeout)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give every rank the root's tensors."""
        tensors = listed(tensors)
        job = collectives.broadcast(self.communicator, tensors, root_of(opts))
        return self._start(job, tensors, opts, timeout)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combine tensors at the root, in place."""
        tensors, root = listed(tensors), root_of(opts)
        job = collectives.reduce(self.communicator, tensors, root, op or op_of(opts))
        return self._start(job, tensors if self.rank() == root else [], opts, timeout)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Give every rank the tensors of all."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        pairs = paired("all_gather", outputs, inputs)
        jobs = [collectives.all_gather_list(self.communicator, *pair) for pair in pairs]
        return self._start(one_by_one(jobs), [tensor for some in outputs for tensor in some], opts, timeout)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """Join the tensors of all ranks."""
        return self._start(collectives.all_gather(self.communicator, output, source), [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Join several tensors of all ranks."""
        pairs = paired("all_gather", outputs, inputs)
        jobs = [collectives.all_gather(self.communicator, *pair) for pair in pairs]
        return self._start(one_by_one(jobs), outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combine the r-th tensors of all at rank r."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        op, pairs = op_of(opts), paired("reduce_scatter", outputs, inputs)
        jobs = [collectives.reduce_scatter_list(self.communicator, *pair, op) for pair in pairs]
        return self._start(one_by_one(jobs), outputs, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """Combine tensors and keep this rank's share."""
        job = collectives.reduce_scatter(self.communicator, output, source, op_of(opts))
        return self._start(job, [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Combine several tensors and keep this rank's shares."""
        op, pairs = op_of(opts), paired("reduce_scatter", outputs, inputs)
        jobs = [collectives.reduce_scatter(self.communicator, *pair, op) for pair in pairs]
        return self._start(one_by_one(jobs), outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give the root the tensors of all."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        room = single("gather", "lists of outputs", outputs) if outputs else []
        job = collectives.gather(self.communicator, room, single("gather", "inputs", inputs), root_of(opts))
        return self._start(job, room, opts, timeout)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Give rank r the root's r-th tensor."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        sources = single("scatter", "lists of inputs", inputs) if inputs else []
        job = collectives.scatter(
            self.communicator, single("scatter", "outputs", outputs), sources, root_of(opts)
        )
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
        """Complete once every rank has come."""
        return self._start(lambda seconds: self.communicator.barrier(timeout=seconds), [], opts, timeout)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return once every rank has come; a rank that does not is named, as by every operation."""
        del wait_all_ranks
        self._start(lambda seconds: self.communicator.barrier(timeout=seconds), [], None, timeout).wait()

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> Work:
        """Send a tensor to one other rank."""
        tensor = single("send", "tensors", tensors)
        check_input("send", tensor)
        check_message("send", self.communicator, dst, tag)
        self._check_usable()
        return self._watch(self._pairs.send(tensor, dst, tag, self.communicator.timeout), [])

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> Work:
        """Receive from one other rank the next tensor that it has sent with this tag."""
        tensor = single("recv", "tensors", tensors)
        check_output("recv", tensor)
        check_message("recv", self.communicator, src, tag)
        self._check_usable()
        started = self._pairs.receive(tensor, src, tag, self.communicator.timeout)
        return self._watch(started, [tensor], src, harmless=(LimitError,))

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
        return self._watch(together([work.started for work in works]), outputs)

    def _start(
        self, job: Job, outputs: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Do it now if the caller waits anyway and nothing is under way; else when its turn comes."""
        self._check_usable()
        seconds = seconds_of(opts, timeout, self.communicator.timeout)
        run = guarded(lambda: job(seconds), outputs)
        if getattr(opts, "asyncOp", True) or self._together is not None:
            return self._watch(self.communicator.in_turn(run, async_op=True), outputs)
        try:
            self.communicator.in_turn(run)
        except RuntimeFailure as failure:
            self.guard.failed(failure, told=True)
            raise
        return Work(over(), self.guard, outputs)

    def _watch(
        self,
        started: Started,
        outputs: Sequence[Tensor],
        source: int = -1,
        harmless: tuple[type[BaseException], ...] = (),
    ) -> Work:
        self.guard.started(started, harmless=harmless)
        work = Work(started, self.guard, outputs, source)
        if self._together is not None:
            self._together.append(work)
        return work

    def _check_usable(self) -> None:
        self.guard.check()
        if self._leaving:
            msg = f"rank {self.rank()} has destroyed this process group; make another by new_group"
            raise RuntimeFailure(f"{msg} or init_process_group")


_groups: weakref.WeakSet[WeftProcessGroup] = weakref.WeakSet()


def _leave_all() -> None:
    """Leave all groups at the end of the process; beyond that torch would keep what they refer to."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for group in tuple(_groups):
        if not group._has_ended() and group._end(max(0.0, deadline - time.monotonic())):
            msg = (
                "this process ended while operations of its process group were under way; they were cancelled"
            )
            warnings.warn(
                f"{msg}: wait for them, or call destroy_process_group", RuntimeWarning, stacklevel=1
            )
        group.__dict__.clear()


atexit.register(_leave_all)


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
        outside = cast("Any", group) == dist.GroupMember.NON_GROUP_MEMBER
        what = "this process is not in the group" if outside else "the process group is not of backend weft"
        what = "there is no process group" if group is None else what
        msg = f"{what}; init_process_group('weft') makes one, weft.torch.connect takes any"
        raise InputError(msg)
    return group


def create(given: Any, options: Options | None) -> WeftProcessGroup:
    """Make a group, for torch: meet the others, and connect."""
    if options is not None and not isinstance(options, Options):
        msg = f"pg_options of backend weft are weft.torch.Options, not {type(options).__name__}"
        raise TypeError(msg)
    options = options or Options()
    seconds = given.timeout.total_seconds()
    found = options.communicator
    if found is None:
        options = replace(options, topology=find_topology(options, given.group_size))
        found = meet(given.store, given.group_rank, given.group_size, options, timeout=seconds)
    guard = Guard(found.timeout)
    try:
        pairs = open_pairs(given.store, found, options, partial(guard.check, tells=False), seconds)
    except BaseException:
        found.close()
        raise
    return WeftProcessGroup(given.store, found, pairs, guard)
