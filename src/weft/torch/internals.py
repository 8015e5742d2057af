"""The private names of torch that Weft uses: all of them are here, because they may change with torch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import torch
from torch import distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed.constants import default_pg_timeout
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

DEFAULT_TIMEOUT_S: Final[float] = default_pg_timeout.total_seconds()
"""The timeout of a group that was given none."""

GradBucket: TypeAlias = c10d.GradBucket
TCPStore: TypeAlias = c10d.TCPStore
"""torch.distributed has them too, but does not say so to type checkers."""

ProcessGroup: Any = dist.ProcessGroup
"""To inherit from: its stub has overloads, but its C++ calls one method of a name with one set of arguments.

It is also wrong about the constructor, which takes a rank and a size from heirs, and no store.
"""

all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""By the names of torch 2.13, which warns of those that 2.12 has."""

CallbackWork: Any = c10d.PythonCallbackWork
"""To inherit from: its C++ half can be waited for, and has a future, also when the Python half is gone.

A heir of `torch.distributed.Work` forwards from C++ to its methods only as long as Python has a reference.
"""

DispatchMode: Any = TorchDispatchMode
"""To inherit from, and without types: while it is on, ``__torch_dispatch__`` sees every operation."""

_OUTSIDE: Final = -1


def family(operation: Any) -> Any:
    """Return the operation without its overload, the key of the table of `torch.utils.flop_counter`."""
    return operation._overloadpacket


@contextmanager
def without_fused_kernels() -> Iterator[None]:
    """Leave oneDNN out, whose layers are one operation each; torch's own switch for it warns on every use."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def storage(tensor: torch.Tensor) -> int:
    """Return a number for the memory of a tensor, which others may share; also on the meta device."""
    return int(tensor.untyped_storage()._cdata)


def changes_inputs(operation: Any) -> bool:
    """Return whether an operation writes to its inputs."""
    return bool(operation._schema.is_mutable)


def current_backward() -> int | None:
    """Return the number of the backward pass that this thread is in."""
    number: int = torch._C._current_graph_task_id()
    return None if number == _OUTSIDE else number


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Call a function when this thread's backward pass is over, which raises the error of the function."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def refuse_steps(check: Callable[[], None]) -> None:
    """Call a function before any optimizer steps; the step raises its error."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(lambda *_: check())


def has_dispatch_mode() -> bool:
    """Return whether a dispatch mode intercepts the operations of this thread."""
    return bool(torch._C._len_torch_dispatch_stack())


pop_dispatch_mode: Any = _pop_mode_temporarily
"""A context without the innermost dispatch mode of this thread; gives the mode."""


def make_overload(name: str, call: Callable[..., Any]) -> tuple[Any, bool]:
    """Return an operation of the namespace ``c10d`` that calls a function, and whether it returns tensors.

    It has the name and the schema by which dispatch modes know torch's own.
    """
    packet = getattr(torch.ops.c10d, name)
    known = packet.default
    made = type(known)(packet, call, known._op_dk, known._schema, known._tags)
    return made, len(known._schema.returns) > 1


class Event:
    """An event of torch's profiler, which begins here, and ends with a ``with`` block or a future.

    It must end before the profiler stops, or torch corrupts its own memory. So it ends while the thread that
    has begun it is in the same call.

    Parameters
    ----------
    name
        As torch's own backends have it: name of the backend and of the collective.
    tensors
        Whose shapes the event has.
    """

    def __init__(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        self._handle = torch._C._autograd._record_function_with_args_enter(name, *tensors)

    @staticmethod
    def wanted() -> bool:
        """Return whether a profiler is on."""
        return bool(torch._C._autograd._profiler_enabled())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        torch._C._autograd._record_function_with_args_exit(self._handle)

    def end_with(self, future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
        """End it when the future is complete; what is returned is complete when the event has ended.

        If that happens in another thread than this, the event is asynchronous.
        """
        end = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction
        ended: torch.futures.Future[Any] = end(self._handle, future)
        return ended


def make_stand_in(rank: int, size: int, timeout: timedelta) -> Any:
    """A backend that refuses every collective.

    A process group written in Python has a name only if some backend of torch's own is registered with it,
    and functional collectives find groups by name. Whatever is not overridden in Python reaches that backend:
    this one raises, where gloo would work with others than Weft's connections.
    """
    kind = cast("Any", c10d.FakeProcessGroup)  # torch's own stub lacks its options
    options = kind.Options()
    options.error_on_collective = True
    options._timeout = timeout
    return kind._create_internal(rank, size, options)


def device_of(group: dist.ProcessGroup) -> torch.device:
    """Return the device on which a group takes small tensors: the CPU if it can, else this rank's device."""
    kinds = [device.type for device in group._device_types]
    if "cpu" in kinds or not kinds:
        return torch.device("cpu")
    return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


def copy_all(into: list[torch.Tensor], given: list[Any]) -> None:
    """Copy many tensors at once."""
    torch._foreach_copy_(into, given)


def register(group: dist.ProcessGroup, backend: Any) -> None:
    """Give a group a backend of torch's own for tensors on CPUs."""
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), kind, backend)
    group._set_default_backend(kind)
