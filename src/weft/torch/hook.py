"""``ddp_hook``: DistributedDataParallel's gradients through Weft, whatever group it runs on.

Weft's runtime moves host memory. Buckets that lie on an accelerator go there and back (`_HostCopy`): that way
was tried on CPUs only, with a device that records its calls, and never on an accelerator.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import torch
from torch import distributed as dist

from weft.errors import InputError
from weft.torch.failures import DeferredFailures
from weft.torch.internals import DEFAULT_TIMEOUT_S, GradBucket
from weft.torch.process_group import WeftProcessGroup
from weft.torch.store_bootstrap import Options, connect_group
from weft.torch.tensors import Staged, kind_of, write
from weft.torch.work import WorkFuture, invalidate_on_failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.planning import Plan
    from weft.runtime.communicator import Communicator
    from weft.torch.store_bootstrap import ConnectionOptions

_WIRES: Final = {None: None, "fp16": torch.float16, "bf16": torch.bfloat16}


def ddp_hook(
    plan: Plan | str | Path | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    wire: str | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    **options: Unpack[ConnectionOptions],
) -> Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]:
    """Communication hook that averages gradients with Weft: ``model.register_comm_hook(None, ddp_hook())``.

    The ranks of the group connect when the first bucket is ready. A group of backend weft is used as it is,
    unless something else is prescribed here. Tests run this on CPUs, over groups of gloo and of weft.
    Gradients on an accelerator are copied to pinned host memory, averaged there and copied back; nobody has
    run that on one yet (``tools/gpu-check`` does).

    Parameters
    ----------
    plan, schedule, topology, algorithm, transport, streams, connect_timeout, plan_time_limit
        As for `weft.init`.
    group
        The group that the model is distributed over; by default all ranks.
    wire
        ``"fp16"`` or ``"bf16"``: gradients travel and are added in this type, which halves float32's bytes
        and loses their precision. By default they travel as they are.
    timeout
        Seconds for connecting, and for each bucket.

    Returns
    -------
    Callable
        A hook for ``register_comm_hook``, whose state it does not use.

    Raises
    ------
    InputError
        If `wire` is something else.
    """
    average = _GradientAverage(group, Options(plan=plan, **options), timeout, wire)

    def weft_hook(state, bucket):  # type: ignore[no-untyped-def]
        del state
        return average.start(bucket.buffer())

    # torch compares them with its own classes, which annotations in the source, being text here, are not.
    weft_hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[torch.Tensor]}
    return weft_hook


class _GradientAverage:
    """Averages the buckets of one model; connects the ranks with the first bucket.

    Parameters
    ----------
    group
        The group that the model is distributed over; None for all ranks.
    options
        How to connect, unless the group is one of backend weft.
    timeout
        Seconds for connecting, and for each bucket.
    wire
        The type that gradients travel in; None for their own.
    """

    def __init__(
        self, group: dist.ProcessGroup | None, options: Options, timeout: float, wire: str | None
    ) -> None:
        if wire not in _WIRES:
            raise InputError(f"wire {wire!r} is unknown, expected 'fp16', 'bf16' or None")
        self._group, self._options, self._timeout, self._wire = group, options, timeout, _WIRES[wire]
        self._connected: tuple[Communicator, DeferredFailures] | None = None

    def start(self, buffer: torch.Tensor) -> torch.futures.Future[Any]:
        """Start averaging a bucket, in place; return a future that completes with it."""
        if self._connected is None:
            self._connected = self._connect()
        communicator, failures = self._connected
        failures.check()
        if _on_host(buffer):
            average = partial(_average, communicator, buffer, self._wire)
        else:
            average = partial(_HostCopy(buffer).average, communicator, self._wire)
        run = invalidate_on_failure(average, [buffer])
        handle = communicator.in_turn(run, async_op=True, name="ddp_hook")
        failures.started(handle)
        return WorkFuture(torch.futures.Future(), handle, buffer).publish()

    def _connect(self) -> tuple[Communicator, DeferredFailures]:
        group = dist.group.WORLD if self._group is None else self._group
        prescribed = self._options != Options(plan_time_limit=self._options.plan_time_limit)
        if isinstance(group, WeftProcessGroup) and not prescribed:
            return group.communicator, group.failures
        communicator = connect_group(group, self._options, self._timeout)
        return communicator, DeferredFailures(self._timeout)


def _average(communicator: Communicator, buffer: torch.Tensor, kind: torch.dtype | None) -> None:
    if kind is None or kind == buffer.dtype:
        communicator.all_reduce(Staged(buffer).numbers, "avg", kind=kind_of("ddp_hook", buffer))
        return
    # Divided first: a sum of halves may be more than a half can hold.
    narrow = buffer.detach().div(communicator.size).to(kind)
    communicator.all_reduce(Staged(narrow).numbers, "sum", kind=kind_of("ddp_hook", narrow))
    write(buffer, narrow)


def _on_host(buffer: torch.Tensor) -> bool:
    return buffer.device.type == "cpu"


class _HostCopy:
    """A bucket of an accelerator in host memory, made on the stream on which the bucket became ready.

    It is waited for, and brought back, in another thread: on a stream of its own, since the usual one of the
    device is busy with the rest of the backward pass.

    Parameters
    ----------
    buffer
        On an accelerator.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self._module: Any = torch.get_device_module(buffer.device)
        self.tensor = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=not _on_host(buffer))
        self.tensor.copy_(buffer, non_blocking=True)
        self._copied = self._module.Event()
        self._copied.record(self._module.current_stream(buffer.device))

    def average(self, communicator: Communicator, kind: torch.dtype | None) -> None:
        """Average it once it is in host memory; return once the bucket has the result on every stream."""
        self._copied.synchronize()
        _average(communicator, self.tensor, kind)
        stream = self._module.Stream(self._buffer.device)
        with self._module.stream(stream):
            self._buffer.copy_(self.tensor, non_blocking=True)
        stream.synchronize()
