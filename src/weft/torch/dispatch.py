"""The dispatch of a collective to dispatch modes and tensor subclasses, which torch does for its own groups.

torch's own groups go through an operation of the namespace ``c10d``. Dispatch modes, such as `CommDebugMode`,
count these operations, and a tensor subclass that wraps another tensor gives that one to them. The methods of
a group that is written in Python are called without the dispatcher, so this does the same for them. It costs
a look at the types of the tensors where there is neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weft.torch.internals import has_dispatch_mode, make_overload, pop_dispatch_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from weft.torch.work import Work


def dispatch(
    name: str,
    run: Callable[..., Work],
    pretend: Callable[[], Work],
    tensors: tuple[Any, ...],
    others: tuple[Any, ...],
) -> Work:
    """Start a collective through dispatch modes and tensor subclasses.

    Parameters
    ----------
    name
        The name of the operation in ``torch.ops.c10d``.
    run
        Starts it on plain tensors, which replace `tensors`.
    pretend
        Returns the result for tensors without memory, such as fake tensors, and does nothing.
    tensors
        The first arguments of the operation: tensors, lists of them, or lists of lists.
    others
        The other arguments.
    """
    if not has_dispatch_mode() and not any(_dispatches(tensor) for tensor in each(tensors)):
        return run(*tensors)

    def call(*args: Any, **kwargs: Any) -> Any:
        """Call the next mode or subclass, or else the collective; modes and subclasses call this."""
        given = args[: len(tensors)]
        if all(tensor.is_meta for tensor in each(given)):
            return give(given[0], pretend())
        types = tuple({type(tensor) for tensor in each(given) if _dispatches(tensor)})
        if has_dispatch_mode():
            with pop_dispatch_mode() as mode:
                found = mode.__torch_dispatch__(operation, types, args, kwargs)
            if found is not NotImplemented:
                return found
        for kind in types if offered.isdisjoint(map(id, each(given))) else ():
            offered.update(map(id, each(given)))
            found = kind.__torch_dispatch__(operation, types, args, kwargs)
            if found is not NotImplemented:
                return found
        if types:
            names = ", ".join(kind.__name__ for kind in types)
            msg = f"{name}: a {names} does not know this operation; give the tensor that it wraps"
            raise NotImplementedError(msg)
        return give(given[0], run(*given))

    def give(first: Any, work: Work) -> Any:
        return (first, work) if returns_tensors else work

    # Tensors whose subclass has been offered; offered again, it would go on for ever.
    offered: set[int] = set()
    operation, returns_tensors = make_overload(name, call)
    found = call(*tensors, *others)
    work: Work = found[-1] if isinstance(found, tuple | list) else found
    return work


def _dispatches(tensor: Any) -> bool:
    """Return whether a tensor is of a subclass that intercepts the operations on it."""
    kind = type(tensor)
    return kind is not torch.Tensor and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def each(given: Any) -> Iterator[Tensor]:
    """Yield a tensor, or the tensors of a list or of lists in it."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"expected tensors, or lists of them, not {type(given).__name__}")
    else:
        for some in given:
            yield from each(some)
