"""The collectives of a process group, by the names and with the arguments that torch calls them with.

torch calls a process group that is written in Python by the names below; where it has renamed a collective,
both names are here. Those that torch's own C++ calls, for DistributedDataParallel and functional collectives,
are the same methods. Arguments have the names that torch gives them in its own groups, and options may be
given as torch's option objects or as plain values.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from weft.errors import InputError, LimitError, RuntimeFailure
from weft.runtime.handles import done
from weft.torch import collectives, sparse
from weft.torch.call_arguments import check_message, either, listed, paired, read_call, single
from weft.torch.dispatch import dispatch, each
from weft.torch.internals import Event, ProcessGroup
from weft.torch.tensor_checks import check_input, check_output
from weft.torch.windows import Windows
from weft.torch.work import CoalescedOperations, Work, invalidate_on_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.runtime.handles import Handle
    from weft.torch.call_arguments import GroupCall
    from weft.torch.collectives import Job
    from weft.torch.failures import DeferredFailures
    from weft.torch.peer_connections import PeerConnections

BACKEND = "weft"
_WINDOWED: Final = ("gather", "scatter")


class GroupMethods(ProcessGroup):  # type: ignore[misc]
    """The collectives and messages of `WeftProcessGroup`; parameters as there."""

    def __init__(
        self, communicator: Communicator, connections: PeerConnections, failures: DeferredFailures
    ) -> None:
        super().__init__(communicator.rank, communicator.size)
        self.communicator = communicator
        self.failures = failures
        self._connections = connections
        self._windows = Windows(communicator)
        self._coalesced: CoalescedOperations | None = None
        self._leaving = False

    def allreduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Tensor | None = None,
        op: Any = None,
    ) -> Work:
        """Combine tensors, in place; a sparse one becomes the sum of all."""
        call, given = self._read(opts, timeout, op=op), listed(either("all_reduce", tensors, tensor))
        return self._run("allreduce_", "all_reduce", sparse.all_reduce, call, (given,), call.op, None)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Combine several tensors, in place."""
        call, make = self._read(opts), collectives.all_reduce
        return self._run("allreduce_coalesced_", "all_reduce", make, call, (listed(tensors),), call.op)

    def broadcast(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Tensor | None = None,
        root: int | None = None,
    ) -> Work:
        """Give every rank the root's tensors."""
        call, given = self._read(opts, timeout, root=root), listed(either("broadcast", tensors, tensor))
        return self._run("broadcast_", "broadcast", collectives.broadcast, call, (given,), call.root, 0)

    def reduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Tensor | None = None,
        root: int | None = None,
    ) -> Work:
        """Combine tensors at the root, in place."""
        call = self._read(opts, timeout, op=op, root=root)

        def run(given: Sequence[Tensor]) -> Work:
            outputs = given if self.rank() == call.root else []
            return self._start("reduce", collectives.reduce(call, given), call, outputs, given)

        given, others = listed(either("reduce", tensors, tensor)), (call.op, call.root, 0)
        return self._dispatch("reduce_", run, (given,), (self, *others, *call.dispatched))

    def allgather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Tensor | None = None,
    ) -> Work:
        """Give every rank the tensors of all."""
        call, inputs = self._read(opts, timeout), either("all_gather", input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            output_tensors, inputs = [output_tensors], [inputs]
        make, tensors = collectives.all_gather_list, (output_tensors, inputs)
        return self._run("allgather_", "all_gather", make, call, tensors)

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], input_list: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Give every rank all tensors of all: ``output_lists[rank][tensor]``."""
        call = self._read(opts)

        def run(outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> Work:
            for some in outputs:
                paired("all_gather_coalesced", some, inputs)
            by_tensor = [[some[index] for some in outputs] for index in range(len(inputs))]
            job = collectives.all_gather_list(call, by_tensor, inputs)
            return self._start("all_gather", job, call, by_tensor, inputs)

        tensors = output_lists, input_list
        return self._dispatch("allgather_coalesced_", run, tensors, (self, call.is_async))

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Join the tensors of all ranks."""
        make, tensors = collectives.all_gather, (output, input)
        return self._run("_allgather_base_", "_all_gather_base", make, self._read(opts), tensors)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Join several tensors of all ranks."""
        call = self._read(opts)
        run = partial(self._make_and_start, "_all_gather_base", collectives.all_gather, call)
        tensors = outputs, inputs
        return self._dispatch("allgather_into_tensor_coalesced_", run, tensors, (self, call.is_async))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output: Tensor | None = None,
        input: Sequence[Tensor] | None = None,
        op: Any = None,
    ) -> Work:
        """Combine the r-th tensors of all at rank r."""
        call, make = self._read(opts, timeout, op=op), collectives.reduce_scatter_list
        outputs = either("reduce_scatter", output_tensors, output)
        inputs = either("reduce_scatter", input_tensors, input)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        return self._run("reduce_scatter_", "reduce_scatter", make, call, (outputs, inputs), call.op)

    def reduce_scatter_single(self, outputTensor: Tensor, inputTensor: Tensor, opts: Any = None) -> Work:
        """Combine tensors and keep this rank's share."""
        return self._reduce_scatter_into("_reduce_scatter_base_", outputTensor, inputTensor, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Combine several tensors and keep this rank's shares."""
        return self._reduce_scatter_into("reduce_scatter_tensor_coalesced_", outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_into(self, operation: str, outputs: Any, inputs: Any, opts: Any) -> Work:
        call, make = self._read(opts), collectives.reduce_scatter
        return self._run(operation, "_reduce_scatter_base", make, call, (outputs, inputs), call.op)

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Tensor | None = None,
        root: int | None = None,
    ) -> Work:
        """Give the root the tensors of all."""
        call, inputs = self._read(opts, timeout, root=root), either("gather", input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            output_tensors, inputs = [output_tensors] if output_tensors else [], [inputs]
        tensors = output_tensors or [], inputs
        return self._run("gather_", "gather", collectives.gather, call, tensors, call.root)

    def scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output_tensor: Tensor | None = None,
        root: int | None = None,
    ) -> Work:
        """Give rank r the root's r-th tensor."""
        call, outputs = self._read(opts, timeout, root=root), either("scatter", output_tensors, output_tensor)
        if isinstance(outputs, torch.Tensor):
            outputs, input_tensors = [outputs], [input_tensors] if input_tensors else []
        tensors = outputs, input_tensors or []
        return self._run("scatter_", "scatter", collectives.scatter, call, tensors, call.root)

    def alltoall(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Give rank r the r-th tensor."""
        call, tensors = self._read(opts, timeout), (output_tensors, input_tensors)
        return self._run("alltoall_", "all_to_all", collectives.all_to_all, call, tensors)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Give rank r the r-th part of a tensor."""
        received, sent = output_split_sizes, input_split_sizes
        make = partial(collectives.all_to_all_single, received=received, sent=sent)
        call, tensors = self._read(opts, timeout), (output, input)
        return self._run("alltoall_base_", "all_to_all", make, call, tensors, received, sent)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Start a barrier, which completes once every rank has called this."""
        call = self._read(opts, timeout)
        return self._start("barrier", lambda seconds: call.comm.barrier(timeout=seconds), call, [], [])

    def send(self, tensors: Sequence[Tensor], dstRank: int, tag: int = 0) -> Work:
        """Send a tensor to one other rank."""

        def run(tensors: Sequence[Tensor]) -> Work:
            tensor = single("send", "tensors", tensors)
            check_input("send", tensor)
            check_message("send", self.communicator, dstRank, tag)
            self._check_usable()
            with self._record("send", tensors) or nullcontext():
                sent = self._connections.send(tensor, dstRank, tag, self.communicator.timeout)
            return self._watch(sent, [])

        return self._dispatch("send", run, (tensors,), (self, dstRank, tag))

    def recv(self, tensors: Sequence[Tensor], srcRank: int, tag: int = 0) -> Work:
        """Receive from one other rank the next tensor that it has sent with this tag."""
        run = partial(self._receive, "recv", srcRank, tag)
        return self._dispatch("recv_", run, (tensors,), (self, srcRank, tag))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Receive the next tensor that any rank has sent with this tag; ``source_rank`` reports which."""
        run = partial(self._receive, "recvAnySource", None, tag)
        return self._dispatch("recv_any_source_", run, (tensors,), (self, tag))

    def _receive(self, name: str, source: int | None, tag: int, tensors: Sequence[Tensor]) -> Work:
        check_message("recv", self.communicator, source, tag)
        tensor = single("recv", "tensors", tensors)
        check_output("recv", tensor)
        self._check_usable()
        with self._record(name, tensors) or nullcontext():
            received = self._connections.receive(tensor, source, tag, self.communicator.timeout)
        work = self._watch(received.handle, [tensor], harmless=(LimitError,))
        work.find_source = received.find_source
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        del device
        self._coalesced = CoalescedOperations()

    def _end_coalescing(self, device: torch.device) -> Work:
        del device
        coalesced, self._coalesced = self._coalesced or CoalescedOperations(), None
        return self._watch(coalesced.end(), [])

    def _run(
        self,
        operation: str,
        name: str,
        make: Callable[..., Job],
        call: GroupCall,
        tensors: tuple[Any, ...],
        *others: Any,
    ) -> Work:
        """Start a collective, unless dispatch modes or tensor subclasses do.

        Parameters
        ----------
        operation
            Its name in ``torch.ops.c10d``.
        name
            Its name in torch's own backends.
        make
            Makes its job from the call and the tensors.
        tensors
            Its outputs first and its inputs last.
        others
            The arguments of the operation between the group and the options that all have.
        """
        run = partial(self._make_and_start, name, make, call)
        return self._dispatch(operation, run, tensors, (self, *others, *call.dispatched))

    def _make_and_start(self, name: str, make: Callable[..., Job], call: GroupCall, *tensors: Any) -> Work:
        return self._start(name, make(call, *tensors), call, tensors[0], tensors[-1])

    def _dispatch(
        self, name: str, run: Callable[..., Work], tensors: tuple[Any, ...], others: tuple[Any, ...]
    ) -> Work:
        return dispatch(name, run, lambda: Work(done(), self.failures, []), tensors, others)

    def _read(self, opts: Any, timeout: timedelta | None = None, **named: Any) -> GroupCall:
        return read_call(self.communicator, self._windows, opts, timeout, **named)

    def _record(self, name: str, tensors: Sequence[Tensor]) -> Event | None:
        """Begin an event of the profiler, if there is one, named as torch's own backends name theirs."""
        return Event(f"{BACKEND}:{name}", tensors) if Event.wanted() else None

    def _start(self, name: str, job: Job, call: GroupCall, outputs: Any, inputs: Any) -> Work:
        """Run an operation now if the caller waits anyway and nothing is queued; else queue it."""
        self._check_usable()
        if name not in _WINDOWED:
            job = self._windows.close_before(job)
        given, written = listed(outputs), list(each(outputs))
        # A list of lists with a single one in it is what torch makes of a single list.
        value = list(given[0]) if len(given) == 1 and not isinstance(given[0], torch.Tensor) else given
        run = invalidate_on_failure(lambda: job(call.seconds), written)
        event = self._record(name, list(each(inputs)))
        if call.is_async or self._coalesced is not None:
            with event or nullcontext():
                started = self.communicator.in_turn(run, async_op=True, name=name)
            return self._watch(started, written, value=value)
        if event is not None:
            # As of torch's own backends, whose threads end them, the event is asynchronous.
            started = self.communicator.in_turn(run, async_op=True, name=name)
            work = self._watch(started, written, event, value=value)
            work.wait()
            return work
        try:
            self.communicator.in_turn(run)
        except InputError:
            raise  # nothing has moved, and the others raise the same
        except Exception as failure:
            self.failures.failed(failure, reported=True)
            raise
        return Work(done(), self.failures, written, value)

    def _watch(
        self,
        started: Handle[Any],
        outputs: Sequence[Tensor],
        event: Event | None = None,
        *,
        value: Any = None,
        harmless: tuple[type[BaseException], ...] = (),
    ) -> Work:
        self.failures.started(started, harmless=harmless)
        work = Work(started, self.failures, outputs, value, event)
        if self._coalesced is not None:
            self._coalesced.add(started)
        return work

    def _check_usable(self) -> None:
        self.failures.check()
        if self._leaving:
            msg = f"rank {self.rank()} has destroyed this process group; make another by new_group"
            raise RuntimeFailure(f"{msg} or init_process_group")
