"""The collectives of a process group, by the names and with the arguments that torch calls them with.

torch calls a process group that is written in Python by the names below; where it has renamed a collective,
both names are here. Those that torch's own C++ calls, for DistributedDataParallel and functional collectives,
are the same methods. Arguments have the names that torch gives them in its own groups, and options may be
given as torch's option objects or as plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from weft.errors import InputError, LimitError, RuntimeFailure
from weft.runtime.handles import done
from weft.torch import collectives, sparse
from weft.torch.call_arguments import (
    check_message,
    either,
    listed,
    one_by_one,
    paired,
    read_options,
    single,
)
from weft.torch.dispatch import dispatch
from weft.torch.internals import Event, ProcessGroup
from weft.torch.tensors import check_input, check_output
from weft.torch.windows import Windows, checked
from weft.torch.work import CoalescedOperations, Work, invalidate_on_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from torch import Tensor

    from weft.runtime.communicator import Communicator
    from weft.runtime.handles import Handle
    from weft.torch.call_arguments import CallOptions
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
        options = self._read(opts, timeout, op=op)

        def run(given: Sequence[Tensor]) -> Work:
            make = sparse.all_reduce if sparse.is_sparse(given) else collectives.all_reduce
            return self._start("all_reduce", make(self.communicator, given, options.op), given, options)

        return self._dispatch(
            "allreduce_",
            run,
            (listed(either("all_reduce", tensors, tensor)),),
            (self, options.op, None, *options.dispatched),
        )

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Combine several tensors, in place."""
        options = self._read(opts)

        def run(given: Sequence[Tensor]) -> Work:
            job = collectives.all_reduce(self.communicator, given, options.op)
            return self._start("all_reduce", job, given, options)

        return self._dispatch(
            "allreduce_coalesced_", run, (listed(tensors),), (self, options.op, *options.dispatched)
        )

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
        options = self._read(opts, timeout, root=root)

        def run(given: Sequence[Tensor]) -> Work:
            job = collectives.broadcast(self.communicator, given, options.root)
            return self._start("broadcast", job, given, options)

        given = listed(either("broadcast", tensors, tensor))
        return self._dispatch("broadcast_", run, (given,), (self, options.root, 0, *options.dispatched))

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
        options = self._read(opts, timeout, op=op, root=root)

        def run(given: Sequence[Tensor]) -> Work:
            job = collectives.reduce(self.communicator, given, options.root, options.op)
            outputs = given if self.rank() == options.root else []
            return self._start("reduce", job, outputs, options, inputs=given)

        given = listed(either("reduce", tensors, tensor))
        return self._dispatch(
            "reduce_", run, (given,), (self, options.op, options.root, 0, *options.dispatched)
        )

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
        options, inputs = self._read(opts, timeout), either("all_gather", input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            output_tensors, inputs = [output_tensors], [inputs]
        return self._dispatch(
            "allgather_",
            lambda outputs, inputs: self._gather_lists(outputs, inputs, options),
            (output_tensors, inputs),
            (self, *options.dispatched),
        )

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], input_list: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Give every rank all tensors of all: ``output_lists[rank][tensor]``."""
        options = self._read(opts)

        def run(outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> Work:
            for some in outputs:
                paired("all_gather_coalesced", some, inputs)
            by_tensor = [[some[index] for some in outputs] for index in range(len(inputs))]
            return self._gather_lists(by_tensor, inputs, options)

        tensors = output_lists, input_list
        return self._dispatch("allgather_coalesced_", run, tensors, (self, options.is_async))

    def _gather_lists(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: CallOptions
    ) -> Work:
        pairs = paired("all_gather", outputs, inputs)
        jobs = [collectives.all_gather_list(self.communicator, *pair) for pair in pairs]
        flat = [tensor for some in outputs for tensor in some]
        value = list(outputs[0]) if len(outputs) == 1 else [list(some) for some in outputs]
        return self._start("all_gather", one_by_one(jobs), flat, options, inputs=inputs, value=value)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """Join the tensors of all ranks."""
        options = self._read(opts)
        return self._all_gather_into("_allgather_base_", output, input, options, options.dispatched)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Join several tensors of all ranks."""
        options = self._read(opts)
        name = "allgather_into_tensor_coalesced_"
        return self._all_gather_into(name, outputs, inputs, options, (options.is_async,))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_into(
        self, operation: str, outputs: Any, inputs: Any, options: CallOptions, dispatched: tuple[Any, ...]
    ) -> Work:
        def run(outputs: Any, inputs: Any) -> Work:
            outputs, inputs = listed(outputs), listed(inputs)
            pairs = paired("all_gather", outputs, inputs)
            jobs = [collectives.all_gather(self.communicator, *pair) for pair in pairs]
            return self._start("_all_gather_base", one_by_one(jobs), outputs, options, inputs=inputs)

        return self._dispatch(operation, run, (outputs, inputs), (self, *dispatched))

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
        options = self._read(opts, timeout, op=op)
        outputs = either("reduce_scatter", output_tensors, output)
        inputs = either("reduce_scatter", input_tensors, input)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]

        def run(outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]]) -> Work:
            pairs = paired("reduce_scatter", outputs, inputs)
            jobs = [collectives.reduce_scatter_list(self.communicator, *pair, options.op) for pair in pairs]
            seen = [tensor for some in inputs for tensor in some]
            return self._start("reduce_scatter", one_by_one(jobs), outputs, options, inputs=seen)

        tail = (self, options.op, *options.dispatched)
        return self._dispatch("reduce_scatter_", run, (outputs, inputs), tail)

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
        options = self._read(opts)

        def run(outputs: Any, inputs: Any) -> Work:
            outputs, inputs = listed(outputs), listed(inputs)
            pairs = paired("reduce_scatter", outputs, inputs)
            jobs = [collectives.reduce_scatter(self.communicator, *pair, options.op) for pair in pairs]
            return self._start("_reduce_scatter_base", one_by_one(jobs), outputs, options, inputs=inputs)

        tail = (self, options.op, *options.dispatched)
        return self._dispatch(operation, run, (outputs, inputs), tail)

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
        options = self._read(opts, timeout, root=root)
        inputs = either("gather", input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            output_tensors, inputs = [output_tensors] if output_tensors else [], [inputs]

        def run(outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> Work:
            room = single("gather", "lists of outputs", outputs) if outputs else []
            source = single("gather", "inputs", inputs)
            job = collectives.gather(self.communicator, self._windows, room, source, options.root)
            return self._start("gather", job, room, options, inputs=inputs)

        return self._dispatch(
            "gather_", run, (output_tensors or [], inputs), (self, options.root, *options.dispatched)
        )

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
        options = self._read(opts, timeout, root=root)
        outputs = either("scatter", output_tensors, output_tensor)
        if isinstance(outputs, torch.Tensor):
            outputs, input_tensors = [outputs], [input_tensors] if input_tensors else []

        def run(outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]]) -> Work:
            sources = single("scatter", "lists of inputs", inputs) if inputs else []
            output = single("scatter", "outputs", outputs)
            job = collectives.scatter(self.communicator, self._windows, output, sources, options.root)
            return self._start("scatter", job, outputs, options, inputs=sources)

        tail = (self, options.root, *options.dispatched)
        return self._dispatch("scatter_", run, (outputs, input_tensors or []), tail)

    def alltoall(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Give rank r the r-th tensor."""
        options = self._read(opts, timeout)

        def run(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Work:
            job = collectives.all_to_all(self.communicator, outputs, inputs)
            return self._start("all_to_all", job, outputs, options, inputs=inputs)

        return self._dispatch("alltoall_", run, (output_tensors, input_tensors), (self, *options.dispatched))

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
        options, sizes = self._read(opts, timeout), (output_split_sizes, input_split_sizes)

        def run(output: Tensor, source: Tensor) -> Work:
            job = collectives.all_to_all_single(self.communicator, output, source, *sizes)
            return self._start("all_to_all", job, [output], options, inputs=[source])

        return self._dispatch("alltoall_base_", run, (output, input), (self, *sizes, *options.dispatched))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Start a barrier, which completes once every rank has called this."""
        options = self._read(opts, timeout)
        return self._start("barrier", lambda seconds: self.communicator.barrier(timeout=seconds), [], options)

    def send(self, tensors: Sequence[Tensor], dstRank: int, tag: int = 0) -> Work:
        """Send a tensor to one other rank."""

        def run(tensors: Sequence[Tensor]) -> Work:
            tensor = single("send", "tensors", tensors)
            check_input("send", tensor)
            check_message("send", self.communicator, dstRank, tag)
            self._check_usable()
            event = self._record("send", tensors)
            sent = self._connections.send(tensor, dstRank, tag, self.communicator.timeout)
            if event is not None:
                event.end()
            return self._watch(sent, [])

        return self._dispatch("send", run, (tensors,), (self, dstRank, tag))

    def recv(self, tensors: Sequence[Tensor], srcRank: int, tag: int = 0) -> Work:
        """Receive from one other rank the next tensor that it has sent with this tag."""

        def run(tensors: Sequence[Tensor]) -> Work:
            check_message("recv", self.communicator, srcRank, tag)
            return self._receive("recv", single("recv", "tensors", tensors), srcRank, tag)

        return self._dispatch("recv_", run, (tensors,), (self, srcRank, tag))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Receive the next tensor that any rank has sent with this tag; ``source_rank`` reports which."""

        def run(tensors: Sequence[Tensor]) -> Work:
            check_message("recv", self.communicator, None, tag)
            return self._receive("recvAnySource", single("recv", "tensors", tensors), None, tag)

        return self._dispatch("recv_any_source_", run, (tensors,), (self, tag))

    def _receive(self, name: str, tensor: Tensor, source: int | None, tag: int) -> Work:
        check_output("recv", tensor)
        self._check_usable()
        event = self._record(name, [tensor])
        received = self._connections.receive(tensor, source, tag, self.communicator.timeout)
        if event is not None:
            event.end()
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

    def _dispatch(
        self, name: str, run: Callable[..., Work], tensors: tuple[Any, ...], others: tuple[Any, ...]
    ) -> Work:
        return dispatch(name, run, lambda: Work(done(), self.failures, []), tensors, others)

    def _read(self, opts: Any, timeout: timedelta | None = None, **named: Any) -> CallOptions:
        return read_options(opts, timeout, self.communicator.timeout, **named)

    def _record(self, name: str, tensors: Sequence[Tensor]) -> Event | None:
        """Begin an event of the profiler, if there is one, named as torch's own backends name theirs."""
        return Event(f"{BACKEND}:{name}", tensors) if Event.wanted() else None

    def _start(
        self,
        name: str,
        job: Job,
        outputs: Sequence[Tensor],
        options: CallOptions,
        *,
        inputs: Sequence[Tensor] | None = None,
        value: Any = None,
    ) -> Work:
        """Run an operation now if the caller waits anyway and nothing is queued; else queue it."""
        self._check_usable()
        if name not in _WINDOWED:
            job = checked(job, self._windows.close())
        run = invalidate_on_failure(lambda: job(options.seconds), outputs)
        waits = not options.is_async and self._coalesced is None
        event = self._record(name, outputs if inputs is None else inputs)
        if waits and event is not None:
            # As of torch's own backends, whose threads end them, the event is asynchronous.
            work = self._watch(
                self.communicator.in_turn(run, async_op=True, name=name), outputs, event, value=value
            )
            work.wait()
            return work
        if not waits:
            started = self.communicator.in_turn(run, async_op=True, name=name)
            if event is not None:
                event.end()
            return self._watch(started, outputs, value=value)
        try:
            self.communicator.in_turn(run)
        except InputError:
            raise  # nothing has moved, and the others raise the same
        except Exception as failure:
            self.failures.failed(failure, reported=True)
            raise
        return Work(done(), self.failures, outputs, value)

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
